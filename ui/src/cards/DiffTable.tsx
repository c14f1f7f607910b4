// The rows of a difference as a table. Signs and hidden words say what colour says; numbers are no text. Lines are shown
// exactly: what would hide becomes an escape or a mark.

import { Fragment, type ReactNode } from "react";
import { long } from "../text/Lines";
import { counted } from "../text/words";
import type { Part, Row, Side } from "./difference";

export interface Folding {
  kind: "folded";
  run: number;
  count: number;
}

interface DiffTableProps {
  rows: (Row | Folding)[];
  split: boolean;
  label: string;
  unfold: (run: number) => void;
}

export function DiffTable({ rows, split, label, unfold }: DiffTableProps) {
  const columns = split ? 4 : 3;
  return (
    // biome-ignore lint/a11y/useSemanticElements: a table is no set of fields
    <div className="card-diff-rows" role="group" aria-label={label}>
      <table className={split ? "card-diff-table card-split" : "card-diff-table card-unified"}>
        <colgroup>
          <col className="card-number" />
          {split && <col />}
          <col className="card-number" />
          <col />
        </colgroup>
        <tbody>
          {rows.map((row) => {
            if (row.kind === "folded") {
              return (
                <tr key={`run ${row.run}`} className="card-folded">
                  <td colSpan={columns}>
                    <button type="button" onClick={() => unfold(row.run)}>
                      Show {counted(row.count, "unchanged line")}
                    </button>
                  </td>
                </tr>
              );
            }
            return split ? <SplitRow key={keyOf(row)} row={row} /> : <UnifiedRows key={keyOf(row)} row={row} />;
          })}
        </tbody>
      </table>
    </div>
  );
}

const keyOf = (row: Row) =>
  `${"before" in row ? row.before.number : ""} ${"after" in row ? row.after.number : ""} ${row.kind}`;

function SplitRow({ row }: { row: Row }) {
  const same = row.kind === "same";
  const [before, after] = sidesOf(row);
  return (
    <tr>
      <Cells side={before} other={after} kind={same ? "same" : "removed"} />
      <Cells side={after} other={before} kind={same ? "same" : "added"} />
    </tr>
  );
}

type Kind = "same" | "removed" | "added";

const sidesOf = (row: Row): [Side | null, Side | null] => [
  "before" in row ? row.before : null,
  "after" in row ? row.after : null,
];

function Cells({ side, other, kind }: { side: Side | null; other: Side | null; kind: Kind }) {
  if (!side) {
    return (
      <>
        <td className="card-number" />
        <td className="card-nothing" />
      </>
    );
  }
  return (
    <>
      <td className="card-number" data-number={side.number} />
      <td className={`card-side card-${kind}`}>
        <Sign kind={kind} />
        <Content side={side} kind={kind} other={other} />
      </td>
    </>
  );
}

function UnifiedRows({ row }: { row: Row }) {
  if (row.kind === "same")
    return <UnifiedRow before={row.before.number} after={row.after.number} side={row.after} kind="same" />;
  const [before, after] = sidesOf(row);
  return (
    <>
      {before && <UnifiedRow before={before.number} side={before} other={after} kind="removed" />}
      {after && <UnifiedRow after={after.number} side={after} other={before} kind="added" />}
    </>
  );
}

interface UnifiedRowProps {
  before?: number;
  after?: number;
  side: Side;
  other?: Side | null;
  kind: Kind;
}

function UnifiedRow({ before, after, side, other = null, kind }: UnifiedRowProps) {
  return (
    <tr>
      <td className="card-number" data-number={before} />
      <td className="card-number" data-number={after} />
      <td className={`card-side card-${kind}`}>
        <Sign kind={kind} />
        <Content side={side} kind={kind} other={other} />
      </td>
    </tr>
  );
}

function Sign({ kind }: { kind: Kind }) {
  if (kind === "same") return null;
  return (
    <span className="card-sign" data-sign={kind === "added" ? "+" : "−"}>
      <span className="card-said">{kind}: </span>
    </span>
  );
}

function Content({ side, kind, other }: { side: Side; kind: Kind; other: Side | null }) {
  const last = side.parts.length - 1;
  // Only where nothing else changes is it news that there is no newline: else the two would look the same.
  const newlineChanges = !side.ended && other?.ended === true && textOf(side) === textOf(other);
  return (
    <>
      {side.parts.map((part, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a part is known by its place
        <Fragment key={index}>
          {kind === "same" ? long(part.text) : <Marked part={part} atEnd={index === last} />}
        </Fragment>
      ))}
      {newlineChanges && <span className="card-noend">no newline at the end</span>}
    </>
  );
}

const textOf = ({ parts }: Side): string => parts.map(({ text }) => text).join("");

const MOST_MARKS = 40;

// In a changed line, tabs, a carriage return and blanks at the end are part of what changes, and would not be seen.
function Marked({ part, atEnd }: { part: Part; atEnd: boolean }) {
  const pieces = part.text.split(atEnd ? /(\t|\r|[ \u00a0]+\r?$)/ : /(\t|\r)/);
  const shown = pieces.length > 2 * MOST_MARKS ? long(part.text) : pieces.map(piece);
  return part.changed ? <mark>{shown}</mark> : shown;
}

// Every second piece is one that would not be seen.
function piece(text: string, index: number): ReactNode {
  if (index % 2 === 0) return <Fragment key={index}>{long(text)}</Fragment>;
  return (
    <span key={index} className="card-blank" title={NAMES[text[0] as string] ?? "blanks"}>
      {text
        .replace(/[ \u00a0]/g, "·")
        .replace("\r", "\\r")
        .replace("\t", "→\t")}
    </span>
  );
}

const NAMES: Record<string, string> = { "\t": "tab", "\r": "carriage return" };
