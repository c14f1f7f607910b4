// Signing in: which server, and a token for it. The token is tried before it is kept, and what it may do is looked at: an
// agent's token is never taken, for it must not answer questions.

import type { Me } from "@protocol";
import * as vscode from "vscode";
import { Api, Problem } from "../../../ui/src/api.js";
import { oneLine } from "../../../ui/src/text/visible.js";
import { isLoopback, originOf, tokenProblem } from "../host/address.js";
import { NodeHost } from "../host/node_host.js";
import { notice } from "./notices.js";
import type { Tokens } from "./secrets.js";
import { readSettings, saveServer } from "./settings.js";

/** Asks for an address and a token. Whether somebody is signed in afterwards. */
export async function signIn(tokens: Tokens): Promise<boolean> {
  const origin = await askAddress();
  if (origin === null) return false;
  const token = await vscode.window.showInputBox({
    title: "Assent: sign in (2 of 2)",
    prompt: "A token of the server. On its machine, `assent token --user NAME` prints one.",
    password: true,
    ignoreFocusOut: true,
    validateInput: (text) => tokenProblem(text.trim()),
  });
  if (token === undefined) return false;
  return await takeToken(tokens, origin, token.trim());
}

/** Tries a token, and keeps it when it is good for the editor. */
export async function takeToken(tokens: Tokens, origin: string, token: string): Promise<boolean> {
  try {
    const me = await new Api(new NodeHost({ origin, token })).me();
    const problem = unfit(me);
    if (problem !== null) {
      await vscode.window.showErrorMessage(problem);
      return false;
    }
  } catch (error) {
    await vscode.window.showErrorMessage(notice(failure(origin, error)));
    return false;
  }
  await saveServer(origin);
  await tokens.keep(origin, token);
  return true;
}

async function askAddress(): Promise<string | null> {
  const typed = await vscode.window.showInputBox({
    title: "Assent: sign in (1 of 2)",
    prompt: "The server's address.",
    value: readSettings().serverUrl,
    ignoreFocusOut: true,
    validateInput: addressRemark,
  });
  return typed === undefined ? null : originOf(typed);
}

export function addressRemark(text: string): string | vscode.InputBoxValidationMessage | null {
  const origin = originOf(text);
  if (origin === null) return "Write it as https://assent.example.com or http://127.0.0.1:8477, without a path.";
  if (origin.startsWith("http:") && !isLoopback(origin)) {
    return {
      message: "The token would go over the network unencrypted. Use https, unless you know that the way is safe.",
      severity: vscode.InputBoxValidationSeverity.Warning,
    };
  }
  return null;
}

/** Why a token cannot be used by the editor; null when it can. */
export function unfit(me: Me): string | null {
  if (me.scopes.includes("agent")) return "This is an agent's token. The editor answers questions, which no agent may.";
  const missing = (["chat", "approve", "execute"] as const).filter((scope) => !me.scopes.includes(scope));
  if (missing.length === 0) return null;
  return `This token lacks the scope ${missing.join(", ")}. \`assent token --user NAME\` makes one that has all of them.`;
}

function failure(origin: string, error: unknown): string {
  if (!(error instanceof Problem)) return oneLine(String(error));
  if (error.status === 0)
    return `Nothing answers at ${origin}. Start the server with \`assent serve\`, or see the address.`;
  if (error.status === 401) return `The server did not take the token: ${oneLine(error.message)}`;
  return oneLine(`${error.message}${error.hint === null ? "" : ` ${error.hint}`}`);
}
