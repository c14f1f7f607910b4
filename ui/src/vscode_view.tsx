// The editor's sidebar: the chat when the extension has a project to show, else why not and what to do about it. The
// words for that are the extension's; here they only get a place.

import { FolderOpen, KeyRound, Plug, ServerOff, ShieldAlert, Wrench } from "lucide-react";
import { useSyncExternalStore } from "react";
import { App } from "./app/App";
import type { VsCodeHost } from "./vscode_host";
import type { Place } from "./vscode_messages";

export function EditorView({ host }: { host: VsCodeHost }) {
  const place = useSyncExternalStore(host.subscribe, host.place);
  if (place === null) return null;
  if (place.state === "ready") return <App key={place.projectId} host={host} projectId={place.projectId} />;
  return <Away place={place} run={(command) => host.run(command)} />;
}

const PICTURES = {
  folder: FolderOpen,
  key: KeyRound,
  plug: Plug,
  server: ServerOff,
  shield: ShieldAlert,
  wrench: Wrench,
};

function Away({ place, run }: { place: Extract<Place, { state: "away" }>; run: (command: string) => void }) {
  const [first, ...others] = place.actions;
  const Picture = PICTURES[place.picture];
  return (
    <main className="vscode-away" aria-busy={place.busy}>
      <Picture className="vscode-picture" size={48} strokeWidth={1.25} aria-hidden="true" />
      <h1>{place.title}</h1>
      {place.text.split("\n").map((line) => (
        <p key={line}>{line}</p>
      ))}
      {first && (
        <button type="button" className="app-button app-button-main" onClick={() => run(first.command)}>
          {first.label}
        </button>
      )}
      {others.map((action) => (
        <button key={action.command} type="button" className="app-button" onClick={() => run(action.command)}>
          {action.label}
        </button>
      ))}
    </main>
  );
}
