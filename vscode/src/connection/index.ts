// The connection to a server: its routes, its feed, and a client's life on both.

export { ServerApi, SignedOut } from "./api.js";
export { connectWorkspace, type WorkspaceConnection } from "./connecting.js";
export { Connection, type ConnectionParts, type ConnectionState } from "./connection.js";
export { isFeedEvent } from "./events.js";
export { type Frame, FrameReader } from "./sse.js";
