// The view in the sidebar: makes the document, hands messages to the bridge, and tells the chat where the extension
// stands. It knows whether the chat is in sight; it keeps nothing else.

import * as vscode from "vscode";
import type { Place, ToChat } from "../../../ui/src/vscode_messages.js";
import type { EngineHost } from "../engine/host.js";
import { Bridge, type BridgePorts } from "./bridge.js";
import { chatHtml } from "./html.js";

export const VIEW = "byleave.chat";

/** What a button in the view may do: commands of ours, and nothing else. */
const RUNNABLE = new Set(
  ["signIn", "signOut", "connect", "startServer", "openSettings", "openFolder", "showLog", "showOutput"].map(
    (name) => `byleave.${name}`,
  ),
);

export type ViewPorts = Pick<BridgePorts, "openFile" | "showDiff">;

export class ChatView implements vscode.WebviewViewProvider {
  readonly #extension: vscode.Uri;
  readonly #bridge: Bridge;
  #view: vscode.WebviewView | null = null;
  #place: Place | null = null;
  #showWaiting = false;
  #openDiffs: readonly string[] = [];

  constructor(extension: vscode.Uri, ports: ViewPorts) {
    this.#extension = extension;
    this.#bridge = new Bridge({
      ...ports,
      post: (message) => this.#post(message),
      run: (command) => {
        if (RUNNABLE.has(command)) void vscode.commands.executeCommand(command);
      },
      hello: () => this.#greet(),
    });
  }

  /** Whether the person can see the chat now. */
  get visible(): boolean {
    return this.#view?.visible ?? false;
  }

  resolveWebviewView(view: vscode.WebviewView): void {
    this.#view = view;
    const root = vscode.Uri.joinPath(this.#extension, "dist", "webview");
    view.webview.options = { enableScripts: true, localResourceRoots: [root] };
    view.webview.onDidReceiveMessage((message) => this.#bridge.hear(message));
    view.onDidDispose(() => {
      if (this.#view !== view) return;
      this.#view = null;
      this.#bridge.closeFeeds();
    });
    const address = (name: string) => view.webview.asWebviewUri(vscode.Uri.joinPath(root, name)).toString();
    view.webview.html = chatHtml({
      script: address("webview.js"),
      style: address("webview.css"),
      source: view.webview.cspSource,
    });
  }

  /** Where the extension stands now, and who asks for the chat. */
  show(place: Place, host: EngineHost | null): void {
    this.#place = place;
    this.#bridge.use(host);
    this.#post({ type: "place", place });
  }

  badge(count: number): void {
    if (!this.#view) return;
    this.#view.badge = count > 0 ? { value: count, tooltip: `${count} to review` } : undefined;
  }

  /** The questions whose difference is open in the editor. */
  diffs(approvalIds: readonly string[]): void {
    this.#openDiffs = approvalIds;
    this.#post({ type: "open-diffs", approvalIds: [...approvalIds] });
  }

  async open(): Promise<void> {
    await vscode.commands.executeCommand(`${VIEW}.focus`);
  }

  async openWaiting(): Promise<void> {
    this.#showWaiting = this.#view === null;
    await this.open();
    this.#post({ type: "show-waiting" });
  }

  #greet(): void {
    if (this.#place !== null) this.#post({ type: "place", place: this.#place });
    if (this.#openDiffs.length > 0) this.diffs(this.#openDiffs);
    if (this.#showWaiting) this.#post({ type: "show-waiting" });
    this.#showWaiting = false;
  }

  #post(message: ToChat): void {
    void this.#view?.webview.postMessage(message);
  }
}
