// A button that opens a small panel beside it. Escape and a press elsewhere close it; the focus goes back to the button.

import { Popover as Base } from "@base-ui/react/popover";
import { type ReactNode, useRef, useState } from "react";
import { useHome } from "../parts/home";

interface Props {
  label: ReactNode;
  /** What a screen reader is told instead of the label, where the label alone is not enough. */
  name?: string;
  title: string;
  className?: string;
  side?: "top" | "bottom";
  children: (close: () => void) => ReactNode;
}

export function Popover({ label, name, title, className = "", side = "bottom", children }: Props) {
  const [open, setOpen] = useState(false);
  const home = useHome();
  const panel = useRef<HTMLDivElement>(null);
  return (
    <Base.Root open={open} onOpenChange={setOpen}>
      <Base.Trigger className={`app-popover-button ${className}`} aria-label={name}>
        {label}
      </Base.Trigger>
      <Base.Portal container={home}>
        <Base.Positioner
          className="ui-over"
          side={side}
          align={side === "top" ? "start" : "end"}
          sideOffset={8}
          collisionPadding={8}
        >
          {/* The focus goes to the panel: what changes a setting is pressed deliberately. */}
          <Base.Popup className="app-popover-panel" aria-label={title} ref={panel} initialFocus={panel}>
            {children(() => setOpen(false))}
          </Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}
