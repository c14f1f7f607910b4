// What the extension needs of the client that executes approved calls in a folder: that it runs, how it stands, and that
// it ends. Everything it decides and does is its own.

import type { Access } from "./node_host.js";

export interface ExecutingState {
  /** Whether the server has this machine on its list now. */
  readonly connected: boolean;
  /** What holds its commands; null while it is found out. */
  readonly isolation: string | null;
  /** Why it ended for good, in a sentence; null while it runs or tries again. */
  readonly ended: string | null;
}

export interface Executing {
  readonly state: ExecutingState;
  /** Ends what runs, the whole tree of it. */
  dispose(): Promise<void>;
}

export interface ExecutingOptions {
  readonly access: Access;
  readonly projectId: string;
  /** The folder's own path in the file system. */
  readonly folder: string;
  changed(): void;
}

export type StartExecuting = (options: ExecutingOptions) => Promise<Executing>;
