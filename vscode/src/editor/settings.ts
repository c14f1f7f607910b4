// The extension's settings as values, read anew each time: a change counts from the next use on.

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
  const kept = vscode.workspace.getConfiguration("assent");
  const serverUrl = kept.get<string>("serverUrl") || DEFAULT_SERVER;
  return {
    origin: originOf(serverUrl),
    serverUrl,
    serverCommand: kept.get<string>("serverCommand") || "assent",
    connectAtStart: kept.get<boolean>("connectAtStart") ?? true,
    notify: kept.get<boolean>("notifications") ?? true,
    openDiffs: kept.get<boolean>("openDiffs") ?? false,
    sandbox: kept.get<string>("sandbox") === "none" ? "none" : "auto",
  };
}

export async function saveServer(origin: string): Promise<void> {
  await vscode.workspace.getConfiguration("assent").update("serverUrl", origin, vscode.ConfigurationTarget.Global);
}
