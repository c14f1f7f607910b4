// The side of the page: where one can go, which project and which conversations there are, and what belongs to this
// browser. On a narrow screen it is a menu.

import {
  Bot,
  Folders,
  History as HistoryIcon,
  KeyRound,
  LogOut,
  type LucideIcon,
  MessagesSquare,
  Plus,
  ScrollText,
  Settings as SettingsIcon,
  ShieldCheck,
  Smartphone,
} from "lucide-react";
import { type MouseEvent, type ReactNode, useState } from "react";
import type { Api } from "../api";
import type { Host } from "../host";
import { Choose } from "../parts/Choose";
import type { AppState } from "../state/model";
import { visible } from "../text/visible";
import { Phone } from "./Phone";
import { type PageName, type Route, routeHash } from "./route";
import { hasSettings, Settings } from "./Settings";

interface Props {
  state: AppState;
  route: Route;
  api: Api;
  host: Host;
  now: number;
  go: (route: Route) => void;
  openProject: (projectId: string) => void;
  signOut: () => void;
}

const PAGES: [Exclude<PageName, "chat">, string, LucideIcon][] = [
  ["sessions", "Conversations", Folders],
  ["history", "History", HistoryIcon],
  ["grants", "Grants", KeyRound],
  ["policy", "Policy", ShieldCheck],
  ["audit", "Audit", ScrollText],
  ["agents", "Agents", Bot],
];
const RECENT = 8;

export function routeOf(page: Exclude<PageName, "chat">): Route {
  return page === "history" ? { page, tool: null } : { page };
}

export function Rail({ state, route, api, host, now, go, openProject, signOut }: Props) {
  const { projects, projectId, sessionId } = state;
  const [settings, setSettings] = useState(false);
  const [phone, setPhone] = useState(false);
  const active = state.grants.filter((grant) => grant.status === "active" && Date.parse(grant.expires_at) > now).length;
  return (
    <div className="app-rail">
      <p className="app-brand">
        <span className="app-mark" aria-hidden="true" />
        Byleave
      </p>
      <Choose
        label="Project"
        value={projectId ?? ""}
        choices={projects.map((project) => ({ value: project.project_id, text: visible(project.name) }))}
        choose={openProject}
      />
      <button type="button" className="app-button app-new" onClick={() => go({ page: "chat", session: null })}>
        <Plus size={16} aria-hidden="true" />
        New conversation
      </button>
      <nav aria-label="Pages">
        <ul className="app-nav">
          <NavLink to={{ page: "chat", session: sessionId }} current={route.page === "chat"} go={go}>
            <MessagesSquare size={16} aria-hidden="true" />
            Chat
          </NavLink>
          {PAGES.map(([page, name, Icon]) => (
            <NavLink key={page} to={routeOf(page)} current={route.page === page} go={go}>
              <Icon size={16} aria-hidden="true" />
              {name}
              {page === "grants" && active > 0 && <span className="app-count">{active}</span>}
            </NavLink>
          ))}
        </ul>
      </nav>
      <Recent state={state} current={route.page === "chat" ? sessionId : null} go={go} />
      <div className="app-rail-foot">
        {host.kind === "browser" && (
          <button type="button" className="app-plain" onClick={() => setPhone(true)}>
            <Smartphone size={15} aria-hidden="true" />
            Use your phone
          </button>
        )}
        {hasSettings(host) && (
          <button type="button" className="app-plain" onClick={() => setSettings(true)}>
            <SettingsIcon size={15} aria-hidden="true" />
            Settings
          </button>
        )}
        {host.signOut && (
          <button type="button" className="app-plain" onClick={signOut}>
            <LogOut size={15} aria-hidden="true" />
            Sign out{state.me && ` ${visible(state.me.user_id)}`}
          </button>
        )}
      </div>
      {phone && <Phone api={api} close={() => setPhone(false)} />}
      {settings && <Settings api={api} host={host} close={() => setSettings(false)} />}
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
            <bdi className="app-recent-title">{visible(session.title) || "Untitled"}</bdi>
            {waiting.has(session.session_id) && (
              <span className="app-dot app-dot-waits" role="img" aria-label="Needs review" />
            )}
          </NavLink>
        ))}
      </ul>
    </nav>
  );
}
