// Isolation of commands: what a sandbox is, what was really applied, and what remains without one. A `Sandbox` turns an
// argv into a `Launch`. It says truthfully what it applied (`Isolation`), and that goes out with every result. `NoSandbox`
// isolates nothing: a clean environment, limits and a private HOME, and it says `none`. Nothing here decides.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { cleanEnvironment, limitArguments } from "./programs.js";
import { TABLES } from "./words.js";

/** What really stands between a command and the rest of this machine. */
export interface Isolation {
  readonly isolated: boolean;
  readonly backend: "bwrap" | "seatbelt" | "none";
  readonly fs: "allowlist" | "none";
  readonly net: "none" | "host";
  readonly pidns: boolean;
  readonly seccomp: boolean;
  readonly runs_as: "user" | "owner" | "root";
  /** Names of the workspace that the command could not change. */
  readonly protected: readonly string[];
  /** What the owner's rules forbid and the command could not see into. */
  readonly masked: readonly string[];
  /** Names something else may trust, which were not there before the command and are now. */
  readonly created: readonly string[];
  readonly limits: readonly string[];
  /** What is weaker than it should be, in words. */
  readonly degraded: readonly string[];
}

/** The approved bytes of one file, to be laid over it. */
export interface Pin {
  /** Where the file really lies, from the workspace. */
  readonly path: string;
  readonly data: Buffer;
  readonly mode: number;
}

/** How to start one command. */
export interface Launch {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly isolation: Isolation;
  /** Descriptors the child gets from number 3 on; `status` is where the sandbox reports. */
  readonly extras: readonly (number | "status")[];
  /** A word in the environment by which stray children are found, where there is no namespace to end. */
  readonly mark?: string;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** Whether the pins lie over their files. */
  readonly covered: boolean;
  /** Clean up when the command has ended; gives the protected names it made. */
  release(): string[];
}

export interface LaunchOptions {
  readonly network?: boolean;
  readonly pins?: readonly Pin[];
  readonly masked?: readonly string[];
  /** Calls it off while it waits for others to end. */
  readonly signal?: AbortSignal | undefined;
}

/** Something that can hold a command. */
export interface Sandbox {
  /** What a command would get. */
  isolation(network?: boolean): Isolation;
  /** Prepare one command; `release` must be called when it has ended. */
  launch(argv: readonly string[], options?: LaunchOptions): Promise<Launch>;
}

export function isRoot(): boolean {
  return process.geteuid?.() === 0;
}

/** Of what holds a command with no means of the kernel's own: it runs as who runs the editor. */
export function asOurselves() {
  const runsAs = isRoot() ? ("root" as const) : ("user" as const);
  return { pidns: false, seccomp: false, runs_as: runsAs, protected: [], masked: [], created: [] };
}

/** Say that what should be hidden is not. */
function withBare(isolation: Isolation, masked: readonly string[]): Isolation {
  if (masked.length === 0) {
    return isolation;
  }
  const more = masked.length > 10 ? ` and ${masked.length - 10} more.` : ".";
  const words = `What the rules forbid could not be hidden from the command: ${masked.slice(0, 10).join(", ")}${more}`;
  return { ...isolation, degraded: [...isolation.degraded, words] };
}

/** No isolation, said plainly: only where the owner of this machine chose it. */
export class NoSandbox implements Sandbox {
  readonly #limits: readonly string[];

  constructor(
    private readonly root: string,
    private readonly reason: string,
    private readonly identity = "",
  ) {
    // Not nproc: outside a user namespace it counts everything the user runs.
    this.#limits = limitArguments(root, TABLES.limits_without_sandbox);
  }

  isolation(): Isolation {
    return {
      isolated: false,
      ...asOurselves(),
      backend: "none",
      fs: "none",
      net: "host",
      limits: this.#limits.length > 0 ? TABLES.limits_without_sandbox : [],
      degraded: [this.reason],
    };
  }

  async launch(argv: readonly string[], { masked = [] }: LaunchOptions = {}): Promise<Launch> {
    const home = mkdtempSync(join(tmpdir(), "byleave-"));
    writeFileSync(join(home, ".gitconfig"), this.identity);
    const run = basename(home);
    return {
      argv: [...this.#limits, ...argv],
      env: { ...cleanEnvironment(this.root, home), TMPDIR: home, BYLEAVE_RUN: run },
      cwd: this.root,
      isolation: withBare(this.isolation(), masked),
      extras: [],
      mark: `BYLEAVE_RUN=${run}`,
      covered: false,
      release() {
        rmSync(home, { recursive: true, force: true });
        return [];
      },
    };
  }
}
