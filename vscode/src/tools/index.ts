// The tools of this client: what runs on the user's machine, in plain Node. `ToolHandler` takes the server's events;
// `Workspace` is one folder with the tools on it; the rest are their parts, and the small interfaces the editor fills in.

export { ApprovalDesk, type PastApproval } from "./approvals.js";
export { CommandExecutor, type CommandOptions, type CommandParams } from "./CommandExecutor.js";
export * from "./errors.js";
export { FileSystemExecutor, type ReadParams, type WriteParams } from "./FileSystemExecutor.js";
export { Journal } from "./journal.js";
export type { Link } from "./link.js";
export type { ListParams } from "./listing.js";
export { FileMemory } from "./memory.js";
export { type Opened, PathValidator } from "./PathValidator.js";
export {
  type Answer,
  type Clock,
  DEFAULT_SETTINGS,
  type Fields,
  type Log,
  type Memory,
  NO_LOG,
  type Prompt,
  type Question,
  SYSTEM_CLOCK,
  type Timer,
  type ToolSettings,
} from "./ports.js";
export type { SearchParams } from "./ripgrep.js";
export { SearchExecutor } from "./SearchExecutor.js";
export type { Isolation, Sandbox } from "./sandbox.js";
export { type ActiveExecution, type HandlerParts, ToolHandler } from "./ToolHandler.js";
export { type AnyResult, Workspace, type WorkspaceOptions, workspaceFolder } from "./Workspace.js";
