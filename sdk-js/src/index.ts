// Lets an agent in JavaScript act on a user's own machine, with the user's approval.

export { CATALOGUE } from "./catalogue.js";
export type { ConnectionOptions } from "./connection.js";
export * from "./errors.js";
export { type CallOptions, hasEnded, Machine, type MachineOptions } from "./machine.js";
export type {
  AgentMode,
  ErrorType,
  ExecuteCommandResult,
  ListDirectoryResult,
  ReadFileResult,
  ResponseStatus,
  SearchFilesResult,
  SearchWebResult,
  ToolCatalogue,
  ToolResponse,
  WriteFileResult,
} from "./protocol.js";
export type { ToolName } from "./shown.js";
