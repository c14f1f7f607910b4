// The whole chat around one `Chat`: the frame, the pages, what is open. It decides where things stand and where the focus
// goes; what they show is theirs.

import { lazy, type MouseEvent, Suspense, useCallback, useEffect, useRef, useState } from "react";
import { headline, headlineText } from "../cards/asked";
import type { Managed } from "../conversation/ConversationMenu";
import type { Host } from "../host";
import { AppHome } from "../parts/home";
import { keepPush } from "../push";
import { Chat } from "../state/chat";
import { useStore } from "../state/store";
import { Announcer } from "./Announcer";
import { Boundary, PartFailed } from "./Boundary";
import { ChatPane } from "./ChatPane";
import { useLinked } from "./linked";
import { Notices } from "./Notices";
import { Rail } from "./Rail";
import type { Wanted } from "./Review";
import { type Route, readRoute } from "./route";
import { useRouting, wantedRoute } from "./routing";
import { SignedOut } from "./SignedOut";
import { TopBar } from "./TopBar";

const Manage = lazy(() => import("../conversation/Manage").then(({ Manage }) => ({ default: Manage })));
const Pages = lazy(() => import("../pages/Pages").then(({ Pages }) => ({ default: Pages })));

export function App({ host, projectId = null }: { host: Host; projectId?: string | null }) {
  const [chat, setChat] = useState<Chat | null>(null);
  useEffect(() => {
    const made = new Chat(host);
    setChat(made);
    const wanted = wantedRoute(host);
    // An address without a place in it, or of a page, opens the newest conversation of the chat.
    void made.start(projectId, wanted?.page === "chat" && !wanted.question ? wanted.session : undefined);
    return () => made.close();
  }, [host, projectId]);
  return <AppHome>{chat && <Frame chat={chat} />}</AppHome>;
}

function Frame({ chat }: { chat: Chat }) {
  const { host, store } = chat;
  const state = useStore(store, (whole) => whole);
  const moved = useCallback(
    (route: Route) => {
      if (route.page !== "chat" || route.question || route.session === store.get().sessionId) return;
      void chat.openSession(route.session);
    },
    [chat, store],
  );
  const { route, go, amend } = useRouting(host, moved);
  const [menuOpen, setMenuOpen] = useState(false);
  useEscape(menuOpen, () => setMenuOpen(false));
  const now = useNow(chat);
  const main = useRef<HTMLElement>(null);
  useFocusOnArrival(main, route.page);

  // A conversation that the page itself opened, or that a first message began, is put into the address.
  const opened = state.sessionId;
  const linked = route.page === "chat" ? route.question : undefined;
  useEffect(() => {
    if (route.page !== "chat" || linked !== undefined || opened === null || route.session === opened) return;
    amend({ page: "chat", session: opened });
  }, [route, linked, opened, amend]);

  // One that was deleted, here or elsewhere, is no place to be.
  const { gone } = state;
  useEffect(() => {
    if (gone !== null && route.page === "chat" && route.session === gone) amend({ page: "chat", session: null });
  }, [route, gone, amend]);

  const { questions } = state;
  useEffect(() => {
    const newest = questions.at(-1);
    host.waiting({
      count: questions.length,
      headline: newest ? headlineText(headline(newest)) : null,
      questions: questions.map(({ id, risk_level }) => ({ id, risk: risk_level })),
    });
  }, [host, questions]);

  const [managed, setManaged] = useState<Managed | null>(null);
  const [visits, setVisits] = useState(0);
  const leave = (next: Route) => {
    setMenuOpen(false);
    if (next.page === "chat" && next.session !== state.sessionId) setVisits((count) => count + 1);
    go(next);
  };
  const [wanted, setWanted] = useState<Wanted>({ id: null, count: 0 });
  const showWaiting = (id: string | null) => {
    leave({ page: "chat", session: state.sessionId });
    setWanted(({ count }) => ({ id, count: count + 1 }));
  };
  useLinked(chat, state, linked, (id) => {
    amend({ page: "chat", session: opened });
    if (id !== null) setWanted(({ count }) => ({ id, count: count + 1 }));
  });
  const userId = state.me?.user_id;
  useEffect(() => {
    // Where it cannot be looked after now, it is at the next start.
    if (host.kind === "browser" && userId !== undefined) void keepPush(host, chat.api).catch(() => {});
  }, [host, chat, userId]);
  const show = useRef(showWaiting);
  show.current = showWaiting;
  useEffect(() => {
    host.onShowWaiting = (id) => show.current(id);
    return () => {
      host.onShowWaiting = null;
    };
  }, [host]);
  if (state.link === "signed-out") return <SignedOut kind={host.kind} />;
  const onPage = route.page !== "chat";
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: links inside lead to places of the app, also where the address is not ours.
    // biome-ignore lint/a11y/useKeyWithClickEvents: a key on a link is a click.
    <div className={menuOpen ? "app-frame app-menu-open" : "app-frame"} onClick={(event) => follow(event, leave)}>
      <aside id="app-side" className="app-side" aria-label="Menu">
        <button type="button" className="app-skip" onClick={() => main.current?.focus()}>
          Skip to the content
        </button>
        <Rail
          state={state}
          route={route}
          api={chat.api}
          host={host}
          now={now}
          go={leave}
          openProject={(id) => {
            setMenuOpen(false);
            if (!onPage) amend({ page: "chat", session: null });
            void chat.openProject(id).catch(chat.complain);
          }}
          signOut={() => void chat.signOut()}
        />
      </aside>
      {menuOpen && <div className="app-shade" aria-hidden="true" onPointerDown={() => setMenuOpen(false)} />}
      <div className="app-body">
        <TopBar
          kind={host.kind}
          state={state}
          route={route}
          menuOpen={menuOpen}
          toggleMenu={() => setMenuOpen((open) => !open)}
          showWaiting={() => showWaiting(null)}
          manage={setManaged}
          stop={() => void chat.stop()}
        />
        <Notices notices={state.notices} dismiss={(id) => store.do({ type: "notice-gone", id })} />
        <main className="app-main" id="app-main" ref={main} tabIndex={-1}>
          <div className={onPage ? "app-chat app-chat-away" : "app-chat"} inert={onPage}>
            <ChatPane
              chat={chat}
              state={state}
              now={now}
              active={!onPage}
              wanted={wanted}
              visits={visits}
              showGrants={() => leave({ page: "grants" })}
            />
          </div>
          {onPage && (
            <div className="app-page">
              <Boundary key={route.page} instead={() => <PartFailed />}>
                <Suspense
                  fallback={
                    <p className="app-loading" role="status">
                      Loading…
                    </p>
                  }
                >
                  <Pages route={route} state={state} api={chat.api} host={host} go={leave} manage={setManaged} />
                </Suspense>
              </Boundary>
            </div>
          )}
        </main>
      </div>
      {managed && state.projectId !== null && (
        <Boundary key={`${managed.what} ${managed.session.session_id}`} instead={() => null}>
          <Suspense fallback={null}>
            <Manage
              managed={managed}
              chat={chat}
              state={state}
              projectId={state.projectId}
              go={leave}
              close={() => setManaged(null)}
            />
          </Suspense>
        </Boundary>
      )}
      <Announcer entries={state.entries} questions={state.questions} loading={state.loading} />
    </div>
  );
}

/** A link to a place of the app goes through the app: an address that is not ours must not change. */
function follow(event: MouseEvent, go: (route: Route) => void): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const link = (event.target as Element).closest("a");
  const href = link?.getAttribute("href");
  if (!href?.startsWith("#/")) return;
  event.preventDefault();
  go(readRoute(href));
}

/** The focus goes to the content of a new page, so that reading goes on there and not where the link was. */
function useFocusOnArrival(main: React.RefObject<HTMLElement | null>, page: string): void {
  const before = useRef(page);
  useEffect(() => {
    if (before.current === page) return;
    before.current = page;
    main.current?.focus({ preventScroll: true });
  }, [page, main]);
}

/** Escape closes the menu, wherever the focus is. */
function useEscape(open: boolean, close: () => void): void {
  const end = useRef(close);
  end.current = close;
  useEffect(() => {
    if (!open) return;
    const pressed = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !event.defaultPrevented) end.current();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, [open]);
}

/** The server's time, a few times a minute: for what ends by itself. */
function useNow(chat: Chat): number {
  const [now, setNow] = useState(chat.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(chat.now()), 15_000);
    return () => clearInterval(timer);
  }, [chat]);
  return now;
}
