// What commands print, as it comes, in a terminal that nobody types into. Only colours of the text are obeyed: titles,
// links, the clipboard, cursor moves and hidden text are dropped, and other controls are made visible.

import type { ClientResult, ExecutionOutput, ExecutionStarted } from "@protocol";
import * as vscode from "vscode";
import { oneLine, visible } from "../../../ui/src/text/visible.js";
import { callSummary } from "../../../ui/src/text/words.js";
import type { ExecutionViewer } from "../tools/ToolHandler.js";

const MOST_KEPT = 200_000;
// biome-ignore-start lint/suspicious/noControlCharactersInRegex: controls are what these look for
const SEQUENCE =
  /\u001b(?:\[([0-?]{0,64})[ -/]{0,8}([@-~])|[\]PX^_][^\u0007\u001b]{0,2048}(?:\u0007|\u001b\\)|[ -/]{0,2}[0-Z\\^-~])/g;
const UNFINISHED = /\u001b(?:\[[0-?]{0,64}[ -/]{0,8}|[\]PX^_][^\u0007\u001b]{0,2048}\u001b?|[ -/]{0,2})?$/;
// biome-ignore-end lint/suspicious/noControlCharactersInRegex: as above
const ALLOWED = /^(?:0|1|4|22|24|3[0-7]|39|9[0-7])$/;

/** Output that a terminal may be given. */
export function tamed(text: string): string {
  let made = "";
  let at = 0;
  for (const found of text.matchAll(SEQUENCE)) {
    made += plain(text.slice(at, found.index));
    if (found[2] === "m") made += style(found[1] ?? "");
    at = found.index + found[0].length;
  }
  return made + plain(text.slice(at));
}

function style(codes: string): string {
  const kept = codes === "" ? ["0"] : codes.split(";").filter((code) => ALLOWED.test(code));
  return kept.length > 0 ? `\u001b[${kept.join(";")}m` : "";
}

function plain(text: string): string {
  return visible(text.replace(/\r\n?/g, "\n")).replaceAll("\n", "\r\n");
}

export class OutputTerminal implements ExecutionViewer, vscode.Disposable {
  readonly #written = new vscode.EventEmitter<string>();
  /** By execution: the beginning of a sequence whose end has not come; null while it has told nothing. */
  readonly #carried = new Map<string, string | null>();
  #kept = "";
  #terminal: vscode.Terminal | null = null;
  readonly #closing: vscode.Disposable;

  constructor() {
    this.#closing = vscode.window.onDidCloseTerminal((closed) => {
      if (closed === this.#terminal) this.#terminal = null;
    });
  }

  show(): void {
    this.#terminal ??= vscode.window.createTerminal({
      name: "Byleave output",
      iconPath: new vscode.ThemeIcon("check"),
      pty: {
        onDidWrite: this.#written.event,
        open: () => this.#written.fire(this.#kept || "Output of commands appears here.\r\n"),
        close: () => {},
      },
    });
    this.#terminal.show(true);
  }

  started({ tool_id, tool_name, tool_params }: ExecutionStarted): void {
    if (tool_name !== "execute_command") return;
    this.#carried.set(tool_id, null);
    this.#write(`\u001b[1m$ ${callSummary(tool_name, tool_params)}\u001b[0m\r\n`);
  }

  output({ text, tool_id }: ExecutionOutput): void {
    const whole = (this.#carried.get(tool_id) ?? "") + text;
    const rest = UNFINISHED.exec(whole)?.[0] ?? "";
    this.#carried.set(tool_id, rest);
    this.#write(tamed(whole.slice(0, whole.length - rest.length)));
  }

  ended({ error, result, tool_id, tool_name }: ClientResult): void {
    if (tool_name !== "execute_command") return;
    // One that was over at once told nothing before: its result has it all.
    if (this.#carried.get(tool_id) === null) {
      for (const name of ["stdout", "stderr"]) this.#write(tamed(String(result?.[name] ?? "")));
    }
    this.#carried.delete(tool_id);
    const how = error === null ? "done" : oneLine(error);
    this.#write(`\u001b[0m\u001b[90m— ${how}\u001b[0m\r\n`);
  }

  dispose(): void {
    this.#closing.dispose();
    this.#terminal?.dispose();
    this.#written.dispose();
  }

  #write(text: string): void {
    this.#kept = (this.#kept + text).slice(-MOST_KEPT);
    this.#written.fire(text);
  }
}
