// What a call left behind, as the card shows it: lines that stay in sight, and all of it when the card is open.

import type { Host } from "../host";
import { oneLine } from "../text/visible";
import { thousands } from "../text/words";
import {
  bare,
  changedCount,
  changedFiles,
  changedLine,
  isolationFacts,
  isolationLine,
  quoted,
  warnings,
  weaknesses,
} from "./effects";
import { type Fields, fieldsOf } from "./reading";

/** The lines that stay in sight while the card is closed. */
export function EffectLines({ result }: { result: Fields }) {
  const changed = changedLine(result);
  const isolation = isolationLine(result);
  const told = warnings(result);
  if (!changed && !isolation && told.length === 0) return null;
  return (
    <div className="card-effects">
      {changed && <div className="card-changed">{changed}</div>}
      {told.map((warning, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: they never change
        <div key={index} className="card-caution">
          Warning: {warning}
        </div>
      ))}
      {isolation && (
        <div className={bare(fieldsOf(result.isolation)) ? "card-caution" : "card-weaker"}>{isolation}</div>
      )}
    </div>
  );
}

/** All of it. */
export function EffectDetails({ result, host }: { result: Fields; host: Host }) {
  const files = changedFiles(result);
  const told = weaknesses(result);
  const facts = isolationFacts(result);
  const left = changedCount(result) - files.length;
  return (
    <>
      {files.length > 0 && (
        <section className="card-part">
          <p className="card-part-title">Changed files</p>
          <ul className="card-files">
            {files.map(({ path, change }) => (
              <li key={path}>
                <span className="card-change">{change}</span>{" "}
                <FileName path={path} host={host} gone={change === "deleted"} />
              </li>
            ))}
            {left > 0 && <li>… and {thousands(left)} more</li>}
          </ul>
        </section>
      )}
      {(told.length > 0 || facts) && (
        <section className="card-part">
          <p className="card-part-title">Isolation</p>
          {facts && <p className="card-aside">It was {facts}.</p>}
          {told.map((each, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: they never change
            <p key={index}>{each}</p>
          ))}
        </section>
      )}
    </>
  );
}

/** A path; a way to the file where the host has one. */
export function FileName({
  path,
  host,
  line,
  gone = false,
}: {
  path: string;
  host: Host;
  line?: number;
  gone?: boolean;
}) {
  if (gone || !host.openFile) return <bdi className="card-path">{quoted(path)}</bdi>;
  return (
    <button
      type="button"
      className="card-path card-open"
      title={`Open ${oneLine(path)}`}
      onClick={() => host.openFile?.(path, line)}
    >
      <bdi>{quoted(path)}</bdi>
    </button>
  );
}
