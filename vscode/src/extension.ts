// The extension's beginning and end: makes the parts, hands them to each other, and takes them down. Nothing is decided
// here.

import * as vscode from "vscode";
import { ChangedFiles } from "./editor/changes.js";
import { registerCommands } from "./editor/commands.js";
import { Connector } from "./editor/connector.js";
import { Differences } from "./editor/diffs.js";
import { openFile } from "./editor/files.js";
import { agentFolders, gettingEngine } from "./editor/getting_engine.js";
import { LocalServer } from "./editor/local_server.js";
import { ChannelLog } from "./editor/log.js";
import { OutputTerminal } from "./editor/output.js";
import { Projects } from "./editor/projects.js";
import { Tokens } from "./editor/secrets.js";
import { ENGINE_SETTINGS, workspaceSettings } from "./editor/settings.js";
import { OpenedLinks } from "./editor/sign_in.js";
import { StatusBar } from "./editor/status.js";
import { searchSettings, setSearchKey } from "./editor/web_search.js";
import { Engine } from "./engine/engine.js";
import { ChatView, VIEW } from "./webview/view.js";

let ending: (() => Promise<void>) | null = null;

export function activate(context: vscode.ExtensionContext): void {
  const log = new ChannelLog();
  const differences = new Differences();
  const changes = new ChangedFiles(differences);
  const output = new OutputTerminal();
  const status = new StatusBar();
  const installing = new AbortController();
  const projects = new Projects(context.globalState);
  const folders = () => agentFolders(projects, context.globalStorageUri.fsPath);
  const program = gettingEngine(context, folders, log, installing.signal);
  const local = new LocalServer(log, program, folders);
  const engine = new Engine({
    program,
    directory: context.globalStorageUri.fsPath,
    env: process.env,
    folders,
    log,
    gaveUp: (problem) => connector.engineGone(problem),
    lostFolder: (problem) => connector.live?.lostFolder(problem),
  });
  const signing = { tokens: new Tokens(context.secrets), engine };
  const view = new ChatView(context.extensionUri, {
    openFile: (path, line) => {
      if (connector.live) void openFile(connector.live.paths, path, line);
    },
    showDiff: async (title, before, after, approvalId) => {
      if (approvalId !== null && (await connector.live?.showQuestion(approvalId))) return;
      await differences.show(title, before, after);
    },
  });
  differences.onOpen = (questionIds) => view.diffs(questionIds);
  const connector: Connector = new Connector({
    memory: context.workspaceState,
    tokens: signing.tokens,
    projects,
    log,
    view,
    status,
    engine,
    live: {
      differences,
      changes,
      output,
      settings: async () => ({ ...workspaceSettings(), ...(await searchSettings(context.secrets)) }),
      chatVisible: () => view.visible,
      openWaiting: () => void view.openWaiting(),
    },
  });
  ending = async () => {
    installing.abort(new Error("The window closed."));
    await connector.dispose();
    await engine.dispose();
  };
  context.subscriptions.push(
    log,
    changes,
    differences,
    output,
    status,
    local,
    vscode.commands.registerCommand("byleave.setSearchKey", async () => {
      if (await setSearchKey(context.secrets)) await connector.engineSettingsChanged();
    }),
    vscode.window.registerWebviewViewProvider(VIEW, view, { webviewOptions: { retainContextWhenHidden: true } }),
    vscode.window.registerUriHandler(new OpenedLinks(signing, () => connector.connect(true))),
    ...registerCommands({ connector, view, signing, differences, projects, local, log, output }),
    vscode.workspace.onDidGrantWorkspaceTrust(() => void connector.trusted()),
    vscode.workspace.onDidChangeWorkspaceFolders(() => void connector.foldersChanged()),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("byleave.serverUrl")) void connector.serverChanged();
      if (change.affectsConfiguration("byleave.path")) void connector.engineChanged();
      if (ENGINE_SETTINGS.some((name) => change.affectsConfiguration(name))) void connector.engineSettingsChanged();
    }),
  );
  void connector.start();
}

/** Ends what runs here, the whole tree of it, before the window goes. */
export async function deactivate(): Promise<void> {
  await ending?.();
  ending = null;
}
