// A difference people can read: side by side or unified, with what cannot be seen otherwise (carriage returns, blanks at
// the end, a missing newline) marked where it changes. The number of rows in the document is bounded. It never decides.

import type { ShownChange } from "@protocol";
import { type RefObject, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import type { Host } from "../host";
import "../styles/cards.css";
import { Pager } from "../text/Lines";
import { visible } from "../text/visible";
import { counted, thousands } from "../text/words";
import { DiffTable, type Folding } from "./DiffTable";
import { type Difference, difference, type Row } from "./difference";
import { FileName } from "./EffectLines";

/** Two sides need so much: else a line of code wraps in each. */
const NARROW = 1000;
const MOST_ROWS = 500;
const KINDS = { create: "new file", change: "changed", delete: "deleted" } as const;

interface DiffViewProps {
  change: ShownChange;
  /** The file is named above. */
  named?: boolean;
  host: Host;
  /** The question it belongs to. */
  approvalId?: string;
}

export function DiffView({ change, named = false, host, approvalId }: DiffViewProps) {
  const box = useRef<HTMLElement>(null);
  const narrow = useNarrow(box);
  const [split, setSplit] = useState(() => host.recall("diff") !== "unified");
  const before = change.before ?? null;
  const after = change.after ?? null;
  // A side with nothing on it says nothing.
  const twoSided = change.kind === "change";
  const choose = (wanted: boolean) => {
    setSplit(wanted);
    host.remember("diff", wanted ? "split" : "unified");
  };
  const found = compared(change);
  const outside = useOutside(host, approvalId);
  const title = `${visible(change.path)} (${KINDS[change.kind]})`;
  return (
    <section className="card-diff" ref={box} aria-label={`Change of ${title}`}>
      <header className="card-diff-head">
        {!named && (
          <>
            <FileName path={change.path} host={host} gone={change.kind === "create"} />
            <span className="card-aside">{KINDS[change.kind]}</span>
            {found && <Counts added={found.added} removed={found.removed} />}
          </>
        )}
        <span className="card-spring" />
        {host.showDiff && found && (
          <button type="button" onClick={() => host.showDiff?.(title, before ?? "", after ?? "", approvalId ?? null)}>
            {outside ? "Show diff" : "Open diff"}
          </button>
        )}
        {found && !outside && twoSided && !narrow && (
          // biome-ignore lint/a11y/useSemanticElements: two buttons are no set of fields
          <span className="card-switch" role="group" aria-label="How the difference is shown">
            <button type="button" aria-pressed={split} onClick={() => choose(true)}>
              Side by side
            </button>
            <button type="button" aria-pressed={!split} onClick={() => choose(false)}>
              Unified
            </button>
          </span>
        )}
      </header>
      {change.note && <p className="card-told">{visible(change.note)}</p>}
      {change.unshown && <p className="card-told">{visible(change.unshown)}</p>}
      {found?.note && <p className="card-told">{found.note}</p>}
      {outside && <p className="card-aside">The difference is open in the editor.</p>}
      {found && !outside && <Rows found={found} split={split && twoSided && !narrow} path={visible(change.path)} />}
      {!found && !change.note && !change.unshown && <p className="card-told">There is no text to show.</p>}
    </section>
  );
}

const NEVER = () => () => {};

/** Whether it is open outside the chat: two of them side by side would have to be compared. */
function useOutside({ shownOutside }: Host, approvalId: string | undefined): boolean {
  const isOpen = () => approvalId !== undefined && (shownOutside?.has(approvalId) ?? false);
  return useSyncExternalStore(shownOutside?.subscribe ?? NEVER, isOpen);
}

/** How many lines come and go. A side with none is left out. */
export function Counts({ added, removed }: { added: number; removed: number }) {
  return (
    <span className="card-counts">
      <span aria-hidden="true">
        {added > 0 && <span className="card-plus">+{thousands(added)}</span>}{" "}
        {removed > 0 && <span className="card-minus">−{thousands(removed)}</span>}
      </span>
      <span className="card-said">
        {counted(added, "line")} added, {counted(removed, "line")} removed
      </span>
    </span>
  );
}

/** Of one change it is asked for in several places, and may take a while. */
const known = new WeakMap<ShownChange, Difference | null>();

/** What changes, line by line; null where a side is not known. */
export function compared(change: ShownChange): Difference | null {
  const found = known.get(change);
  if (found !== undefined) return found;
  const made = compare(change);
  known.set(change, made);
  return made;
}

function compare(change: ShownChange): Difference | null {
  const before = change.before ?? null;
  const after = change.after ?? null;
  const shows = (change.kind === "create" || before !== null) && (change.kind === "delete" || after !== null);
  return shows ? difference(before ?? "", after ?? "") : null;
}

function Rows({ found, split, path }: { found: ReturnType<typeof difference>; split: boolean; path: string }) {
  const [opened, setOpened] = useState<ReadonlySet<number>>(new Set());
  const [from, setFrom] = useState(0);
  const all = useMemo(() => {
    const rows: (Row | Folding)[] = [];
    found.runs.forEach((run, index) => {
      if (run.folded && !opened.has(index)) rows.push({ kind: "folded", run: index, count: run.rows.length });
      else for (const row of run.rows) rows.push(row);
    });
    return rows;
  }, [found, opened]);
  if (found.added + found.removed === 0) return <p className="card-told">Its text stays as it is.</p>;
  const shown = all.slice(from, from + MOST_ROWS);
  return (
    <>
      <DiffTable
        key={from}
        rows={shown}
        split={split}
        label={`Difference of ${path}`}
        unfold={(run) => setOpened(new Set([...opened, run]))}
      />
      <Pager total={all.length} from={from} size={MOST_ROWS} page={MOST_ROWS} noun="row" move={setFrom} />
    </>
  );
}

/** Whether there is no room for two sides. */
function useNarrow(box: RefObject<HTMLElement | null>): boolean {
  const [narrow, setNarrow] = useState(() => window.innerWidth < NARROW);
  useEffect(() => {
    const element = box.current;
    if (!element || typeof ResizeObserver === "undefined") return;
    const watching = new ResizeObserver(([entry]) => {
      // Without a width it is not on the screen yet, and nothing is known.
      if (entry && entry.contentRect.width > 0) setNarrow(entry.contentRect.width < NARROW);
    });
    watching.observe(element);
    return () => watching.disconnect();
  }, [box]);
  return narrow;
}
