// Everything beside the conversation, one page for each route. It only chooses: each page is in its own module, and a page
// of a project is shown when the project is known. Each place is found again where it was left.

import "../styles/pages.css";
import { useLayoutEffect, useRef } from "react";
import { type Route, routeHash } from "../app/route";
import { Agents } from "./Agents";
import { Audit } from "./Audit";
import { Execution } from "./Execution";
import { Grants } from "./Grants";
import { History } from "./History";
import { Waiting } from "./loading";
import { Policy } from "./Policy";
import type { PageProps, ProjectPageProps } from "./props";
import { Sessions } from "./Sessions";

export function Pages({ route, ...props }: PageProps & { route: Route }) {
  const { projectId } = props.state;
  const frame = useRef<HTMLDivElement>(null);
  const left = useRef(new Map<string, number>());
  const place = useRef("");
  const here = routeHash(route);
  useLayoutEffect(() => {
    place.current = here;
    if (frame.current) frame.current.scrollTop = left.current.get(here) ?? 0;
  }, [here]);
  return (
    <div
      className="page-frame"
      ref={frame}
      onScroll={(event) => left.current.set(place.current, event.currentTarget.scrollTop)}
    >
      <div className="page">
        {projectId === null ? (
          <Waiting what="Waiting for the project to be known…" />
        ) : (
          // Another project is another page: nothing of one may stay on screen under the name of the other.
          <Chosen key={projectId} route={route} projectId={projectId} {...props} />
        )}
      </div>
    </div>
  );
}

function Chosen({ route, ...props }: ProjectPageProps & { route: Route }) {
  switch (route.page) {
    case "sessions":
      return <Sessions {...props} />;
    case "history":
      return <Calls toolId={route.tool} {...props} />;
    case "grants":
      return <Grants {...props} />;
    case "policy":
      return <Policy {...props} />;
    case "audit":
      return <Audit {...props} />;
    case "agents":
      return <Agents {...props} />;
    case "chat":
      return null; // the conversation itself is not a page of ours
  }
}

/** The list stays behind the one call that is looked at, with its filters and all that was loaded. */
function Calls({ toolId, ...props }: ProjectPageProps & { toolId: string | null }) {
  const listed = useRef(false);
  listed.current ||= toolId === null;
  return (
    <>
      {listed.current && (
        <div hidden={toolId !== null}>
          <History {...props} away={toolId !== null} />
        </div>
      )}
      {toolId !== null && <Execution key={toolId} toolId={toolId} {...props} />}
    </>
  );
}
