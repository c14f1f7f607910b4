// Where the person is, as a value of the app. In a browser tab it is the address after `#`, so that back, forward and
// reload work; inside another page or an editor the address is not ours, and it is only remembered.

import { useCallback, useEffect, useRef, useState } from "react";
import type { Host } from "../host";
import { type Route, readRoute, routeHash } from "./route";

export interface Routing {
  route: Route;
  go(route: Route): void;
  /** Says where we are without going there: nothing is added to the way back. */
  amend(route: Route): void;
}

/** The route of the address; null when it names none, and the app chooses. */
export function wantedRoute(host: Host): Route | null {
  if (host.kind !== "browser" || !location.hash.startsWith("#/")) return null;
  return readRoute(location.hash);
}

export function useRouting(host: Host, moved: (route: Route) => void): Routing {
  const inAddress = host.kind === "browser";
  const [route, setRoute] = useState<Route>(() => wantedRoute(host) ?? { page: "chat", session: null });
  const tell = useRef(moved);
  tell.current = moved;

  useEffect(() => {
    if (!inAddress) return;
    const changed = () => {
      const next = readRoute(location.hash);
      setRoute(next);
      tell.current(next);
    };
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, [inAddress]);

  const go = useCallback(
    (next: Route) => {
      if (inAddress && location.hash !== routeHash(next)) {
        location.hash = routeHash(next); // the event that follows does the rest
        return;
      }
      setRoute(next);
      tell.current(next);
    },
    [inAddress],
  );
  const amend = useCallback(
    (next: Route) => {
      if (inAddress) history.replaceState(null, "", routeHash(next));
      setRoute(next);
    },
    [inAddress],
  );
  return { route, go, amend };
}
