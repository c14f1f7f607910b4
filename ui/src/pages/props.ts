// What every page is given. Pages read the state and ask the server through `api`; where to go next is the app's business.

import type { Api } from "../api";
import type { Route } from "../app/route";
import type { Managed } from "../conversation/ConversationMenu";
import type { Host } from "../host";
import type { State } from "../state/model";

export interface PageProps {
  state: State;
  api: Api;
  host: Host;
  go: (route: Route) => void;
  /** Opens the dialog of a whole conversation. */
  manage?: (managed: Managed) => void;
}

/** A page of one project, which is known. */
export interface ProjectPageProps extends PageProps {
  projectId: string;
}
