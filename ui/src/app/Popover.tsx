// A button that opens a small panel beside it. Escape and a press elsewhere close it; the focus goes back to the button.

import { type ReactNode, useEffect, useId, useRef, useState } from "react";

interface Props {
  label: ReactNode;
  /** What a screen reader is told instead of the label, where the label alone is not enough. */
  name?: string;
  title: string;
  className?: string;
  children: (close: () => void) => ReactNode;
}

export function Popover({ label, name, title, className = "", children }: Props) {
  const [open, setOpen] = useState(false);
  const id = useId();
  const whole = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const close = () => {
    // Only where the focus was inside: a press elsewhere goes where the person pressed.
    if (whole.current?.contains(document.activeElement)) button.current?.focus();
    setOpen(false);
  };

  useEffect(() => {
    if (!open) return;
    const pressed = (event: PointerEvent) => {
      if (!whole.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", pressed);
    return () => document.removeEventListener("pointerdown", pressed);
  }, [open]);

  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: it only hears Escape from the controls inside.
    <div
      className={`app-popover ${className}`}
      ref={whole}
      // Who goes on with the keyboard leaves it: it must not stay open over what comes next.
      onBlur={(event) => {
        if (event.relatedTarget !== null && !event.currentTarget.contains(event.relatedTarget)) setOpen(false);
      }}
      onKeyDown={(event) => {
        if (open && event.key === "Escape") {
          event.stopPropagation();
          close();
        }
      }}
    >
      <button
        type="button"
        ref={button}
        className="app-popover-button"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        aria-label={name}
        onClick={() => (open ? close() : setOpen(true))}
      >
        {label}
      </button>
      {open && (
        <section id={id} className="app-popover-panel" aria-label={title}>
          {children(close)}
        </section>
      )}
    </div>
  );
}
