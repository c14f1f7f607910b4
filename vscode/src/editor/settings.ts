// The extension's settings as values, read anew each time: a change counts from the next use on. Only what the person set
// for this machine counts: a folder's own settings come with it from wherever it does, and have no say.

import type { WorkspaceSettings } from "@protocol";
import * as vscode from "vscode";
import { originOf } from "../host/address.js";

export const DEFAULT_SERVER = "http://127.0.0.1:8477";

export interface Settings {
  /** The server's origin; null when what is written there is no address. */
  readonly origin: string | null;
  readonly serverUrl: string;
  /** Where the engine is; null: it is found or installed. */
  readonly path: string | null;
  readonly connectAtStart: boolean;
  readonly notify: boolean;
  readonly openDiffs: boolean;
  readonly approvalTimeoutMs: number;
}

export function readSettings(): Settings {
  const serverUrl = own<string>("serverUrl") || DEFAULT_SERVER;
  return {
    origin: originOf(serverUrl),
    serverUrl,
    path: own<string>("path") || null,
    connectAtStart: own<boolean>("connectAtStart") ?? true,
    notify: own<boolean>("notifications") ?? true,
    openDiffs: own<boolean>("openDiffs") ?? false,
    approvalTimeoutMs: amount("approvalTimeoutMs") ?? 300_000,
  };
}

/** What the engine is told of how it may work in the folder; what nobody set is left to it. */
export function workspaceSettings(): WorkspaceSettings {
  const cacheTtlMs = amount("cacheTtlMs");
  return {
    command_timeout_seconds: seconds("commandTimeoutMs"),
    max_file_bytes: amount("fileSizeMaxBytes"),
    concurrency: amount("concurrencyLimit"),
    approval_timeout_seconds: seconds("approvalTimeoutMs"),
    cache_enabled: own<boolean>("enableCaching") ?? null,
    cache_seconds: cacheTtlMs === null ? null : cacheTtlMs / 1000,
    sandbox: own<string>("sandbox") || null,
  };
}

/** Settings that the engine must be told again when they change. */
export const ENGINE_SETTINGS = [
  "commandTimeoutMs",
  "fileSizeMaxBytes",
  "concurrencyLimit",
  "approvalTimeoutMs",
  "enableCaching",
  "cacheTtlMs",
  "sandbox",
  "search",
].map((name) => `byleave.${name}`);

export async function saveServer(origin: string): Promise<void> {
  await vscode.workspace.getConfiguration("byleave").update("serverUrl", origin, vscode.ConfigurationTarget.Global);
}

/** Only the person's own value, also where the editor should let one of a folder through. */
export function own<T>(name: string): T | undefined {
  return vscode.workspace.getConfiguration("byleave").inspect<T>(name)?.globalValue;
}

function amount(name: string): number | null {
  const value = own<unknown>(name);
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? Math.floor(value) : null;
}

function seconds(name: string): number | null {
  const milliseconds = amount(name);
  return milliseconds === null ? null : Math.max(Math.round(milliseconds / 1000), 1);
}
