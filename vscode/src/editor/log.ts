// The log: the editor's own channel for it, with the levels people can choose there. Fields follow as JSON; tokens and
// the content of files are never among them.

import * as vscode from "vscode";
import { visible } from "../../../ui/src/text/visible.js";

export type Fields = Readonly<Record<string, unknown>>;

/** Where steps are told: info for each step, debug for arguments and timing, error for failures. */
export interface Log {
  debug(message: string, fields?: Fields): void;
  info(message: string, fields?: Fields): void;
  warn(message: string, fields?: Fields): void;
  error(message: string, fields?: Fields): void;
}

export class ChannelLog implements Log, vscode.Disposable {
  readonly #channel = vscode.window.createOutputChannel("Byleave", { log: true });

  debug(message: string, fields?: Fields): void {
    this.#channel.debug(line(message, fields));
  }

  info(message: string, fields?: Fields): void {
    this.#channel.info(line(message, fields));
  }

  warn(message: string, fields?: Fields): void {
    this.#channel.warn(line(message, fields));
  }

  error(message: string, fields?: Fields): void {
    this.#channel.error(line(message, fields));
  }

  show(): void {
    this.#channel.show(true);
  }

  dispose(): void {
    this.#channel.dispose();
  }
}

function line(message: string, fields?: Fields): string {
  return visible(fields && Object.keys(fields).length > 0 ? `${message} ${JSON.stringify(fields)}` : message);
}
