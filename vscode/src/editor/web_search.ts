// Who searches the web for agents: an address in the settings, or a key in the editor's secret storage. Only what the
// person set for this machine counts, never a folder's own settings: a query, and a key, would go where they say.

import type { WorkspaceSettings } from "@protocol";
import * as vscode from "vscode";
import { own } from "./settings.js";

const PROVIDERS: readonly string[] = ["searxng", "tavily", "brave"];
const KEYED = [
  { label: "Tavily", provider: "tavily" },
  { label: "Brave Search", provider: "brave" },
] as const;

/** What the engine needs to know of it. */
export async function searchSettings(secrets: vscode.SecretStorage): Promise<WorkspaceSettings> {
  return {
    search_provider: PROVIDERS.find((each) => each === own<string>("search.provider")) ?? null,
    searxng_url: own<string>("search.searxngUrl") || null,
    tavily_url: own<string>("search.tavilyUrl") || null,
    tavily_api_key: (await secrets.get(keyOf("tavily"))) ?? null,
    brave_url: own<string>("search.braveUrl") || null,
    brave_api_key: (await secrets.get(keyOf("brave"))) ?? null,
    search_allow_private: own<boolean>("search.allowPrivate") ?? null,
  };
}

/** Ask for a key and keep it; an empty one is forgotten. Whether anything changed. */
export async function setSearchKey(secrets: vscode.SecretStorage): Promise<boolean> {
  const picked = await vscode.window.showQuickPick([...KEYED], { title: "Byleave: a key for web search" });
  if (picked === undefined) return false;
  const typed = await vscode.window.showInputBox({
    title: `Byleave: ${picked.label}`,
    prompt: `Your key for ${picked.label}. It goes there with each search and nowhere else. Leave it empty to forget it.`,
    password: true,
    ignoreFocusOut: true,
    validateInput: keyProblem,
  });
  if (typed === undefined || keyProblem(typed) !== null) return false;
  if (typed.trim() === "") await secrets.delete(keyOf(picked.provider));
  else await secrets.store(keyOf(picked.provider), typed.trim());
  void vscode.window.showInformationMessage(
    typed.trim() === ""
      ? `Byleave: the key for ${picked.label} is forgotten.`
      : `Byleave: ${picked.label} can be asked.`,
  );
  return true;
}

/** Why a text cannot be a key; null when it may be one. */
function keyProblem(text: string): string | null {
  return /^[\x21-\x7e]{0,1000}$/.test(text.trim()) ? null : "This is no key: it holds characters that no key has.";
}

function keyOf(provider: string): string {
  return `search ${provider}`;
}
