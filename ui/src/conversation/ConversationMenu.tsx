// What can be done with a whole conversation, as a menu. It only opens what it names.

import type { Session } from "@protocol";
import { Download, Ellipsis, FileDiff, Pencil, Trash2 } from "lucide-react";
import { More } from "../parts/More";

/** What is done with which conversation. */
export interface Managed {
  what: "changes" | "rename" | "export" | "delete";
  session: Session;
}

interface Props {
  session: Session;
  /** Heard instead of its icon. */
  label: string;
  className: string;
  manage: (managed: Managed) => void;
}

export function ConversationMenu({ session, label, className, manage }: Props) {
  const open = (what: Managed["what"]) => () => manage({ what, session });
  return (
    <More
      label={label}
      className={className}
      mark={Ellipsis}
      items={[
        { text: "What it changed", icon: FileDiff, open: open("changes") },
        { text: "Rename", icon: Pencil, open: open("rename") },
        { text: "Export", icon: Download, open: open("export") },
        { text: "Delete", icon: Trash2, open: open("delete"), apart: true },
      ]}
    />
  );
}
