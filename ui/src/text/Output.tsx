// Output of a command: colours made safe, bounded however much there is, following its end while it grows. It never
// becomes HTML, and nothing in it is obeyed beyond a look.

import { memo, useEffect, useMemo, useRef, useState } from "react";
import type { OutputPiece } from "../state/model";
import "../styles/cards.css";
import { type Look, type OutputLine, Screen } from "./ansi";
import { ends, KEPT_HEAD, KEPT_TAIL, WHOLE } from "./ends";
import { block, Line, long, PAGE_LINES, Pager } from "./Lines";
import { counted, thousands } from "./words";

const FIRST_LINES = 20;
const LAST_LINES = 60;
const NEAR = 24;

interface OutputProps {
  pieces: OutputPiece[];
  /** It still grows: only its beginning and end are looked at. */
  live?: boolean;
  label?: string;
}

/** What a command printed. */
export const Output = memo(function Output({ pieces, live = false, label = "Output" }: OutputProps) {
  const { head, left, tail } = useMemo(() => parsed(pieces, live), [pieces, live]);
  const box = useRef<HTMLPreElement>(null);
  const follows = useRef(true);
  // biome-ignore lint/correctness/useExhaustiveDependencies: it follows when there is more to show
  useEffect(() => {
    const pre = box.current;
    if (live && pre && follows.current) pre.scrollTop = pre.scrollHeight;
  }, [pieces, live]);
  return (
    <div className="text-block">
      <pre
        {...block(label, live)}
        ref={box}
        onScroll={({ currentTarget: pre }) => {
          follows.current = pre.scrollHeight - pre.scrollTop - pre.clientHeight < NEAR;
        }}
      >
        <Ends lines={head} whole={left === 0} />
        {left > 0 && <div className="text-gap">… {thousands(left)} characters are not shown …</div>}
        {left > 0 && <Ends lines={tail} whole={false} />}
      </pre>
    </div>
  );
});

function parsed(pieces: OutputPiece[], live: boolean): { head: OutputLine[]; left: number; tail: OutputLine[] } {
  const kept = live ? ends(pieces, KEPT_HEAD, KEPT_TAIL) : ends(pieces, WHOLE / 2, WHOLE / 2);
  return { head: screened(kept.head), left: kept.left, tail: screened(kept.tail) };
}

function screened(pieces: OutputPiece[]): OutputLine[] {
  const screen = new Screen();
  for (const piece of pieces) screen.feed(piece.text, piece.stream === "stderr");
  const all = screen.end();
  if (all.length > 1 && all[all.length - 1]?.length === 0) all.pop();
  return all;
}

// Many lines are shown by their first and last ones; all of them in pages, when asked for.
function Ends({ lines, whole }: { lines: OutputLine[]; whole: boolean }) {
  const [from, setFrom] = useState<number | null>(null);
  const between = lines.length - FIRST_LINES - LAST_LINES;
  if (from !== null) {
    return (
      <>
        <Some lines={lines.slice(from, from + PAGE_LINES)} from={from} />
        <Pager total={lines.length} from={from} size={PAGE_LINES} move={setFrom} />
      </>
    );
  }
  if (between <= 0) return <Some lines={lines} from={0} />;
  return (
    <>
      <Some lines={lines.slice(0, FIRST_LINES)} from={0} />
      <div className="text-gap">
        <button type="button" className="text-more" onClick={() => setFrom(0)}>
          … {counted(between, "line")} between{whole ? "" : " here"}: show …
        </button>
      </div>
      <Some lines={lines.slice(-LAST_LINES)} from={lines.length - LAST_LINES} />
    </>
  );
}

function Some({ lines, from }: { lines: OutputLine[]; from: number }) {
  return lines.map((line, index) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: a line is known by its place
    <Line key={from + index} number={undefined}>
      {line.map((run, place) => {
        const look = classes(run.look);
        return (
          // biome-ignore lint/suspicious/noArrayIndexKey: a run is known by its place
          <bdi key={place} className={look || undefined}>
            {long(run.text)}
          </bdi>
        );
      })}
    </Line>
  ));
}

function classes({ front, back, bold, underline, err }: Look): string {
  const names: string[] = [];
  if (front) names.push(`ansi-${front}`);
  // Words in the colour of their ground would be hidden.
  if (back && back !== front) names.push(`ansi-on-${back}`);
  if (bold) names.push("ansi-bold");
  if (underline) names.push("ansi-underline");
  if (err) names.push("ansi-err");
  return names.join(" ");
}
