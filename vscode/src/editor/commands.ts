// The commands of the palette, each a sentence or two: what they do lives elsewhere.

import * as vscode from "vscode";
import type { ChatView } from "../webview/view.js";
import type { Connector } from "./connector.js";
import type { LocalServer } from "./local_server.js";
import type { ChannelLog } from "./log.js";
import type { OutputTerminal } from "./output.js";
import type { Projects } from "./projects.js";
import type { Tokens } from "./secrets.js";
import { readSettings } from "./settings.js";
import { signIn, takeToken } from "./sign_in.js";

export interface CommandPorts {
  readonly connector: Connector;
  readonly view: ChatView;
  readonly tokens: Tokens;
  readonly projects: Projects;
  readonly local: LocalServer;
  readonly log: ChannelLog;
  readonly output: OutputTerminal;
}

export function registerCommands(ports: CommandPorts): vscode.Disposable[] {
  const { connector, view, tokens, local, log, output } = ports;
  const acts: Record<string, () => unknown> = {
    signIn: async () => {
      if (await signIn(tokens)) await connector.connect(true);
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
      if (started && (await takeToken(tokens, started.origin, started.token))) await connector.connect(true);
    },
    openChat: () => view.open(),
    showWaiting: () => showWaiting(ports),
    showLog: () => log.show(),
    showOutput: () => output.show(),
    openSettings: () => vscode.commands.executeCommand("workbench.action.openSettings", "@ext:byleave.byleave"),
    howToStart: () => vscode.commands.executeCommand("workbench.action.openWalkthrough", "byleave.byleave#start"),
    openFolder: () => vscode.commands.executeCommand("vscode.openFolder"),
  };
  return Object.entries(acts).map(([name, act]) => vscode.commands.registerCommand(`byleave.${name}`, act));
}

async function showWaiting({ connector, view }: CommandPorts): Promise<void> {
  await view.openWaiting();
  if ((connector.live?.waiting.length ?? 0) === 0)
    await vscode.window.showInformationMessage("Byleave: nothing waits.");
}

async function chooseProject({ connector, projects }: CommandPorts): Promise<void> {
  const { origin } = readSettings();
  const folders = vscode.workspace.workspaceFolders ?? [];
  if (origin !== null) for (const folder of folders) await projects.forget(origin, folder);
  await connector.connect(true);
}
