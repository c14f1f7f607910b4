// Which machines are connected and what holds the commands there. One without isolation is said as a warning; with none
// connected it says how to connect one.

import type { Machine } from "@protocol";
import type { Host } from "../host";
import { Copy } from "../text/Markdown";
import { visible } from "../text/visible";
import { Popover } from "./Popover";

const HELD: Record<string, string> = {
  bwrap: "Commands can only change files in this workspace (bubblewrap).",
  landlock: "Commands are isolated by Landlock only: files are protected, processes and network less so.",
  seatbelt: "Commands run in the macOS sandbox.",
};

export function isIsolated(machine: Machine): boolean {
  return machine.isolation !== null && machine.isolation !== "none";
}

function means({ isolation }: Machine): string {
  if (isolation === null) return "It did not say how it isolates commands.";
  if (isolation === "none") return "No isolation: a command you allow can do anything your account can.";
  return HELD[isolation] ?? `Commands are isolated by ${visible(isolation)}.`;
}

interface Props {
  machines: Machine[];
  projectId: string;
  known: boolean;
  kind: Host["kind"];
}

export function Machines({ machines, projectId, known, kind }: Props) {
  const bare = machines.some((machine) => !isIsolated(machine));
  const state = machines.length === 0 ? (known ? "none" : "wait") : bare ? "bare" : "good";
  const held =
    state === "good" ? [...new Set(machines.map((machine) => visible(machine.isolation ?? "")))].join(", ") : null;
  const many = machines.length > 1 ? `${machines.length} machines, ` : "";
  const lead = held === null ? summary(machines, state) : "isolated";
  const by = held === null ? "" : `: ${held}`;
  return (
    <Popover
      label={
        <>
          <span className="app-dot" aria-hidden="true" />
          <span>
            {/* Where there is little room, a good state is said in one word, and a bad one whole. */}
            <span className={held === null ? undefined : "app-wide"}>{many}</span>
            {lead}
            <span className="app-wide">{by}</span>
          </span>
        </>
      }
      name={`Machines: ${many}${lead}${by}`}
      title="Machines"
      className={`app-machines app-is-${state}`}
    >
      {() => (
        <>
          <h2>Machines</h2>
          {machines.length === 0 && <HowToConnect projectId={projectId} kind={kind} />}
          <ul className="app-machine-list">
            {machines.map((machine) => (
              <li key={machine.client_id}>
                <strong>
                  <bdi>{machine.workspace === null ? "Directory not known" : visible(machine.workspace)}</bdi>
                </strong>
                {machine.next && machines.length > 1 && <span className="app-tag">next call runs here</span>}
                <bdi className="app-path app-muted">{visible(machine.client_id)}</bdi>
                <p className={isIsolated(machine) ? "app-muted" : "app-warning-text"}>{means(machine)}</p>
              </li>
            ))}
          </ul>
        </>
      )}
    </Popover>
  );
}

function summary(machines: Machine[], state: string): string {
  if (state === "wait") return "looking…";
  if (state === "none") return "no machine";
  return machines.some((machine) => machine.isolation === "none") ? "no isolation" : "isolation unknown";
}

export function HowToConnect({ projectId, kind }: { projectId: string; kind: Host["kind"] }) {
  if (kind === "vscode") {
    return (
      <p>
        No machine is connected, so nothing can run. This editor is one when a folder is open and you trust it: open a
        folder, and choose <strong>Byleave: Connect This Folder</strong> in the command palette.
      </p>
    );
  }
  const command = `byleave connect --project ${visible(projectId)} --workspace DIRECTORY`;
  return (
    <>
      <p>No machine is connected, so nothing can run. On the machine with the files, start:</p>
      <div className="app-copied">
        <pre className="app-command">{command}</pre>
        <Copy text={command} />
      </div>
      <p className="app-muted">
        If you use <code>byleave up</code>: see whether it still runs.
      </p>
    </>
  );
}
