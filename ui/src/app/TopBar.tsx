// The top of every page: what is open, whether the server is there, which machines are connected, and how many questions
// wait, with a way to them.

import { Menu } from "lucide-react";
import { ConversationMenu, type Managed } from "../conversation/ConversationMenu";
import type { Host } from "../host";
import { type AppState, isElsewhere, type Link } from "../state/model";
import { visible } from "../text/visible";
import { Machines } from "./Machines";
import type { Route } from "./route";

interface Props {
  kind: Host["kind"];
  state: AppState;
  route: Route;
  menuOpen: boolean;
  toggleMenu: () => void;
  showWaiting: () => void;
  manage: (managed: Managed) => void;
  stop: () => void;
}

const LINK: Record<Exclude<Link, "signed-out">, string> = {
  connecting: "Connecting…",
  up: "Connected",
  down: "Connection lost. Reconnecting…",
};

export function TopBar({ kind, state, route, menuOpen, toggleMenu, showWaiting, manage, stop }: Props) {
  const { projectId, link } = state;
  const count = state.questions.length;
  return (
    <header className="app-top">
      <button
        type="button"
        className="app-menu-button"
        aria-expanded={menuOpen}
        aria-controls="app-side"
        aria-label={menuOpen ? "Close the menu" : "Open the menu"}
        onClick={toggleMenu}
      >
        <Menu size={18} aria-hidden="true" />
      </button>
      <Title state={state} isPage={route.page !== "chat"} manage={manage} />
      <div className="app-top-facts">
        <span className={`app-link-state app-is-${link === "up" ? "good" : "bad"}`} role="status">
          <span className="app-dot" aria-hidden="true" />
          <span className="app-link-text">{link === "signed-out" ? "" : LINK[link]}</span>
        </span>
        {/* What is not known any more is not said. */}
        {projectId !== null && link !== "down" && (
          <Machines machines={state.machines} projectId={projectId} known={state.machinesKnown} kind={kind} />
        )}
        {route.page !== "chat" && state.runId !== null && (
          <button type="button" className="app-button app-stop" aria-label="Stop the agent" onClick={stop}>
            Stop
          </button>
        )}
        {(count > 0 || link === "up") && (
          <button
            type="button"
            className={count > 0 ? "app-waiting app-waiting-some" : "app-waiting"}
            disabled={count === 0}
            onClick={showWaiting}
          >
            {count === 0 ? "All clear" : `${count} to review`}
          </button>
        )}
      </div>
    </header>
  );
}

function Title({ state, isPage, manage }: { state: AppState; isPage: boolean; manage: Props["manage"] }) {
  const project = state.projects.find((each) => each.project_id === state.projectId)?.name ?? "";
  const session = state.sessions.find((each) => each.session_id === state.sessionId);
  const title = state.sessionId === null ? "New conversation" : session ? visible(session.title) : "Conversation";
  if (isPage) {
    // A page has a heading of its own, and is about the project: no conversation is what is shown.
    return (
      <div className="app-title">
        <p className="app-title-session">
          <bdi>{visible(project)}</bdi>
        </p>
      </div>
    );
  }
  return (
    <div className="app-title">
      <span className="app-title-project">
        <bdi>{visible(project)}</bdi>
        {session && isElsewhere(session.session_id) && " · from outside this chat"}
      </span>
      <div className="app-title-row">
        <h1 className="app-title-session">
          <bdi>{title}</bdi>
        </h1>
        {session && (
          <ConversationMenu
            session={session}
            label="This conversation"
            className="app-close app-title-menu"
            manage={manage}
          />
        )}
      </div>
    </div>
  );
}
