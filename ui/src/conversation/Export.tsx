// A conversation as a file: Markdown to read, JSON for programs. Where the place cannot save files it is copied.

import type { Session } from "@protocol";
import { ClipboardCopy, Download } from "lucide-react";
import { useState } from "react";
import type { Problem } from "../api";
import { asProblem, Trouble } from "../pages/loading";
import { Sheet } from "../parts/Sheet";
import type { Chat } from "../state/chat";

interface Props {
  session: Session;
  chat: Chat;
  projectId: string;
  close: () => void;
}

interface Document {
  name: string;
  type: string;
  text: string;
}

type Format = "Markdown" | "JSON";

const ABOUT: Record<Format, string> = {
  Markdown: "To read, to share, to put into an issue.",
  JSON: "Every message and call with all its facts, for programs.",
};

export function Export({ session, chat, projectId, close }: Props) {
  const [busy, setBusy] = useState(false);
  const [said, setSaid] = useState("");
  const [problem, setProblem] = useState<Problem | null>(null);
  const made = async (format: Format): Promise<Document> => {
    const text = await chat.api.sessionText(projectId, session.session_id);
    if (format === "Markdown") return { name: text.file_name, type: "text/markdown", text: text.text };
    const whole = await chat.api.exportSession(projectId, session.session_id);
    const name = text.file_name.replace(/\.md$/, ".json");
    return { name, type: "application/json", text: `${JSON.stringify(whole, null, 2)}\n` };
  };
  const act = async (format: Format, use: (made: Document) => Promise<string> | string) => {
    setBusy(true);
    setProblem(null);
    setSaid("");
    try {
      setSaid(await use(await made(format)));
    } catch (error) {
      setProblem(asProblem(error));
    }
    setBusy(false);
  };
  return (
    <Sheet title="Export conversation" close={close}>
      <ul className="ui-rows">
        {(["Markdown", "JSON"] as const).map((format) => (
          <li key={format}>
            <div>
              <strong>{format}</strong>
              <p className="app-muted">{ABOUT[format]}</p>
            </div>
            <div className="app-buttons">
              {chat.host.kind !== "vscode" && (
                <button
                  type="button"
                  className="app-button ui-with-icon"
                  aria-label={`Download as ${format}`}
                  disabled={busy}
                  onClick={() => void act(format, save)}
                >
                  <Download size={15} aria-hidden="true" />
                  Download
                </button>
              )}
              <button
                type="button"
                className="app-button ui-with-icon"
                aria-label={`Copy as ${format}`}
                disabled={busy}
                onClick={() => void act(format, copy)}
              >
                <ClipboardCopy size={15} aria-hidden="true" />
                Copy
              </button>
            </div>
          </li>
        ))}
      </ul>
      <p className="app-muted">Secrets in calls are masked, as in the record. Messages are as they were written.</p>
      <p role="status" className="ui-said">
        {said}
      </p>
      {problem && <Trouble problem={problem} />}
    </Sheet>
  );
}

function save({ name, type, text }: Document): string {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  return `Saved as ${name}.`;
}

async function copy({ text }: Document): Promise<string> {
  await navigator.clipboard.writeText(text);
  return "Copied.";
}
