// Signing in: which server, and a token for it, or a one-time link that stands for both. The token is tried before it is
// kept, and what it may do is looked at: an agent's token is never taken, for it must not answer questions. A link that
// somebody else may have opened here is shown to the person first, with its server and its user.

import type { Me } from "@protocol";
import * as vscode from "vscode";
import { oneLine, shortened } from "../../../ui/src/text/visible.js";
import { type Engine, EngineError } from "../engine/engine.js";
import { isLoopback, linkOf, originOf, type SignInLink, tokenProblem } from "../host/address.js";
import { tellEngineProblem } from "./getting_engine.js";
import { notice, plain, sentence } from "./notices.js";
import type { Tokens } from "./secrets.js";
import { readSettings, saveServer } from "./settings.js";
import { silence } from "./standing.js";

const AGAIN = "Sign in";
const UNENCRYPTED = "would go over the network unencrypted. Use https, unless you know that the way is safe.";

/** What signing in needs: where tokens are kept, and who asks servers. */
export interface SignInPorts {
  readonly tokens: Tokens;
  readonly engine: Pick<Engine, "start" | "ask">;
}

/** Asks for a link, or for an address and a token. Whether somebody is signed in afterwards. */
export async function signIn(ports: SignInPorts): Promise<boolean> {
  const typed = await vscode.window.showInputBox({
    title: "Byleave: sign in",
    prompt: 'The server\'s address, or a sign-in link: "byleave link" prints one, and so does "byleave up".',
    value: readSettings().serverUrl,
    ignoreFocusOut: true,
    validateInput: addressRemark,
  });
  if (typed === undefined) return false;
  const link = linkOf(typed);
  if (link !== null) return await takeLink(ports, link);
  const origin = originOf(typed);
  return origin === null ? false : await askToken(ports, origin);
}

async function askToken(ports: SignInPorts, origin: string): Promise<boolean> {
  const typed = await vscode.window.showInputBox({
    title: `Byleave: sign in to ${origin}`,
    prompt: 'A token of the server ("byleave token --user NAME" prints one there), or a sign-in link.',
    password: true,
    ignoreFocusOut: true,
    validateInput: (text) => (linkOf(text) === null ? tokenProblem(text.trim()) : linkProblem(text, origin)),
  });
  if (typed === undefined) return false;
  const link = linkOf(typed);
  if (link === null) return await takeToken(ports, origin, typed.trim());
  return link.origin === origin ? await takeLink(ports, link) : false;
}

/** Tries a token, and keeps it when it is good for the editor. */
export async function takeToken({ engine, tokens }: SignInPorts, origin: string, token: string): Promise<boolean> {
  if (!(await started(engine))) return false;
  try {
    const { body, status } = await engine.ask("server/try", { server_url: origin, token });
    const told = (body ?? {}) as { detail?: unknown; hint?: unknown };
    const words = sentence({
      message: String(told.detail ?? ""),
      hint: typeof told.hint === "string" ? told.hint : null,
    });
    if (status === 401) return tell(`The server did not take the token: ${words}`);
    if (status !== 200) return tell(told.detail === undefined ? silence(origin, status) : words);
    const problem = unfit(body as Me | null);
    if (problem !== null) return tell(problem);
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    return tell(error.kind === "UnreachableError" ? silence(origin, 0) : sentence(error));
  }
  await saveServer(origin);
  await tokens.keep(origin, token);
  return true;
}

/** Whether there is an engine to ask; when there is none, the person was told. */
async function started(engine: Pick<Engine, "start">): Promise<boolean> {
  try {
    await engine.start();
    return true;
  } catch (error) {
    void tellEngineProblem(error);
    return false;
  }
}

/** Exchanges a link for a token. `agree` is asked with the user's name before the token is kept. */
export async function takeLink(
  ports: SignInPorts,
  { code, origin }: SignInLink,
  agree: (user: string) => Promise<boolean> = async () => true,
): Promise<boolean> {
  if (!(await started(ports.engine))) return false;
  try {
    const { token, user_id } = await ports.engine.ask("server/exchange", { server_url: origin, code });
    const user = shortened(oneLine(user_id), 200);
    if (!(await agree(user)) || !(await takeToken(ports, origin, token))) return false;
    void vscode.window.showInformationMessage(notice(`Byleave: signed in to ${origin} as ${user}.`));
    return true;
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    return tell(shortened(sentence(error), 500));
  }
}

/**
 * Links that were opened outside: `vscode://byleave.byleave/signin?link=…`. Any web page can have one opened, so nothing is
 * sent before the person has agreed to the server, and nothing is kept before they have agreed to the user.
 */
export class OpenedLinks implements vscode.UriHandler {
  #busy = false;

  constructor(
    private readonly ports: SignInPorts,
    private readonly signedIn: () => Promise<void>,
  ) {}

  async handleUri(uri: vscode.Uri): Promise<void> {
    // One at a time: a page that opens many must not bury the person in dialogs.
    if (this.#busy) return;
    this.#busy = true;
    try {
      if (await this.#take(uri)) await this.signedIn();
    } finally {
      this.#busy = false;
    }
  }

  async #take(uri: vscode.Uri): Promise<boolean> {
    const link = uri.path === "/signin" ? linkOf(new URLSearchParams(uri.query).get("link") ?? "") : null;
    if (link === null) {
      return tell('The link that was opened is no sign-in link. Run "byleave link", and paste what it prints.');
    }
    if (!(await agreed(`Sign in to the server ${link.origin}?`, serverDetail(link.origin)))) return false;
    return await takeLink(this.ports, link, (user) =>
      agreed(
        `Sign in to ${link.origin} as ${user}?`,
        "What you write, and what agents do in your folder, would be seen by whoever this is. Go on only if it is you.",
      ),
    );
  }
}

/** Says why nobody was signed in. With a button the editor shows all of it; without one, a line. */
function tell(words: string): false {
  void vscode.window.showErrorMessage(notice(`Byleave: ${plain(words)}`), AGAIN).then((said) => {
    if (said === AGAIN) void vscode.commands.executeCommand("byleave.signIn");
  });
  return false;
}

function serverDetail(origin: string): string {
  const now = readSettings().origin;
  const other = now === null || now === origin ? "" : ` The editor uses ${now} now, and would change to this one.`;
  const open = origin.startsWith("http:") && !isLoopback(origin) ? ` The sign-in ${UNENCRYPTED}` : "";
  return `A link opened from outside the editor asks for this. Agents of that server could then read the folder you connect, and ask to change it.${other}${open} Go on only if you asked for this link yourself and this is your server.`;
}

/** The first button has the focus: it is never the one that agrees. */
async function agreed(question: string, detail: string): Promise<boolean> {
  const options = { modal: true, detail };
  return (await vscode.window.showWarningMessage(question, options, "Do not sign in", "Sign in")) === "Sign in";
}

export function addressRemark(text: string): string | vscode.InputBoxValidationMessage | null {
  const link = linkOf(text);
  const origin = link === null ? originOf(text) : link.origin;
  if (origin === null) {
    return "Write it as https://byleave.example.com or http://127.0.0.1:8477, without a path; or paste a whole sign-in link.";
  }
  if (origin.startsWith("http:") && !isLoopback(origin)) {
    const message = `${link === null ? "The token" : "The sign-in"} ${UNENCRYPTED}`;
    return { message, severity: vscode.InputBoxValidationSeverity.Warning };
  }
  return null;
}

function linkProblem(text: string, origin: string): string | null {
  const other = linkOf(text)?.origin;
  return other === origin ? null : `This link is for ${other}. Begin again, and paste it instead of the address.`;
}

/** Why a token cannot be used by the editor; null when it can. */
export function unfit(me: Me | null): string | null {
  // A proxy's page, or another program.
  if (!Array.isArray(me?.scopes)) return "What answers there is no Byleave server. Check the address.";
  if (me.scopes.includes("agent")) return "This is an agent's token. The editor answers questions, which no agent may.";
  const missing = (["chat", "approve", "execute"] as const).filter((scope) => !me.scopes.includes(scope));
  if (missing.length === 0) return null;
  return `This token lacks the scope ${missing.join(", ")}. "byleave token --user NAME" makes one that has all of them.`;
}
