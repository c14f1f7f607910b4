// Who searches the web for agents: an address in the settings, or a key in the editor's secret storage. Read anew for each
// search. Only what the person set for this machine counts, never a folder's own settings: a query, and a key, would go
// where they say.

import * as vscode from "vscode";
import { NO_WEB, type ProviderName, type WebSettings } from "../tools/web.js";

const PROVIDERS: readonly ProviderName[] = ["searxng", "tavily", "brave"];
const KEYED = [
  { label: "Tavily", provider: "tavily" },
  { label: "Brave Search", provider: "brave" },
] as const;

/** What a search needs to know now. */
export async function webSettings(secrets: vscode.SecretStorage): Promise<WebSettings> {
  const kept = vscode.workspace.getConfiguration("byleave");
  const own = <T>(name: string) => kept.inspect<T>(`search.${name}`)?.globalValue;
  return {
    provider: PROVIDERS.find((each) => each === own<string>("provider")) ?? null,
    searxngUrl: own<string>("searxngUrl") || null,
    tavilyUrl: own<string>("tavilyUrl") || NO_WEB.tavilyUrl,
    tavilyKey: (await secrets.get(keyOf("tavily"))) ?? null,
    braveUrl: own<string>("braveUrl") || NO_WEB.braveUrl,
    braveKey: (await secrets.get(keyOf("brave"))) ?? null,
    allowPrivate: own<boolean>("allowPrivate") === true,
  };
}

/** Ask for a key and keep it; an empty one is forgotten. */
export async function setSearchKey(secrets: vscode.SecretStorage): Promise<void> {
  const picked = await vscode.window.showQuickPick([...KEYED], { title: "Byleave: a key for web search" });
  if (picked === undefined) return;
  const typed = await vscode.window.showInputBox({
    title: `Byleave: ${picked.label}`,
    prompt: `Your key for ${picked.label}. It goes there with each search and nowhere else. Leave it empty to forget it.`,
    password: true,
    ignoreFocusOut: true,
    validateInput: keyProblem,
  });
  if (typed === undefined || keyProblem(typed) !== null) return;
  if (typed.trim() === "") await secrets.delete(keyOf(picked.provider));
  else await secrets.store(keyOf(picked.provider), typed.trim());
  await vscode.window.showInformationMessage(
    typed.trim() === ""
      ? `Byleave: the key for ${picked.label} is forgotten.`
      : `Byleave: ${picked.label} can be asked.`,
  );
}

/** Why a text cannot be a key; null when it may be one. */
function keyProblem(text: string): string | null {
  return /^[\x21-\x7e]{0,1000}$/.test(text.trim()) ? null : "This is no key: it holds characters that no key has.";
}

function keyOf(provider: ProviderName): string {
  return `search ${provider}`;
}
