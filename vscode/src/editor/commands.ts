// The commands of the palette, each a sentence or two: what they do lives elsewhere.

import * as vscode from "vscode";
import type { ChatView } from "../webview/view.js";
import type { Connector } from "./connector.js";
import type { Differences } from "./diffs.js";
import type { LocalServer } from "./local_server.js";
import type { ChannelLog } from "./log.js";
import type { OutputTerminal } from "./output.js";
import type { Projects } from "./projects.js";
import { readSettings } from "./settings.js";
import { type SignInPorts, signIn, takeToken } from "./sign_in.js";

export interface CommandPorts {
  readonly connector: Connector;
  readonly view: ChatView;
  readonly signing: SignInPorts;
  readonly differences: Differences;
  readonly projects: Projects;
  readonly local: LocalServer;
  readonly log: ChannelLog;
  readonly output: OutputTerminal;
}

export function registerCommands(ports: CommandPorts): vscode.Disposable[] {
  const { connector, differences, view, signing, local, log, output } = ports;
  const answer = async (allows: boolean, uri?: unknown) => {
    const question = differences.questionOf(uri instanceof vscode.Uri ? uri : undefined);
    if (question !== null) await connector.live?.answer(question, allows);
  };
  const acts: Record<string, (...given: unknown[]) => unknown> = {
    allow: (uri) => answer(true, uri),
    deny: (uri) => answer(false, uri),
    signIn: async () => {
      if (await signIn(signing)) await connector.connect(true);
    },
    signOut: async () => {
      await connector.signOut();
    },
    connect: async () => {
      await connector.connect(true);
      if (connector.standing.at === "signed-out") await vscode.commands.executeCommand("byleave.signIn");
    },
    disconnect: () => connector.disconnect(),
    chooseProject: () => chooseProject(ports),
    startServer: async () => {
      const started = await local.start();
      if (started && (await takeToken(signing, started.origin, started.token))) await connector.connect(true);
    },
    openChat: () => view.open(),
    showWaiting: () => showWaiting(ports),
    showLog: () => log.show(),
    showOutput: () => output.show(),
    diagnose: () => diagnose(ports),
    openSettings: () => vscode.commands.executeCommand("workbench.action.openSettings", "@ext:byleave.byleave"),
    howToStart: () => vscode.commands.executeCommand("workbench.action.openWalkthrough", "byleave.byleave#start"),
    openFolder: () => vscode.commands.executeCommand("vscode.openFolder"),
  };
  return Object.entries(acts).map(([name, act]) => vscode.commands.registerCommand(`byleave.${name}`, act));
}

async function showWaiting({ connector, view }: CommandPorts): Promise<void> {
  await view.openWaiting();
  if ((connector.live?.waiting.length ?? 0) === 0) await vscode.window.showInformationMessage("Byleave: all clear.");
}

async function chooseProject({ connector, projects }: CommandPorts): Promise<void> {
  const { origin } = readSettings();
  const folders = vscode.workspace.workspaceFolders ?? [];
  if (origin !== null) for (const folder of folders) await projects.forget(origin, folder);
  await connector.connect(true);
}

/** Opens what the engine says of itself as a document, to look at or to send to whoever helps. */
async function diagnose({ signing }: CommandPorts): Promise<void> {
  const told = await signing.engine.ask("diagnostics", {}).catch((error: Error) => ({ problem: error.message }));
  const content = JSON.stringify(told, null, 2);
  await vscode.window.showTextDocument(await vscode.workspace.openTextDocument({ language: "json", content }));
}
