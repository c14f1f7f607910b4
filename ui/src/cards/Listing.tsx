// A directory as a table, a page of rows at a time.

import { useState } from "react";
import type { Host } from "../host";
import { Pager, scrollable } from "../text/Lines";
import { bytes, moment, thousands } from "../text/words";
import { FileName } from "./EffectLines";
import { type Fields, fieldsOf, listOf, numberOf, textOf } from "./reading";

const FIRST_ROWS = 100;
const PAGE = 500;

export function Listing({ result, host }: { result: Fields; host: Host }) {
  const [from, setFrom] = useState(0);
  const [size, setSize] = useState(FIRST_ROWS);
  const files = listOf(result.files);
  const total = Math.max(files.length, numberOf(result.total_count) ?? 0);
  if (files.length === 0) return <p className="card-aside">It is empty.</p>;
  return (
    <>
      <div key={from} className="card-listing" {...scrollable("Listing")}>
        <table>
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Type</th>
              <th scope="col" className="card-right">
                Size
              </th>
              <th scope="col">Modified</th>
            </tr>
          </thead>
          <tbody>
            {files.slice(from, from + size).map((file, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: they never change
              <Entry key={from + index} entry={fieldsOf(file)} host={host} />
            ))}
          </tbody>
        </table>
      </div>
      <Pager
        total={files.length}
        from={from}
        size={size}
        page={PAGE}
        noun="row"
        grow={() => setSize(PAGE)}
        move={(to) => {
          setSize(PAGE);
          setFrom(to);
        }}
      />
      {(result.truncated === true || total > files.length) && (
        <p className="card-told">
          Not all of them are here: the listing was cut at {thousands(files.length)}
          {total > files.length && ` of ${result.at_least === true ? "at least " : ""}${thousands(total)}`}.
        </p>
      )}
    </>
  );
}

function Entry({ entry, host }: { entry: Fields; host: Host }) {
  const path = textOf(entry.path) ?? textOf(entry.name) ?? "";
  const directory = entry.type === "directory";
  const size = numberOf(entry.size);
  const modified = textOf(entry.modified);
  return (
    <tr>
      <td>
        <FileName path={directory ? `${path}/` : path} host={host} gone={directory} />
      </td>
      <td>{directory ? "directory" : "file"}</td>
      <td className="card-right">{directory || size === null ? "" : bytes(size)}</td>
      <td>{modified ? moment(modified) : ""}</td>
    </tr>
  );
}
