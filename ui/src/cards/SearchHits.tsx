// Hits of a search by file, with the words looked for marked where they are plain words. A pattern is never run here: it
// came from elsewhere, and one can be made that takes for ever.

import { type ReactNode, useState } from "react";
import type { Host } from "../host";
import { Line, long, Pager } from "../text/Lines";
import { visible } from "../text/visible";
import { FileName } from "./EffectLines";
import { type Fields, fieldsOf, listOf, numberOf, textOf } from "./reading";

const FIRST_HITS = 100;
const PAGE = 500;
const MOST_MARKS = 20;
const LONGEST_MARKED = 2000;

interface Hit {
  path: string;
  number: number;
  line: string;
}

interface Group {
  path: string;
  hits: Hit[];
}

export function SearchHits({ result, params, host }: { result: Fields; params: Fields; host: Host }) {
  const [from, setFrom] = useState(0);
  const [size, setSize] = useState(FIRST_HITS);
  const hits = listOf(result.matches).map(hitOf);
  if (hits.length === 0) return <p className="card-aside">Nothing was found.</p>;
  const wanted = params.regex === true ? null : textOf(params.pattern);
  return (
    <>
      <div key={from} className="card-hits">
        {grouped(hits.slice(from, from + size)).map((group, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: they never change
          <section key={index} className="card-hit-file">
            <p className="card-part-title">
              <FileName path={group.path} host={host} line={group.hits[0]?.number ?? 1} />
            </p>
            <pre className="text-lines" data-numbered="">
              {group.hits.map((hit, place) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: as above
                <Line key={place} number={hit.number}>
                  {marked(hit.line, wanted, params.case_sensitive !== false)}
                </Line>
              ))}
            </pre>
          </section>
        ))}
      </div>
      <Pager
        total={hits.length}
        from={from}
        size={size}
        page={PAGE}
        noun="hit"
        grow={() => setSize(PAGE)}
        move={(to) => {
          setSize(PAGE);
          setFrom(to);
        }}
      />
      {result.truncated === true && <p className="card-told">There are more: the search stopped at its limit.</p>}
    </>
  );
}

function hitOf(value: unknown): Hit {
  const hit = fieldsOf(value);
  return { path: textOf(hit.path) ?? "", number: numberOf(hit.line_number) ?? 0, line: textOf(hit.line) ?? "" };
}

function grouped(hits: Hit[]): Group[] {
  const groups: Group[] = [];
  for (const hit of hits) {
    const last = groups[groups.length - 1];
    if (last?.path === hit.path) last.hits.push(hit);
    else groups.push({ path: hit.path, hits: [hit] });
  }
  return groups;
}

function marked(line: string, wanted: string | null, exactCase: boolean): ReactNode {
  if (!wanted || line.length > LONGEST_MARKED) return long(line);
  const [where, what] = exactCase ? [line, wanted] : [line.toLowerCase(), wanted.toLowerCase()];
  // Where lower case has another length, places in it are no places in the line.
  if (where.length !== line.length) return long(line);
  const parts: ReactNode[] = [];
  let at = 0;
  for (
    let found = where.indexOf(what);
    found !== -1 && parts.length < 2 * MOST_MARKS;
    found = where.indexOf(what, at)
  ) {
    parts.push(
      visible(line.slice(at, found)),
      <mark key={found}>{visible(line.slice(found, found + what.length))}</mark>,
    );
    at = found + what.length;
  }
  parts.push(visible(line.slice(at)));
  return parts;
}
