// A link to another page of the chat. It is a real link (a new tab works); a plain click goes through the app, because
// a webview follows no address by itself.

import type { MouseEvent, ReactNode } from "react";
import { type Route, routeHash } from "../app/route";

interface Props {
  to: Route;
  go: (route: Route) => void;
  className?: string;
  label?: string;
  children: ReactNode;
}

export function Link({ to, go, className, label, children }: Props) {
  const press = (event: MouseEvent) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  };
  return (
    <a href={routeHash(to)} className={className} aria-label={label} onClick={press}>
      {children}
    </a>
  );
}
