// Everything of a question that can wait, once: the rules, the raw parameters, the files it is bound to, the digest.

import type { SeenFile } from "@protocol";
import { ChevronRight } from "lucide-react";
import type { Question } from "../state/model";
import { Lines } from "../text/Lines";
import { oneLine, visible } from "../text/visible";
import { bytes, moment } from "../text/words";
import { promise } from "./asked";
import { quoted } from "./effects";
import { Parameters } from "./Parameters";

interface DetailsProps {
  question: Question;
}

export function Details({ question }: DetailsProps) {
  const { findings, tool_name, tool_params, digest } = question;
  const files: readonly SeenFile[] = question.inspection?.files ?? [];
  const bound = promise(question);
  const elsewhere: Record<string, string> = tool_name === "write_file" ? { content: "shown above" } : {};
  return (
    <details className="card-details">
      <summary>
        <ChevronRight size={14} aria-hidden="true" />
        Details
      </summary>
      <div className="card-details-body">
        {findings.length > 0 && (
          <section className="card-part">
            <p className="card-part-title">Why you are asked</p>
            <ul className="card-why">
              {findings.map((finding, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: they never change
                <li key={index}>
                  <bdi>{visible(finding.reason)}</bdi>{" "}
                  <span className="card-aside">
                    Rule <code className="card-rule-name">{oneLine(finding.rule)}</code>
                    {finding.always_asks && ", asks every time"}
                  </span>
                </li>
              ))}
            </ul>
          </section>
        )}
        <section className="card-part">
          <p className="card-part-title">Raw parameters</p>
          <Parameters toolName={tool_name} params={tool_params} elsewhere={elsewhere} />
        </section>
        {files.map((file) => (
          <Bound key={file.path} file={file} />
        ))}
        {bound && <p className="card-aside">{bound}</p>}
        <p className="card-aside">
          Your answer is bound to exactly this call: digest <code className="card-rule-name">{oneLine(digest)}</code>
        </p>
      </div>
    </details>
  );
}

/** A file that the answer is bound to. What would be replaced is whole here; what would run stands above already. */
function Bound({ file }: { file: SeenFile }) {
  const missing = file.sha256 === "missing";
  const replaced = file.role === "replaces";
  return (
    <section className="card-part">
      <p className="card-part-title">
        {replaced ? "File as it is now: " : "Runs "}
        <bdi className="card-path">{quoted(file.path)}</bdi>
      </p>
      <p className="card-aside">
        {missing ? (
          "It is not there."
        ) : (
          <>
            {typeof file.size === "number" && `${bytes(file.size)}, `}
            {file.modified_at && `changed ${moment(file.modified_at)}, `}
            sha256 <code className="card-rule-name">{oneLine(file.sha256)}</code>
          </>
        )}
      </p>
      {replaced && file.text && <Lines text={file.text} label={`Content of ${oneLine(file.path)}`} />}
    </section>
  );
}
