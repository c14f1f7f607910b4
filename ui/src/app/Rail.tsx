// The side of the page: where one can go, which project and which conversations there are, and what belongs to this
// browser. On a narrow screen it is a menu.

import { type MouseEvent, type ReactNode, useState } from "react";
import type { Api } from "../api";
import type { Alerts, Host } from "../host";
import type { AppState } from "../state/model";
import { visible } from "../text/visible";
import { DeviceLink } from "./DeviceLink";
import { type PageName, type Route, routeHash } from "./route";

interface Props {
  state: AppState;
  route: Route;
  api: Api;
  host: Host;
  now: number;
  go: (route: Route) => void;
  openProject: (projectId: string) => void;
  signOut: () => void;
  complain: (error: unknown) => void;
}

const PAGES: [Exclude<PageName, "chat">, string][] = [
  ["sessions", "Sessions"],
  ["history", "History"],
  ["grants", "Grants"],
  ["policy", "Policy"],
  ["audit", "Audit"],
  ["agents", "Agents"],
];
const RECENT = 8;

export function routeOf(page: Exclude<PageName, "chat">): Route {
  return page === "history" ? { page, tool: null } : { page };
}

export function Rail({ state, route, api, host, now, go, openProject, signOut, complain }: Props) {
  const { projects, projectId, sessionId } = state;
  const active = state.grants.filter((grant) => grant.status === "active" && Date.parse(grant.expires_at) > now).length;
  return (
    <div className="app-rail">
      <p className="app-brand">
        <span className="app-mark" aria-hidden="true" />
        Byleave
      </p>
      <label className="app-project">
        <span>Project</span>
        <select value={projectId ?? ""} onChange={(event) => openProject(event.target.value)} autoComplete="off">
          {projects.map((project) => (
            <option key={project.project_id} value={project.project_id}>
              {visible(project.name)}
            </option>
          ))}
        </select>
      </label>
      <button type="button" className="app-button app-new" onClick={() => go({ page: "chat", session: null })}>
        New conversation
      </button>
      <nav aria-label="Pages">
        <ul className="app-nav">
          <NavLink to={{ page: "chat", session: sessionId }} current={route.page === "chat"} go={go}>
            Chat
          </NavLink>
          {PAGES.map(([page, name]) => (
            <NavLink key={page} to={routeOf(page)} current={route.page === page} go={go}>
              {name}
              {page === "grants" && active > 0 && <span className="app-count">{active}</span>}
            </NavLink>
          ))}
        </ul>
      </nav>
      <Recent state={state} current={route.page === "chat" ? sessionId : null} go={go} />
      <div className="app-rail-foot">
        {host.alerts && <AlertSwitches alerts={host.alerts} />}
        {host.kind === "browser" && <DeviceLink api={api} complain={complain} />}
        {host.signOut && (
          <button type="button" className="app-plain" onClick={signOut}>
            Sign out{state.me && ` ${visible(state.me.user_id)}`}
          </button>
        )}
      </div>
    </div>
  );
}

function NavLink({ to, current, go, children }: LinkProps) {
  return (
    <li>
      <a
        href={routeHash(to)}
        aria-current={current ? "page" : undefined}
        onClick={(event) => plainClick(event, () => go(to))}
      >
        {children}
      </a>
    </li>
  );
}

interface LinkProps {
  to: Route;
  current: boolean;
  go: (route: Route) => void;
  children: ReactNode;
}

/** A click with a key held, or of another button, is the browser's business: a new tab. */
function plainClick(event: MouseEvent, act: () => void): void {
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  act();
}

function Recent({ state, current, go }: { state: AppState; current: string | null; go: (route: Route) => void }) {
  const waiting = new Set(state.questions.map((question) => question.session_id));
  // Where something waits comes first: it must not hide below the others.
  const ordered = [...state.sessions].sort(
    (one, other) => Number(waiting.has(other.session_id)) - Number(waiting.has(one.session_id)),
  );
  if (ordered.length === 0) return null;
  return (
    <nav aria-label="Recent conversations" className="app-recent">
      <p className="app-label">Recent</p>
      <ul>
        {ordered.slice(0, RECENT).map((session) => (
          <NavLink
            key={session.session_id}
            to={{ page: "chat", session: session.session_id }}
            current={session.session_id === current}
            go={go}
          >
            <bdi className="app-recent-title">{visible(session.title) || "Without a title"}</bdi>
            {waiting.has(session.session_id) && (
              <span className="app-dot app-dot-waits" role="img" aria-label="A question waits here" />
            )}
          </NavLink>
        ))}
      </ul>
    </nav>
  );
}

function AlertSwitches({ alerts }: { alerts: Alerts }) {
  const [notifies, setNotifies] = useState(() => alerts.notifies());
  const [refusal, setRefusal] = useState(() => alerts.refusal());
  const [sounds, setSounds] = useState(() => alerts.sounds());
  return (
    <fieldset className="app-alerts">
      <legend>When a question waits and you look elsewhere</legend>
      <label>
        <input
          type="checkbox"
          checked={notifies}
          onChange={async (event) => {
            const on = event.target.checked;
            const said = await alerts.setNotifies(on);
            setNotifies(on && said === null);
            setRefusal(said);
          }}
        />
        Show a notification
      </label>
      {refusal !== null && (
        <p className="app-hint" role="alert">
          {refusal}
        </p>
      )}
      <label>
        <input
          type="checkbox"
          checked={sounds}
          onChange={(event) => {
            alerts.setSounds(event.target.checked);
            setSounds(event.target.checked);
          }}
        />
        Play a sound
      </label>
    </fieldset>
  );
}
