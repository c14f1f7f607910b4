// A dialog over the page. It opens because the person asked for it, puts the focus on its heading and never on a button,
// and closes by Escape, by a press beside it or by its own button.

import { Dialog } from "@base-ui/react/dialog";
import { X } from "lucide-react";
import { type ReactNode, useRef } from "react";
import { useHome } from "./home";

interface SheetProps {
  title: string;
  close: () => void;
  /** What gets the focus when it closes; left out: what had it before. */
  back?: (() => HTMLElement | null) | undefined;
  /** With room for differences, or a text of many lines. */
  wide?: boolean;
  children: ReactNode;
}

export function Sheet({ title, close, back, wide = false, children }: SheetProps) {
  const home = useHome();
  const heading = useRef<HTMLHeadingElement>(null);
  return (
    <Dialog.Root open onOpenChange={(open) => !open && close()}>
      <Dialog.Portal container={home}>
        <Dialog.Backdrop className="ui-backdrop" />
        <Dialog.Popup className={wide ? "ui-sheet ui-sheet-wide" : "ui-sheet"} initialFocus={heading} finalFocus={back}>
          <header className="ui-sheet-head">
            <Dialog.Title ref={heading} tabIndex={-1}>
              {title}
            </Dialog.Title>
            <Dialog.Close className="app-close" aria-label="Close">
              <X size={16} aria-hidden="true" />
            </Dialog.Close>
          </header>
          <div className="ui-sheet-body">{children}</div>
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  );
}
