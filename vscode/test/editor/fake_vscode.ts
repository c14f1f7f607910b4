// A small stand-in for the editor's API: it remembers what was asked of it and answers what the test says. Only what the
// extension uses is here.

import { vi } from "vitest";

type Listener<T> = (value: T) => void;

export class EventEmitter<T> {
  readonly #listeners = new Set<Listener<T>>();
  event = (listener: Listener<T>) => {
    this.#listeners.add(listener);
    return { dispose: () => this.#listeners.delete(listener) };
  };
  fire(value: T): void {
    for (const listener of [...this.#listeners]) listener(value);
  }
  dispose(): void {
    this.#listeners.clear();
  }
}

export class Uri {
  readonly scheme: string;
  readonly path: string;
  private constructor(scheme: string, path: string) {
    this.scheme = scheme;
    this.path = path;
  }
  static file(path: string): Uri {
    return new Uri("file", path);
  }
  static from({ scheme, path }: { scheme: string; path: string }): Uri {
    return new Uri(scheme, path);
  }
  static joinPath(base: Uri, ...parts: string[]): Uri {
    return new Uri(base.scheme, [base.path, ...parts].join("/"));
  }
  get fsPath(): string {
    return this.path;
  }
  toString(): string {
    return `${this.scheme}:${encodeURI(this.path)}`;
  }
}

export class TabInputTextDiff {
  constructor(
    readonly original: Uri,
    readonly modified: Uri,
  ) {}
}

export class Position {
  constructor(
    readonly line: number,
    readonly character: number,
  ) {}
}
export class Range {
  constructor(
    readonly start: Position,
    readonly end: Position,
  ) {}
}
export class Selection extends Range {}
export class ThemeColor {
  constructor(readonly id: string) {}
}
export class ThemeIcon {
  constructor(readonly id: string) {}
}
export class TreeItem {
  id?: string;
  description?: string;
  tooltip?: string;
  contextValue?: string;
  iconPath?: ThemeIcon;
  command?: { command: string; arguments: unknown[] };
  constructor(
    readonly label: string,
    readonly collapsibleState: number,
  ) {}
}
export const TreeItemCollapsibleState = { None: 0 };
export const TextEditorRevealType = { InCenter: 2 };
export const StatusBarAlignment = { Left: 1 };
export const ConfigurationTarget = { Global: 1 };
export const ProgressLocation = { Notification: 15 };
export const InputBoxValidationSeverity = { Warning: 2 };

/** Everything the extension showed or ran, in order: the kind, the first words, the choices. */
export const shown: { kind: string; text: string; detail?: string; items: string[] }[] = [];
/** What the person answers: the first entry whose key is in the text. */
export const answers = new Map<string, string | undefined>();
/** Of what was shown or remarked, what has a mark for code in it: the editor shows that mark as it is. */
export const codeMarks = () =>
  [...shown.map(({ text, detail }) => `${text} ${detail ?? ""}`), ...remarks.map(String)].filter((text) =>
    text.includes("`"),
  );
export const settings = new Map<string, unknown>();
/** What the open folder's own .vscode/settings.json says. */
export const folderSettings = new Map<string, unknown>();
export const ran: unknown[][] = [];
/** What the boxes remarked on what was typed. */
export const remarks: unknown[] = [];
export const handlers = new Map<string, (...given: unknown[]) => unknown>();

function message(kind: string) {
  return async (text: string, ...rest: unknown[]): Promise<string | undefined> => {
    const [first] = rest;
    const options = typeof first === "object" && first !== null ? (first as { detail?: string }) : null;
    const items = rest.filter((each): each is string => typeof each === "string");
    shown.push({ kind, text, ...(options?.detail === undefined ? {} : { detail: options.detail }), items });
    return answered(text);
  };
}

function answered(text: string): string | undefined {
  for (const [key, value] of answers) if (text.includes(key)) return value;
  return undefined;
}

export interface FakeStatus {
  text: string;
  tooltip: string;
  command: string;
  backgroundColor: ThemeColor | undefined;
  accessibilityInformation: { label: string };
}
export const statusItems: FakeStatus[] = [];
export const channels: { lines: string[]; shown: number }[] = [];
export const terminals: { pty: { open(): void; onDidWrite(listener: Listener<string>): unknown }; written: string }[] =
  [];
export const windowState = new EventEmitter<{ focused: boolean }>();
export const closedTerminal = new EventEmitter<unknown>();
export const editors: { uri: Uri; selection?: Selection; revealed: Range[] }[] = [];
export interface FakeTab {
  readonly label: string;
  readonly input: unknown;
}
export const changedTabs = new EventEmitter<{ closed: readonly FakeTab[] }>();
const group = { tabs: [] as FakeTab[], activeTab: undefined as FakeTab | undefined };
/** The tabs of the window, and the one in sight. */
export const tabs = group;
/** What the progress notifications said, each from its title on; `open` counts those that are still there. */
export const progress = { said: [] as string[], open: 0 };
export const documents: string[] = [];
export const failing = { open: null as Error | null };

export const window = {
  showInformationMessage: message("info"),
  showWarningMessage: message("warning"),
  showErrorMessage: message("error"),
  async showInputBox(options: { prompt: string; validateInput?: (text: string) => unknown }) {
    shown.push({ kind: "input", text: options.prompt, items: [] });
    const said = answered(options.prompt);
    if (said !== undefined) remarks.push(options.validateInput?.(said));
    return said;
  },
  async showQuickPick(items: { label: string }[], options: { title: string }) {
    shown.push({ kind: "pick", text: options.title, items: items.map((item) => item.label) });
    const said = answered(options.title);
    return items.find((item) => item.label === said);
  },
  async showTextDocument(uri: Uri) {
    if (failing.open) throw failing.open;
    const editor = { uri, revealed: [] as Range[], revealRange: (range: Range) => editor.revealed.push(range) };
    editors.push(editor);
    return editor;
  },
  async withProgress(
    { title }: { title: string },
    work: (report: { report(step: { message: string }): void }) => Promise<unknown>,
  ) {
    progress.open += 1;
    progress.said.push(title);
    try {
      return await work({ report: ({ message }) => void progress.said.push(message) });
    } finally {
      progress.open -= 1;
    }
  },
  createStatusBarItem: () => {
    const item = { show: vi.fn(), dispose: vi.fn() } as unknown as FakeStatus;
    statusItems.push(item);
    return item;
  },
  createOutputChannel: () => {
    const channel = { lines: [] as string[], shown: 0 };
    channels.push(channel);
    const at = (level: string) => (line: string) => channel.lines.push(`${level} ${line}`);
    return {
      debug: at("debug"),
      info: at("info"),
      warn: at("warn"),
      error: at("error"),
      show: () => {
        channel.shown += 1;
      },
      dispose: vi.fn(),
    };
  },
  createTerminal: ({ pty }: { pty: (typeof terminals)[number]["pty"] }) => {
    const terminal = { pty, written: "", show: () => pty.open(), dispose: vi.fn() };
    pty.onDidWrite((text) => {
      terminal.written += text;
    });
    terminals.push(terminal);
    return terminal;
  },
  registerTreeDataProvider: () => ({ dispose: vi.fn() }),
  tabGroups: {
    all: [group],
    activeTabGroup: group,
    onDidChangeTabs: changedTabs.event,
    async close(closed: FakeTab[]) {
      group.tabs = group.tabs.filter((tab) => !closed.includes(tab));
      if (group.activeTab !== undefined && closed.includes(group.activeTab)) group.activeTab = group.tabs.at(-1);
      changedTabs.fire({ closed });
    },
  },
  onDidCloseTerminal: closedTerminal.event,
  onDidChangeWindowState: windowState.event,
};

export const workspace = {
  isTrusted: true,
  workspaceFolders: undefined as { uri: Uri; name: string; index: number }[] | undefined,
  getConfiguration: () => ({
    get: (name: string) => folderSettings.get(name) ?? settings.get(name),
    inspect: (name: string) => ({ globalValue: settings.get(name), workspaceValue: folderSettings.get(name) }),
    update: async (name: string, value: unknown) => void settings.set(name, value),
  }),
  registerTextDocumentContentProvider: () => ({ dispose: vi.fn() }),
  async openTextDocument({ content }: { content: string }) {
    documents.push(content);
    return Uri.from({ scheme: "untitled", path: "Untitled-1" });
  },
};

/** The values of the context keys, as the extension set them last. */
export const contexts = new Map<string, unknown>();

export const commands = {
  async executeCommand(...given: unknown[]) {
    ran.push(given);
    const [name, ...rest] = given;
    if (name === "setContext") contexts.set(String(rest[0]), rest[1]);
    if (name === "vscode.diff") showDiff(rest as [Uri, Uri, string]);
    return await handlers.get(String(name))?.(...rest);
  },
  registerCommand(name: string, act: () => unknown) {
    handlers.set(name, act);
    return { dispose: () => handlers.delete(name) };
  },
};

function showDiff([left, right, label]: [Uri, Uri, string]): void {
  group.activeTab = { label, input: new TabInputTextDiff(left, right) };
  group.tabs = [...group.tabs, group.activeTab];
}

/** As at the start of a window. */
export function reset(): void {
  for (const list of [shown, ran, remarks, statusItems, channels, terminals, editors, documents, progress.said])
    list.length = 0;
  for (const map of [answers, settings, folderSettings, handlers, contexts]) map.clear();
  group.tabs = [];
  group.activeTab = undefined;
  progress.open = 0;
  failing.open = null;
  workspace.isTrusted = true;
  workspace.workspaceFolders = undefined;
}

export function folder(path: string, scheme = "file") {
  const name = path.split("/").at(-1) ?? "";
  return { uri: Uri.from({ scheme, path }), name, index: 0 };
}

/** A memory as the editor gives it. */
export class Memory {
  readonly kept = new Map<string, unknown>();
  get(key: string): unknown {
    return this.kept.get(key);
  }
  async update(key: string, value: unknown): Promise<void> {
    if (value === undefined) this.kept.delete(key);
    else this.kept.set(key, value);
  }
  keys(): string[] {
    return [...this.kept.keys()];
  }
}

export class Secrets {
  readonly kept = new Map<string, string>();
  async get(key: string): Promise<string | undefined> {
    return this.kept.get(key);
  }
  async store(key: string, value: string): Promise<void> {
    this.kept.set(key, value);
  }
  async delete(key: string): Promise<void> {
    this.kept.delete(key);
  }
}
