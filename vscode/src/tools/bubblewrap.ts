// The sandbox on Linux: bubblewrap with its own namespaces and only what a command needs mounted; the same arguments as the
// Python client's. Files: an allow-list (system read-only, private HOME and /tmp, the workspace as `protection` says). No
// network unless granted, then the host's. A filter on system calls. Every process of a command dies with it. The probe
// runs /bin/true through the full argument list; what does not work here is left out piece by piece, and `Isolation` says so.

import {
  closeSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { arch, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { ToolFailure } from "./errors.js";
import { startsNothing } from "./git_words.js";
import { coverArguments, masksFor } from "./masking.js";
import { OutputKeeper } from "./output.js";
import { runProcess } from "./processes.js";
import { cleanEnvironment, findProgram, limitArguments, type Runner, runnerFor, toolchains } from "./programs.js";
import { Protection } from "./protection.js";
import { type Isolation, isRoot, type Launch, type LaunchOptions, type Pin, type Sandbox } from "./sandbox.js";
import { TABLES } from "./words.js";

const HOME = "/.home";
const SHARED_BYTES = 256 * 1024 ** 2;
const PRIVATE_BYTES = 512 * 1024 ** 2;

type Part = "owner" | "userns" | "seccomp";
const WEAKER: readonly (readonly Part[])[] = [
  [],
  ["owner"],
  ["userns"],
  ["owner", "userns"],
  ["seccomp"],
  ["owner", "userns", "seccomp"],
];

/** The filter of system calls for this machine; undefined where none is known. */
export function filterFor(network: boolean): Buffer | undefined {
  const machine = { x64: "x86_64", arm64: "aarch64" }[arch() as string] as keyof typeof TABLES.filters | undefined;
  const text = machine === undefined ? undefined : TABLES.filters[machine][network ? "host" : "none"];
  return text === undefined ? undefined : Buffer.from(text, "base64");
}

/** The descriptors of one launch: opened for the child, closed when it has ended. */
export class Extras {
  readonly list: (number | "status")[] = [];
  #directory: string | undefined;
  #count = 0;

  /** The child's number for a descriptor of ours, which is closed with the rest. */
  add(fd: number): number {
    this.list.push(fd);
    return this.list.length + 2;
  }

  /** The child's number for a file with this content, that no other program can find. */
  content(data: Buffer): number {
    this.#directory ??= mkdtempSync(join(tmpdir(), "byleave-"));
    this.#count += 1;
    const path = join(this.#directory, String(this.#count));
    writeFileSync(path, data, { mode: 0o600 });
    return this.add(openSync(path, "r"));
  }

  status(): number {
    this.list.push("status");
    return this.list.length + 2;
  }

  /** Nothing more is put in: what lies on the disk is reached by descriptor alone. */
  seal(): void {
    if (this.#directory !== undefined) {
      rmSync(this.#directory, { recursive: true, force: true });
    }
  }

  close(): void {
    this.seal();
    for (const one of this.list.splice(0)) {
      if (one !== "status") {
        closeSync(one);
      }
    }
  }
}

/** Commands of one workspace in bubblewrap. */
export class BubblewrapSandbox implements Sandbox {
  readonly #bwrap: string;
  readonly #runner: Runner | undefined;
  readonly #limits: readonly string[];
  readonly #asRoot: boolean;
  readonly #system: readonly string[];
  readonly #protection: Protection;

  constructor(
    private readonly root: string,
    private readonly identity = "",
    private readonly without: readonly Part[] = [],
  ) {
    this.#bwrap = findProgram("bwrap", root);
    this.#runner = without.includes("owner") ? undefined : runnerFor(root);
    this.#limits = limitArguments(root, Object.keys(TABLES.limits));
    this.#asRoot = isRoot() && this.#runner === undefined;
    this.#system = systemArguments(root, without.includes("userns"));
    this.#protection = new Protection(root);
  }

  isolation(network = false): Isolation {
    // The kernel never counts root's processes.
    const names = Object.keys(TABLES.limits).filter((name) => !(this.#asRoot && name === "nproc"));
    return {
      isolated: true,
      backend: "bwrap",
      fs: "allowlist",
      net: network ? "host" : "none",
      pidns: true,
      seccomp: this.#filter(network) !== undefined,
      runs_as: this.#asRoot ? "root" : this.#runner ? "owner" : "user",
      protected: [],
      masked: [],
      created: [],
      limits: this.#limits.length > 0 ? names : [],
      degraded: this.#degraded(),
    };
  }

  #filter(network: boolean): Buffer | undefined {
    return this.without.includes("seccomp") ? undefined : filterFor(network);
  }

  #degraded(): string[] {
    const words: string[] = [];
    if (this.#asRoot) {
      words.push(
        "The client runs as root, and so do commands: a fault in the kernel's isolation would reach the whole machine. Run the client as an ordinary user, or give the workspace to one.",
        "The number of processes is not limited, because commands run as root.",
      );
    }
    if (this.#limits.length === 0) {
      words.push("prlimit is not installed: memory, processes and CPU time are not limited.");
    }
    const parts = this.without.filter((part) => part !== "owner" || this.#asRoot);
    words.push(...parts.map((part) => TABLES.words_without[part]));
    if (!this.without.includes("seccomp") && filterFor(false) === undefined) {
      words.push(TABLES.words_without.seccomp);
    }
    return words;
  }

  /** Run /bin/true through the full argument list; undefined when it worked, else why not. */
  async probe(): Promise<string | undefined> {
    const keeper = new OutputKeeper(4096);
    try {
      const launch = await this.launch(["/bin/true"]);
      try {
        const { exitCode } = await runProcess(launch, keeper, { seconds: 10 });
        return exitCode === 0 ? undefined : `bubblewrap does not work here: ${keeper.said()}`;
      } finally {
        launch.release();
      }
    } catch (error) {
      return `bubblewrap does not work here: ${keeper.said() || (error as Error).message}`;
    }
  }

  async launch(argv: readonly string[], options: LaunchOptions = {}): Promise<Launch> {
    const { network = false, pins = [], masked = [] } = options;
    const { root } = this;
    const { masks, hidden } = masksFor(root, masked);
    const mounts = await this.#protection.hold(argv, masks, pins.length > 0, options.signal);
    const extras = new Extras();
    try {
      const base = this.isolation(network);
      const filter = this.#filter(network);
      const args = [
        this.#bwrap,
        ...this.#system,
        // What only reads files it is given needs nothing of the kernel, and each mount costs time.
        ...(startsNothing(argv) ? [] : this.#proc()),
        ...(network ? readOnly(TABLES.etc_for_network) : ["--unshare-net"]),
        ...["--file", String(extras.content(Buffer.from(this.identity))), `${HOME}/.gitconfig`],
        ...copied(extras),
        ...mounts.arguments,
        ...this.#cover(pins, extras),
        ...coverArguments(root, masks, () => extras.add(openSync("/dev/null", "r"))),
        ...["--remount-ro", "/"],
        ...(filter === undefined ? [] : ["--seccomp", String(extras.content(filter))]),
        ...["--json-status-fd", String(extras.status()), "--chdir", root, "--", ...this.#limits, ...argv],
      ];
      extras.seal();
      return {
        argv: args,
        env: cleanEnvironment(root, HOME),
        cwd: root,
        isolation: {
          ...base,
          protected: mounts.protected,
          masked: hidden,
          degraded: [...base.degraded, ...mounts.degraded],
        },
        extras: [...extras.list],
        uid: this.#runner?.uid,
        gid: this.#runner?.gid,
        covered: pins.length > 0,
        release() {
          extras.close();
          return mounts.release();
        },
      };
    } catch (error) {
      extras.close();
      mounts.release();
      throw error;
    }
  }

  #proc(): string[] {
    return ["--proc", "/proc", ...(this.#asRoot ? coverProc() : []), "--remount-ro", "/proc"];
  }

  /** Lay the pins over their files, and hide compiled code beside them, which Python would take instead. */
  #cover(pins: readonly Pin[], extras: Extras): string[] {
    const compiled = new Set(pins.map((pin) => join(this.root, dirname(pin.path), "__pycache__")));
    const hidden = [...compiled].filter((path) => lstatSync(path, { throwIfNoEntry: false })?.isDirectory()).sort();
    return [
      ...hidden.flatMap((path) => ["--tmpfs", path]),
      ...pins.flatMap((pin) => [
        ...["--perms", pin.mode.toString(8).padStart(4, "0")],
        ...["--ro-bind-data", String(extras.content(pin.data)), `${this.root}/${pin.path}`],
      ]),
    ];
  }
}

/** The strongest bubblewrap that really works here, or why none does. */
export async function workingBubblewrap(root: string, identity: string): Promise<BubblewrapSandbox | string> {
  let reason = "";
  try {
    for (const without of WEAKER) {
      const sandbox = new BubblewrapSandbox(root, identity, without);
      const failed = await sandbox.probe();
      if (failed === undefined) {
        return sandbox;
      }
      reason ||= failed;
    }
  } catch (error) {
    if (!(error instanceof ToolFailure)) {
      throw error;
    }
    return error.message; // not installed
  }
  return reason;
}

function systemArguments(root: string, userns: boolean): string[] {
  const directories = ["/bin", "/sbin", "/lib", "/lib32", "/lib64"].flatMap((name) => {
    const info = lstatSync(name, { throwIfNoEntry: false });
    const link = info?.isSymbolicLink() ? ["--symlink", readlinkSync(name), name] : [];
    return info?.isDirectory() ? ["--ro-bind", name, name] : link;
  });
  const opt = existsSync("/opt") && readdirSync("/opt").length > 0 ? ["--ro-bind", "/opt", "/opt"] : [];
  return [
    ...["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"],
    ...(userns ? [] : ["--disable-userns"]),
    ...["--new-session", "--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox"],
    ...["--ro-bind", "/usr", "/usr", ...directories, ...readOnly(TABLES.etc_directories), ...zone(), ...opt],
    // What --dev makes is as large as half the memory.
    ...["--dev", "/dev", "--size", String(SHARED_BYTES), "--perms", "1777", "--tmpfs", "/dev/shm"],
    ...["--remount-ro", "/dev", "--size", String(PRIVATE_BYTES), "--perms", "1777", "--tmpfs", "/tmp"],
    ...["--dir", "/run", "--dir", "/var", "--symlink", "/tmp", "/var/tmp"],
    ...["--size", String(PRIVATE_BYTES), "--perms", "0700", "--tmpfs", HOME],
    ...toolchains(root)
      .filter((prefix) => !prefix.startsWith("/usr/"))
      .flatMap((prefix) => ["--ro-bind-try", prefix, prefix]),
  ];
}

function readOnly(names: readonly string[]): string[] {
  return names.flatMap((name) => ["--ro-bind-try", `/etc/${name}`, `/etc/${name}`]);
}

/** The time zone: a link where it is one, since a mount costs more. */
function zone(): string[] {
  const path = "/etc/localtime";
  const isLink = lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() && existsSync(path);
  return isLink && realpathSync(path).startsWith("/usr/")
    ? ["--symlink", realpathSync(path), path]
    : readOnly(["localtime"]);
}

/** Files of /etc, copied into the sandbox, because a mount for each costs more. */
function copied(extras: Extras): string[] {
  return TABLES.etc_files.flatMap((name) => {
    try {
      return ["--perms", "0444", "--file", String(extras.add(openSync(`/etc/${name}`, "r"))), `/etc/${name}`];
    } catch {
      return [];
    }
  });
}

/** As root, the command owns what the kernel tells only its owner: cover that. */
function coverProc(): string[] {
  return readdirSync("/proc")
    .filter((name) => !/^\d+$/.test(name))
    .sort()
    .flatMap((name) => {
      const path = `/proc/${name}`;
      const info = lstatSync(path).isSymbolicLink() ? undefined : statSync(path);
      return info?.isFile() && (info.mode & 0o004) === 0 ? ["--ro-bind", "/dev/null", path] : [];
    });
}
