// The extension's beginning and end: makes the parts, hands them to each other, and takes them down. Nothing is decided
// here.

import * as vscode from "vscode";
import { ChangedFiles } from "./editor/changes.js";
import { registerCommands } from "./editor/commands.js";
import { Connector } from "./editor/connector.js";
import { Differences } from "./editor/diffs.js";
import { executingIn } from "./editor/executing.js";
import { openFile } from "./editor/files.js";
import { LocalServer } from "./editor/local_server.js";
import { ChannelLog } from "./editor/log.js";
import { OutputTerminal } from "./editor/output.js";
import { Projects } from "./editor/projects.js";
import { Tokens } from "./editor/secrets.js";
import { OpenedLinks } from "./editor/sign_in.js";
import { StatusBar } from "./editor/status.js";
import { setSearchKey, webSettings } from "./editor/web_search.js";
import { ChatView, VIEW } from "./webview/view.js";

let ending: (() => Promise<void>) | null = null;

export function activate(context: vscode.ExtensionContext): void {
  const log = new ChannelLog();
  const differences = new Differences();
  const changes = new ChangedFiles(differences);
  const output = new OutputTerminal();
  const status = new StatusBar();
  const local = new LocalServer(log);
  const tokens = new Tokens(context.secrets);
  const projects = new Projects(context.globalState);
  const view = new ChatView(context.extensionUri, {
    openFile: (path, line) => {
      if (connector.live) void openFile(connector.live.folder, path, line);
    },
    showDiff: (title, before, after) => void differences.show(title, before, after),
  });
  const connector: Connector = new Connector({
    memory: context.workspaceState,
    tokens,
    projects,
    log,
    view,
    status,
    live: {
      log,
      differences,
      output,
      chatVisible: () => view.visible,
      openWaiting: () => void view.openWaiting(),
    },
    startExecuting: executingIn(
      {
        storage: context.globalStorageUri.fsPath,
        scanWorker: vscode.Uri.joinPath(context.extensionUri, "dist", "scan_worker.cjs").fsPath,
        web: () => webSettings(context.secrets),
        changes,
      },
      log,
    ),
  });
  ending = () => connector.dispose();
  context.subscriptions.push(
    log,
    changes,
    differences,
    output,
    status,
    local,
    vscode.commands.registerCommand("byleave.setSearchKey", () => setSearchKey(context.secrets)),
    vscode.window.registerWebviewViewProvider(VIEW, view, { webviewOptions: { retainContextWhenHidden: true } }),
    vscode.window.registerUriHandler(new OpenedLinks(tokens, () => connector.connect(true))),
    ...registerCommands({ connector, view, tokens, projects, local, log, output }),
    vscode.workspace.onDidGrantWorkspaceTrust(() => void connector.trusted()),
    vscode.workspace.onDidChangeWorkspaceFolders(() => void connector.foldersChanged()),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("byleave.serverUrl")) void connector.serverChanged();
      if (change.affectsConfiguration("byleave.sandbox")) void connector.sandboxChanged();
    }),
  );
  void connector.start();
}

/** Ends what runs here, the whole tree of it, before the window goes. */
export async function deactivate(): Promise<void> {
  await ending?.();
  ending = null;
}
