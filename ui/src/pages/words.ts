// Names for what the record holds in one word: actors, states, audit actions. It makes words and nothing else; text from
// elsewhere in them is for whoever shows them to make visible.

import type { ExecutionStatus } from "@protocol";

export const TOOLS = [
  "read_file",
  "write_file",
  "execute_command",
  "list_directory",
  "search_files",
  "search_web",
] as const;
export const RISKS = ["LOW", "MEDIUM", "HIGH"] as const;

export const STATES: Record<ExecutionStatus, string> = {
  pending: "starting",
  awaiting_approval: "waits for a decision",
  approved: "allowed, not yet running",
  executing: "running",
  completed: "done",
  rejected: "denied by a person",
  timeout: "nobody answered in time",
  failed: "failed, refused or stopped",
};

const ENDED: ReadonlySet<string> = new Set(["completed", "rejected", "timeout", "failed"]);

export const isEnded = (status: ExecutionStatus): boolean => ENDED.has(status);

/** `person:alice` → you, or alice. */
export function actorWords(actor: string | null, userId: string | null): string {
  if (!actor) return "nobody";
  const at = actor.indexOf(":");
  const kind = at < 0 ? actor : actor.slice(0, at);
  const name = at < 0 ? "" : actor.slice(at + 1);
  if (kind === "person" || kind === "user") return name === userId ? "you" : name || "a person";
  if (kind === "client") return `machine ${name}`;
  if (kind === "server") return "the server";
  return name ? `${kind} ${name}` : kind;
}

/** `grant_revoked` → grant revoked. */
export const actionWords = (action: string): string => action.replaceAll("_", " ");
