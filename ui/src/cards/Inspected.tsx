// What will run, as the machine that will run it sees it: the files, their content and digests. The answer is bound to
// exactly this; what could not be looked at is said.

import type { Inspection, SeenFile } from "@protocol";
import { Lines } from "../text/Lines";
import { oneLine, visible } from "../text/visible";
import { bytes, moment } from "../text/words";
import { quoted } from "./effects";

interface InspectedProps {
  inspection: Inspection | null;
  /** A difference shows already what would be replaced: the whole of it is there when asked for. */
  folded?: boolean;
}

export function Inspected({ inspection, folded = false }: InspectedProps) {
  if (!inspection) return null;
  const files: readonly SeenFile[] = inspection.files;
  return (
    <>
      {files.map((file) => (
        <Seen key={file.path} file={file} folded={folded && file.role === "replaces"} />
      ))}
      {inspection.problem && (
        <p className="card-caution">What would run could not be looked at: {visible(inspection.problem)}</p>
      )}
    </>
  );
}

function Seen({ file, folded }: { file: SeenFile; folded: boolean }) {
  const title = (
    <>
      {file.role === "replaces" ? "This will be replaced: " : "This will run: "}
      <bdi className="card-path">{quoted(file.path)}</bdi>
    </>
  );
  if (folded && file.sha256 === "missing") return null; // then there is nothing, and the difference says so
  if (folded) {
    return (
      <details className="card-part card-fold">
        <summary className="card-part-title">{title}</summary>
        <Content file={file} />
      </details>
    );
  }
  return (
    <section className="card-part">
      <p className="card-part-title">{title}</p>
      <Content file={file} />
    </section>
  );
}

function Content({ file }: { file: SeenFile }) {
  const missing = file.sha256 === "missing";
  return (
    <>
      <p className="card-aside">
        {missing ? "It is not there. Should it appear before this runs, nothing runs." : <Facts file={file} />}
      </p>
      {file.text ? <Lines text={file.text} label={`Content of ${oneLine(file.path)}`} /> : <Absent file={file} />}
      {file.shortened && (
        <p className="card-told">
          Only its beginning is here; the whole file is on the machine, and its digest covers all of it.
        </p>
      )}
    </>
  );
}

function Facts({ file }: { file: SeenFile }) {
  return (
    <>
      As read on the machine: {typeof file.size === "number" && `${bytes(file.size)}, `}
      {file.modified_at && `modified ${moment(file.modified_at)}, `}
      <span title={oneLine(file.sha256)}>sha256 {oneLine(file.sha256.slice(0, 12))}…</span>; a change before it runs
      stops it.
    </>
  );
}

function Absent({ file }: { file: SeenFile }) {
  if (file.sha256 === "missing" || file.role === "replaces") return null;
  return <p className="card-told">{file.size === 0 ? "It is empty." : "Its content is not text."}</p>;
}
