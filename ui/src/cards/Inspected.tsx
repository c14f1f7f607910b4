// What will run, as the machine that will run it sees it: each file with all of its text that is known.

import type { SeenFile } from "@protocol";
import type { Question } from "../state/model";
import { Lines } from "../text/Lines";
import { oneLine, visible } from "../text/visible";
import { ago, bytes, moment } from "../text/words";
import { quoted } from "./effects";

export function Inspected({ question }: { question: Question }) {
  const files: readonly SeenFile[] = question.inspection?.files ?? [];
  return files
    .filter((file) => file.role !== "replaces" && file.sha256 !== "missing")
    .map((file) => <Seen key={file.path} file={file} asked={question.created_at} />);
}

/** `asked`: when the question was. */
function Seen({ file, asked }: { file: SeenFile; asked: string }) {
  const modified = file.modified_at ? `changed ${moment(file.modified_at)}` : null;
  const age = file.written_at ? `written by the agent ${ago(file.written_at, Date.parse(asked))}` : modified;
  const facts = [typeof file.size === "number" && bytes(file.size), age].filter(Boolean).join(" · ");
  return (
    <section className="card-part">
      <p className="card-part-title">
        <bdi className="card-path">{quoted(file.path)}</bdi> <span className="card-aside">{facts}</span>
      </p>
      {file.text ? (
        <Lines text={file.text} label={`Content of ${oneLine(file.path)}`} />
      ) : (
        <p className="card-told">
          {file.size === 0 ? "It is empty." : file.note ? visible(file.note) : "Its content is not text."}
        </p>
      )}
      {file.shortened && file.text && (
        <p className="card-told">
          Only its beginning is here. The rest is on the machine; your answer is bound to all of it.
        </p>
      )}
    </section>
  );
}
