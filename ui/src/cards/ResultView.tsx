// What a call gave back, by the kind of its tool. A result is whatever a machine sent: every field is read with care, and
// what does not have the expected shape is shown as it is.

import { useMemo } from "react";
import type { Host } from "../host";
import type { OutputPiece } from "../state/model";
import "../styles/cards.css";
import { Lines } from "../text/Lines";
import { Output } from "../text/Output";
import { SafeLink } from "../text/SafeLink";
import { oneLine, shortened, visible } from "../text/visible";
import { bytes, counted, duration, thousands } from "../text/words";
import { FileName } from "./EffectLines";
import { Listing } from "./Listing";
import { type Fields, fieldsOf, json, listOf, numberOf, textOf } from "./reading";
import { SearchHits } from "./SearchHits";

interface ResultViewProps {
  toolName: string;
  result: Fields | null;
  host: Host;
  /** The call's parameters, where they are at hand: what was looked for is then marked. */
  params?: Fields;
}

export function ResultView({ toolName, result, host, params = {} }: ResultViewProps) {
  if (!result) return null;
  if (toolName === "read_file" && typeof result.content === "string") {
    return <FileText result={result} content={result.content} host={host} path={textOf(params.path)} />;
  }
  if (toolName === "list_directory" && Array.isArray(result.files)) return <Listing result={result} host={host} />;
  if (toolName === "search_files" && Array.isArray(result.matches)) {
    return <SearchHits result={result} params={params} host={host} />;
  }
  if (toolName === "execute_command" && ("stdout" in result || "exit_code" in result)) return <Ran result={result} />;
  if (toolName === "write_file" && typeof result.path === "string") return <Written result={result} host={host} />;
  if (toolName === "search_web" && Array.isArray(result.results)) return <WebHits result={result} />;
  return <Lines text={json(result)} start={null} label="Result" />;
}

/** Of a file that was read; what a person decides by is shown further. */
const FIRST_LINES = 60;

interface FileTextProps {
  result: Fields;
  content: string;
  host: Host;
  path: string | null;
}

function FileText({ result, content, host, path }: FileTextProps) {
  const size = numberOf(result.size);
  const start = numberOf(result.start_line) ?? 1;
  const end = numberOf(result.end_line);
  const total = numberOf(result.total_lines);
  const range = total !== null && end !== null && (start > 1 || end < total);
  const facts = [
    range
      ? `lines ${thousands(start)} to ${thousands(end)} of ${thousands(total)}`
      : total !== null && counted(total, "line"),
    size !== null && bytes(size),
  ].filter(Boolean);
  if (result.encoding === "base64") {
    return (
      <p className="card-aside">
        A picture or a PDF{size === null ? "" : `, ${bytes(size)}`}: the agent has it, it is not shown here.
      </p>
    );
  }
  return (
    <>
      <p className="card-aside">
        {path !== null && <FileName path={path} host={host} line={start} />} {facts.join(", ")}
      </p>
      {content === "" ? (
        <p className="card-aside">It is empty.</p>
      ) : (
        <Lines text={content} start={start} label="Content of the file" first={FIRST_LINES} />
      )}
    </>
  );
}

const SIGNALS: Record<number, string> = {
  1: "HUP",
  2: "INT",
  6: "ABRT",
  9: "KILL",
  11: "SEGV",
  13: "PIPE",
  15: "TERM",
};

/** How a command ended, in words. */
export function ending(result: Fields): string {
  const code = numberOf(result.exit_code);
  const seconds = numberOf(result.execution_time);
  const after = seconds === null ? "" : ` after ${duration(seconds * 1000)}`;
  if (code === null) return `Ended by Byleave${after}: there is no exit code.`;
  if (code >= 0) return `Exit code ${code}${after}.`;
  const name = SIGNALS[-code];
  return `Ended by signal ${-code}${name ? ` (SIG${name})` : ""}${after}.`;
}

function Ran({ result }: { result: Fields }) {
  const stdout = textOf(result.stdout) ?? "";
  const stderr = textOf(result.stderr) ?? "";
  const pieces = useMemo(() => {
    const made: OutputPiece[] = [];
    if (stdout) made.push({ stream: "stdout", text: stdout });
    // Errors begin on a line of their own.
    if (stderr) made.push({ stream: "stderr", text: stdout && !stdout.endsWith("\n") ? `\n${stderr}` : stderr });
    return made;
  }, [stdout, stderr]);
  const failed = numberOf(result.exit_code) !== 0;
  return (
    <>
      {pieces.length > 0 ? <Output pieces={pieces} /> : <p className="card-aside">It printed nothing.</p>}
      {result.truncated === true && (
        <p className="card-told">It printed too much: the middle of its output was left out.</p>
      )}
      <p className={failed ? "card-ending card-bad" : "card-ending"}>{ending(result)}</p>
    </>
  );
}

function Written({ result, host }: { result: Fields; host: Host }) {
  const size = numberOf(result.size);
  return (
    <p>
      <FileName path={String(result.path)} host={host} />
      {size !== null && `: ${bytes(size)} now`}
    </p>
  );
}

const MOST_HITS = 100;

function WebHits({ result }: { result: Fields }) {
  const hits = listOf(result.results).map(fieldsOf);
  if (hits.length === 0) return <p className="card-aside">Nothing was found.</p>;
  return (
    <>
      <ol className="card-web">
        {hits.slice(0, MOST_HITS).map((hit, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: they never change
          <li key={index}>
            <SafeLink href={textOf(hit.url) ?? ""}>
              {shortened(oneLine(textOf(hit.title) || textOf(hit.url) || "untitled"), 200)}
            </SafeLink>
            <p>
              <bdi>{shortened(visible(textOf(hit.snippet) ?? ""), 1000)}</bdi>
            </p>
          </li>
        ))}
      </ol>
      {hits.length > MOST_HITS && <p className="card-aside">… and {thousands(hits.length - MOST_HITS)} more</p>}
    </>
  );
}
