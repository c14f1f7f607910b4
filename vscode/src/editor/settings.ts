// The extension's settings as values, read anew each time: a change counts from the next use on. Only what the person set
// for this machine counts: a folder's own settings come with it from wherever it does, and have no say.

import * as vscode from "vscode";
import { originOf } from "../host/address.js";

export const DEFAULT_SERVER = "http://127.0.0.1:8477";

export interface Settings {
  /** The server's origin; null when what is written there is no address. */
  readonly origin: string | null;
  readonly serverUrl: string;
  readonly serverCommand: string;
  readonly connectAtStart: boolean;
  readonly notify: boolean;
  readonly openDiffs: boolean;
  readonly sandbox: "auto" | "none";
}

export function readSettings(): Settings {
  const kept = vscode.workspace.getConfiguration("byleave");
  // Also where the editor should let one of a folder through.
  const own = <T>(name: string) => kept.inspect<T>(name)?.globalValue;
  const serverUrl = own<string>("serverUrl") || DEFAULT_SERVER;
  return {
    origin: originOf(serverUrl),
    serverUrl,
    serverCommand: own<string>("serverCommand") || "byleave",
    connectAtStart: own<boolean>("connectAtStart") ?? true,
    notify: own<boolean>("notifications") ?? true,
    openDiffs: own<boolean>("openDiffs") ?? false,
    sandbox: own<string>("sandbox") === "none" ? "none" : "auto",
  };
}

export async function saveServer(origin: string): Promise<void> {
  await vscode.workspace.getConfiguration("byleave").update("serverUrl", origin, vscode.ConfigurationTarget.Global);
}
