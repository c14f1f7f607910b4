// What passes between the chat in the editor's webview and the extension, in both directions. Plain values only: the
// token never does, and neither side trusts the other to have checked anything.

import type { Answer, Frame } from "./host";

/** A thing the person can do from a screen without a chat: a command of the extension by its name. */
export interface Action {
  command: string;
  label: string;
}

/** Where the extension stands: a project to show, or why there is none and what to do. */
export type Place =
  | { state: "ready"; projectId: string }
  | { state: "away"; picture: Picture; title: string; text: string; busy: boolean; actions: Action[] };

/** What a screen without a chat is about. */
export type Picture = "folder" | "key" | "plug" | "server" | "shield" | "wrench";

export type FromChat =
  | { type: "hello" }
  | { type: "request"; id: number; method: "GET" | "POST"; path: string; body?: unknown }
  | { type: "feed"; id: number; path: string; lastEventId: string | null }
  | { type: "unfeed"; id: number }
  | { type: "open-file"; path: string; line: number | null }
  | { type: "show-diff"; title: string; before: string; after: string; approvalId: string | null }
  | { type: "command"; command: string };

export type ToChat =
  | { type: "place"; place: Place }
  | { type: "answer"; id: number; answer: Answer }
  | { type: "unreachable"; id: number }
  | { type: "feed-open"; id: number }
  | { type: "feed-frame"; id: number; frame: Frame }
  | { type: "feed-closed"; id: number; status: number }
  | { type: "show-waiting" }
  /** The questions whose difference is open in the editor. */
  | { type: "open-diffs"; approvalIds: string[] };
