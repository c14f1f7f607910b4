// The heading of a page. When the link that led here is gone and the focus with it, the focus goes to the heading, so that
// the keyboard goes on from the top of the page. It never takes the focus from anything.

import type { ReactNode } from "react";
import { useEffect, useRef } from "react";

interface Props {
  className?: string;
  /** Not in sight now: the page behind another one. */
  away?: boolean;
  children: ReactNode;
}

export function Title({ className, away = false, children }: Props) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    const focused = document.activeElement;
    if (!away && (focused === null || focused === document.body)) heading.current?.focus({ preventScroll: true });
  }, [away]);
  return (
    <h1 ref={heading} tabIndex={-1} className={className}>
      {children}
    </h1>
  );
}
