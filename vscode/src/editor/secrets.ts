// Tokens in the editor's secret storage, each under the origin it was given for. They are never written elsewhere, shown,
// or logged.

import type { SecretStorage } from "vscode";

export class Tokens {
  readonly #secrets: SecretStorage;

  constructor(secrets: SecretStorage) {
    this.#secrets = secrets;
  }

  async read(origin: string): Promise<string | null> {
    return (await this.#secrets.get(key(origin))) ?? null;
  }

  async keep(origin: string, token: string): Promise<void> {
    await this.#secrets.store(key(origin), token);
  }

  async forget(origin: string): Promise<void> {
    await this.#secrets.delete(key(origin));
  }
}

function key(origin: string): string {
  return `token ${origin}`;
}
