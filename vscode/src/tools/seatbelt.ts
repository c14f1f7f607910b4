// The sandbox on macOS: Seatbelt, by `sandbox-exec`. Written from its documentation and never run by its authors: UNTESTED.
// The profile denies everything and then allows reading the system, the workspace and a private HOME, and the network where
// it was granted. What is protected or forbidden is denied after that: the last rule that fits counts. Paths never become
// part of the profile's text: they are its parameters, so no name can say something in it.

import { mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { onlyReads } from "./git_words.js";
import { OutputKeeper } from "./output.js";
import { runProcess } from "./processes.js";
import { cleanEnvironment, toolchains } from "./programs.js";
import { asOurselves, type Isolation, isRoot, type Launch, type LaunchOptions, type Sandbox } from "./sandbox.js";
import { TABLES } from "./words.js";

const PROGRAM = "/usr/bin/sandbox-exec";

/** The profile for one command as arguments of sandbox-exec, and the names it protects. */
export function profileFor(
  root: string,
  home: string,
  argv: readonly string[],
  { network = false, masked = [] }: LaunchOptions,
): { readonly arguments: string[]; readonly protected: string[] } {
  let text = TABLES.seatbelt.base;
  const parameters: string[] = [];
  const rule = (verb: string, paths: readonly string[], name: string) => {
    // Without paths there is no rule, for it would mean all.
    if (paths.length > 0) {
      const keys = paths.map((_, number) => `${name}_${number}`);
      parameters.push(...paths.flatMap((path, number) => ["-D", `${keys[number]}=${path}`]));
      text += `(${verb} ${keys.map((key) => `(subpath (param "${key}"))`).join(" ")})\n`;
    }
  };
  rule("allow file-read*", [...TABLES.seatbelt.system, ...toolchains(root)], "SYSTEM");
  rule("allow file-read*", [root, home], "OWN");
  rule("allow file-write*", [home], "PRIVATE");
  let names = ["."];
  if (!onlyReads(argv)) {
    rule("allow file-write*", [root], "WORKSPACE");
    const isGit = basename(argv[0] as string) === "git";
    names = [...(isGit ? TABLES.git_protected : []), ...TABLES.protected.filter((one) => !(isGit && one === ".git"))];
    rule(
      "deny file-write*",
      names.map((name) => `${root}/${name}`),
      "PROTECTED",
    );
  }
  rule(
    "deny file-read* file-write*",
    masked.map((path) => `${root}/${path}`),
    "MASKED",
  );
  text += network ? TABLES.seatbelt.network : "";
  return { arguments: ["-p", text, ...parameters], protected: names };
}

/** Commands of one workspace in Seatbelt. Untested. */
export class SeatbeltSandbox implements Sandbox {
  constructor(
    private readonly root: string,
    private readonly identity = "",
  ) {}

  isolation(network = false): Isolation {
    return {
      ...asOurselves(),
      isolated: true,
      backend: "seatbelt",
      fs: "allowlist",
      net: network ? "host" : "none",
      limits: [],
      degraded: [...TABLES.seatbelt.degraded, ...(isRoot() ? ["Commands run as root."] : [])],
    };
  }

  async launch(argv: readonly string[], options: LaunchOptions = {}): Promise<Launch> {
    const { network = false, pins = [], masked = [] } = options;
    const home = realpathSync(mkdtempSync(join(tmpdir(), "byleave-")));
    writeFileSync(join(home, ".gitconfig"), this.identity);
    const profile = profileFor(this.root, home, argv, options);
    const base = this.isolation(network);
    const watched = pins.map((pin) => `${pin.path} was checked and watched, not covered.`);
    return {
      argv: [PROGRAM, ...profile.arguments, ...argv],
      env: { ...cleanEnvironment(this.root, home), TMPDIR: home },
      cwd: this.root,
      isolation: { ...base, protected: profile.protected, masked, degraded: [...base.degraded, ...watched] },
      extras: [],
      covered: false,
      release() {
        rmSync(home, { recursive: true, force: true });
        return [];
      },
    };
  }
}

/** Seatbelt where it really works, or why it does not. */
export async function workingSeatbelt(root: string, identity: string): Promise<SeatbeltSandbox | string> {
  const sandbox = new SeatbeltSandbox(root, identity);
  const launch = await sandbox.launch(["/bin/true"]);
  try {
    const { exitCode } = await runProcess(launch, new OutputKeeper(4096), { seconds: 10 });
    return exitCode === 0 ? sandbox : `Seatbelt does not work here: it ended with ${exitCode}.`;
  } catch (error) {
    return `Seatbelt did not start: ${(error as Error).message}`;
  } finally {
    launch.release();
  }
}
