// The thread in which `scan` searches: an entry of its own for the bundle. It can be ended at any moment, and is.

import { parentPort, workerData } from "node:worker_threads";
import { PatternError, Scan, type Work } from "./scan.js";

/** What the thread says. */
export type ScanMessage =
  | { readonly path: string; readonly lines: readonly (readonly [number, string])[] }
  | { readonly wrong: string }
  | { readonly done: true };

const say = (message: ScanMessage) => parentPort?.postMessage(message);

try {
  for (const [path, lines] of new Scan(workerData as Work).run()) {
    say({ path, lines });
  }
  say({ done: true });
} catch (error) {
  if (!(error instanceof PatternError)) {
    throw error;
  }
  say({ wrong: error.message });
}
