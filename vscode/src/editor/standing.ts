// Where the extension stands, and the words for it: in the view when there is no chat to show, and in the status bar. The
// words say what happened and what to do; nothing is done here.

import type { Action, Picture, Place } from "../../../ui/src/vscode_messages.js";
import { isLoopback } from "../host/address.js";

export type Standing =
  | { readonly at: "no-folder" | "virtual" | "unchosen" | "bad-address" | "disconnected" | "connecting" }
  | { readonly at: "signed-out"; readonly why: string | null }
  | { readonly at: "unreachable"; readonly origin: string; readonly status: number }
  | { readonly at: "refused" | "unproven" | "no-engine"; readonly why: string }
  | { readonly at: "connected"; readonly projectId: string; readonly folder: string };

const SIGN_IN: Action = { command: "byleave.signIn", label: "Sign in" };
const START: Action = { command: "byleave.startServer", label: "Start a local server" };
const CONNECT: Action = { command: "byleave.connect", label: "Connect this folder" };
const SETTINGS: Action = { command: "byleave.openSettings", label: "Open the settings" };

export function placeOf(standing: Standing): Place {
  if (standing.at === "connected") return { state: "ready", projectId: standing.projectId };
  const [title, text, actions] = words(standing);
  return { state: "away", picture: PICTURES[standing.at], title, text, busy: standing.at === "connecting", actions };
}

const PICTURES: Record<Exclude<Standing["at"], "connected">, Picture> = {
  "no-folder": "folder",
  virtual: "folder",
  unchosen: "folder",
  "bad-address": "wrench",
  disconnected: "plug",
  connecting: "plug",
  "signed-out": "key",
  unreachable: "server",
  refused: "shield",
  "no-engine": "wrench",
  unproven: "shield",
};

function words(standing: Exclude<Standing, { at: "connected" }>): [string, string, Action[]] {
  switch (standing.at) {
    case "no-folder":
      return [
        "No folder is open",
        "Agents work in one folder and see nothing outside it. Open the folder first.",
        [{ command: "byleave.openFolder", label: "Open a folder" }],
      ];
    case "virtual":
      return [
        "This folder is not on a disk",
        "Byleave runs commands and changes files where they are. It cannot do that in a virtual workspace: open a folder of this machine, or one over SSH, WSL or a container.",
        [{ command: "byleave.openFolder", label: "Open a folder" }],
      ];
    case "unchosen":
      return [
        "Which folder?",
        "This window has several folders. Choose the one agents may work in; they see nothing of the others.",
        [{ command: "byleave.connect", label: "Choose a folder" }],
      ];
    case "bad-address":
      return [
        "The server's address is wrong",
        "The setting byleave.serverUrl must be an address such as http://127.0.0.1:8477, without a path.",
        [SETTINGS],
      ];
    case "disconnected":
      return [
        "Not connected",
        "Agents cannot work in this folder now. Nothing runs here until you connect it.",
        [CONNECT, { command: "byleave.signOut", label: "Sign out" }],
      ];
    case "connecting":
      return ["Connecting…", "Starting the engine, then looking for the server and this folder's project.", []];
    case "signed-out":
      return [
        "Sign in to Byleave",
        standing.why ??
          "Paste a sign-in link (run byleave link to get one) or a token of your server. Or start a server on this machine.",
        [SIGN_IN, START],
      ];
    case "unreachable":
      return [
        "The server does not answer",
        `${silence(standing.origin, standing.status)} It is tried again by itself.`,
        [{ command: "byleave.connect", label: "Try again now" }, START, SETTINGS],
      ];
    case "refused":
      return ["The server refused", standing.why, [CONNECT, SIGN_IN]];
    case "no-engine":
      return [
        "No engine",
        standing.why,
        [
          { command: "byleave.connect", label: "Try again" },
          SETTINGS,
          { command: "byleave.showLog", label: "Show the log" },
        ],
      ];
    case "unproven":
      return ["This may not be your server", standing.why, [CONNECT, SIGN_IN, SETTINGS]];
  }
}

/** Why there is no answer, and what to do. `status` 0: nothing answers at all. */
export function silence(origin: string, status: number): string {
  if (status !== 0)
    return `What answers at ${origin} has a problem of its own (${status}). See its log, or ask who runs it.`;
  if (!isLoopback(origin)) return `Nothing answers at ${origin}. See your network and the address, or ask who runs it.`;
  return `Nothing answers at ${origin}. Start the server with byleave serve or byleave up, or let the editor start one.`;
}

/** What the status bar shows. */
export interface Shown {
  readonly text: string;
  readonly tooltip: string;
  readonly alarm: boolean;
}

export interface Facts {
  readonly waiting: number;
  /** Whether the feed is open. */
  readonly up: boolean;
  readonly trusted: boolean;
  /** What holds commands; null while it is not known, or when nothing executes here. */
  readonly isolation: string | null;
  /** What is weaker than it should be. */
  readonly warnings: readonly string[];
  readonly executes: boolean;
  /** Another client works in the folder. */
  readonly elsewhere: boolean;
}

export function statusOf(standing: Standing, facts: Facts): Shown {
  if (standing.at === "connecting") return shown("$(sync~spin) Byleave", "Byleave is connecting.");
  if (standing.at === "unreachable") {
    const tooltip = `${silence(standing.origin, standing.status)} It is tried again by itself.`;
    return shown("$(warning) Byleave: no server", tooltip);
  }
  if (standing.at === "signed-out") return shown("$(key) Byleave: sign in", "Nobody is signed in to Byleave.");
  if (standing.at !== "connected") {
    return shown("$(circle-slash) Byleave", `${words(standing)[0]}. Nothing runs in this folder.`);
  }
  if (!facts.up)
    return shown("$(sync~spin) Byleave: reconnecting", "The connection was lost. It is tried again by itself.");
  if (facts.waiting > 0) {
    const many = `${facts.waiting} to review`;
    return {
      text: `$(bell-dot) Byleave: ${many}`,
      tooltip: "Nothing runs without your approval.",
      alarm: true,
    };
  }
  if (!facts.trusted) {
    return shown(
      "$(shield) Byleave: not trusted",
      "This folder is not trusted, so nothing is executed in it. The chat works.",
    );
  }
  if (!facts.executes)
    return shown(
      "$(warning) Byleave: not executing",
      "Connected, but nothing can be executed here. Run Byleave: Show the Log to see why, and Byleave: Connect This Folder to try again.",
    );
  if (facts.elsewhere) {
    return shown(
      "$(check) Byleave",
      `Connected. Another Byleave client, such as byleave up, works in ${standing.folder}: calls run there. When it stops, this editor takes over.`,
    );
  }
  if (facts.isolation === "none") {
    return shown(
      "$(unlock) Byleave: not isolated",
      "Connected. Nothing isolates commands here: they run only where the setting byleave.sandbox is none, and every one asks.",
    );
  }
  const held = facts.isolation === null ? "" : ` Commands are held by ${facts.isolation}.`;
  const weaker = facts.warnings.length === 0 ? "" : `\n${facts.warnings.join("\n")}`;
  return shown(
    "$(check) Byleave",
    `Connected: agents may work in ${standing.folder}, as you allow it.${held}${weaker}`,
  );
}

function shown(text: string, tooltip: string): Shown {
  return { text, tooltip, alarm: false };
}
