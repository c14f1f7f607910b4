// Which cards are open, kept outside of them: a row that is scrolled far away leaves the page and comes back as it was.
// Only what the person chose and what ran in sight is kept, and only for a while.

import { useEffect, useState } from "react";
import type { Host } from "../host";

const MOST = 300;
/** For as long as the page around it lives. */
const byHost = new WeakMap<Host, Map<string, boolean>>();

function openedOf(host: Host): Map<string, boolean> {
  const known = byHost.get(host) ?? new Map<string, boolean>();
  byHost.set(host, known);
  return known;
}

function keep(opened: Map<string, boolean>, id: string, open: boolean): void {
  opened.delete(id); // the newest last
  opened.set(id, open);
  const oldest = opened.size > MOST ? opened.keys().next() : null;
  if (oldest && !oldest.done) opened.delete(oldest.value);
}

/** Whether this card is open, and how to turn that. What was in sight while it ran stays in sight when it ends. */
export function useOpened(host: Host, id: string, live: boolean): [open: boolean, toggle: () => void] {
  const [chosen, setChosen] = useState(() => openedOf(host).get(id));
  const open = chosen ?? live;
  useEffect(() => {
    const opened = openedOf(host);
    if (!live || opened.has(id)) return;
    keep(opened, id, true);
    setChosen(true);
  }, [host, id, live]);
  return [
    open,
    () => {
      keep(openedOf(host), id, !open);
      setChosen(!open);
    },
  ];
}
