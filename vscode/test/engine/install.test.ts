// The private environment, made by real Pythons. Most tests install a tiny wheel that needs nothing; one installs the
// packed engine with everything in its lock file.

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { findEngine } from "../../src/engine/program.js";
import { type Machine, machine, problem, script } from "./surroundings.js";

const PACKED = fileURLToPath(new URL("../../engine", import.meta.url));
const TOOLS = fileURLToPath(new URL("../../../.venv/.tools/bin", import.meta.url));
const LOCKED = `tiny==1.0 --hash=sha256:${"0".repeat(64)}\n`;
const SLOW = 180_000;

const UV = [...(process.env.PATH ?? "").split(delimiter), TOOLS].find((each) => existsSync(join(each, "uv")));
const PYTHON = real("python3");
// Where neither uv nor Byleave is.
const PATH = "/usr/bin:/bin";

function real(name: string): string {
  const found = spawnSync(name, ["-c", "import sys; print(sys.executable)"], { encoding: "utf8" });
  return found.stdout.trim();
}

/**
 * A machine with a Python, and a packed wheel that answers as Byleave and needs what `lock` says. With `quick` it has uv
 * too, if this one has: for tests in which it does not matter who installs.
 */
function ready({ engine = 1, lock = "# nothing\n", env = {} as NodeJS.ProcessEnv, quick = false } = {}): Machine {
  const here = machine();
  pack(here.packed, engine, lock);
  mkdirSync(join(here.root, "python"));
  symlinkSync(PYTHON, join(here.root, "python/python3"));
  if (quick && UV !== undefined) symlinkSync(join(UV, "uv"), join(here.root, "python/uv"));
  const { HOME } = here.env;
  return { ...here, env: { ...process.env, HOME, PATH: `${join(here.root, "python")}:${PATH}`, ...env } };
}

function pack(directory: string, engine: number, lock: string): void {
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, "requirements.lock"), lock);
  const wheel = join(directory, "byleave-0.1.0-py3-none-any.whl");
  const made = spawnSync(PYTHON, ["-c", MAKE_WHEEL, wheel, String(engine)], { encoding: "utf8" });
  if (made.status !== 0) throw new Error(made.stderr);
}

const MAKE_WHEEL = `
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    wheel.writestr("byleave/__init__.py", "")
    wheel.writestr("byleave/cli/__init__.py", "")
    wheel.writestr("byleave/cli/main.py", 'print(\\'{"version": "0.1.0", "engine": ' + sys.argv[2] + '}\\')')
    info = "byleave-0.1.0.dist-info/"
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: byleave\\nVersion: 0.1.0\\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr(info + "RECORD", "")
`;

function environments(here: Machine): string[] {
  return readdirSync(join(here.storage, "engine")).sort();
}

describe("an installation", () => {
  it("of the packed engine works, once, and starts without its console script", { timeout: SLOW }, async () => {
    const here = { ...ready(), packed: PACKED };
    const found = await findEngine(here);
    expect(here.said).toEqual(["setting up its engine (once)…", "downloading its engine…"]);
    expect(found).toMatchObject({ args: ["-I", "-m", "byleave.cli.main"], version: "0.1.0", from: "private" });
    const [only, ...others] = environments(here);
    expect(others).toEqual([]);
    expect(only).toMatch(/^0\.1\.0-[0-9a-f]{12}$/);
    expect(found.command).toBe(join(here.storage, "engine", only ?? "", "bin/python"));
    const help = spawnSync(found.command, [...found.args, "connect", "--help"], { encoding: "utf8", env: here.env });
    expect(help.stdout).toContain("--workspace");

    const before = statSync(dirname(dirname(found.command))).ino;
    expect(await findEngine(here)).toEqual(found);
    expect(here.said).toHaveLength(2);
    expect(statSync(dirname(dirname(found.command))).ino).toBe(before);
  });

  it.skipIf(UV === undefined)("with uv takes no file from its cache", { timeout: SLOW }, async () => {
    const here = ready();
    const env = { ...here.env, PATH: `${UV}:${here.env.PATH}`, UV_CACHE_DIR: join(here.root, "cache") };
    const found = await findEngine({ ...here, env });
    expect(found).toMatchObject({ version: "0.1.0", from: "private" });
    expect(here.logged).toEqual([]);
    expect(existsSync(join(here.root, "cache"))).toBe(false);
    expect(existsSync(join(dirname(found.command), "pip"))).toBe(false);
  });

  it("by pip follows one by uv that failed", { timeout: SLOW }, async () => {
    const here = ready();
    script(join(here.root, "python/uv"), 'for last; do :; done; mkdir -p "$last"; echo uv is broken; exit 2');
    expect(await findEngine(here)).toMatchObject({ from: "private" });
    expect(here.logged.join()).toContain("uv is broken");
  });

  it("by two windows at the same time makes one environment", { timeout: SLOW }, async () => {
    const here = ready({ quick: true });
    const [one, other] = await Promise.all([findEngine(here), findEngine(here)]);
    expect(one).toEqual(other);
    expect(environments(here)).toHaveLength(1);
  });

  it("is made anew when it no longer starts", { timeout: SLOW }, async () => {
    const here = ready({ quick: true });
    const found = await findEngine(here);
    rmSync(found.command);
    symlinkSync(join(here.root, "no-python"), found.command);
    expect(await findEngine(here)).toEqual(found);
    expect(here.said).toHaveLength(4);
    expect(environments(here)).toHaveLength(1);
  });

  it("replaces older ones and abandoned drafts, but none that a window uses", { timeout: SLOW }, async () => {
    const here = ready({ quick: true });
    const names = {
      old: "0.0.1-0123456789ab",
      used: "0.0.2-0123456789ab",
      abandoned: "0.0.2-0123456789ab.draft-999999999-0",
      drafted: `0.0.2-0123456789ab.draft-${process.ppid}-0`,
      strange: "notes",
    };
    for (const name of Object.values(names))
      mkdirSync(join(here.storage, "engine", name, "in-use"), { recursive: true });
    writeFileSync(join(here.storage, "engine", names.old, "in-use/999999999"), "");
    writeFileSync(join(here.storage, "engine", names.used, `in-use/${process.ppid}`), "");
    const first = dirname(dirname((await findEngine(here)).command));
    expect(environments(here).slice(0, 2)).toEqual([names.used, names.drafted]);
    expect(environments(here)).toHaveLength(4);

    // An update: the environment of before was this window's alone.
    pack(here.packed, 1, "# another\n");
    await findEngine(here);
    expect(existsSync(first)).toBe(false);
    expect(environments(here)).toHaveLength(4);
  });

  it("that is called off leaves nothing behind", { timeout: SLOW }, async () => {
    const here = ready();
    const stop = new AbortController();
    const progress = (message: string) => {
      if (message === "downloading its engine…") stop.abort(new Error("called off"));
    };
    await expect(findEngine({ ...here, progress, signal: stop.signal })).rejects.toThrow("called off");
    expect(environments(here)).toEqual([]);
  });
});

describe("a problem says what to do", () => {
  const none = "Byleave needs Python 3.11 or newer on this machine. Install it, then try again.";

  it("without Python, also with uv", async () => {
    const here = ready();
    expect(await problem(findEngine({ ...here, env: {} }))).toMatchObject({
      kind: "python",
      button: "Try Again",
      message: none,
    });
    const uv = script(join(here.root, "uv/uv"), `: > '${here.root}/ran'`);
    expect((await problem(findEngine({ ...here, env: { PATH: dirname(uv) } }))).kind).toBe("python");
    expect(existsSync(join(here.root, "ran"))).toBe(false);
    expect(here.said).toEqual([]);
  });

  it("with an old Python, and with one of the folder", async () => {
    const here = ready();
    script(join(here.root, "old/python3"), `echo '[3, 10, "/usr/bin/python3", "/usr", "/usr"]'`);
    script(join(here.root, "shims/python3"), `echo '[3, 12, "${here.root}/ws/python", "/usr", "/usr"]'`);
    script(join(here.root, "ws/python3"), `: > '${here.root}/ran'`);
    const places = ["old", "shims", "ws"].map((name) => join(here.root, name));
    expect((await problem(findEngine({ ...here, env: {}, places }))).message).toBe(none);
    expect(here.logged).toHaveLength(3);
    expect(existsSync(join(here.root, "ran"))).toBe(false);
  });

  it("takes a Python of 3.11 or newer from the well-known places, by its longer name too", async () => {
    const here = ready();
    script(join(here.root, "old/python3"), `echo '[3, 10, "/usr/bin/python3", "/usr", "/usr"]'`);
    const body = `[ "$3" = venv ] && { echo venv was asked for; exit 1; }; echo '[3, 13, "${here.root}/old/python3.13", "/", "/"]'`;
    script(join(here.root, "old/python3.13"), body);
    const found = await problem(findEngine({ ...here, env: {}, places: [join(here.root, "old")] }));
    expect(found).toMatchObject({ kind: "install", button: "Show Log" });
    expect(found.details).toContain("venv was asked for");
  });

  it("without the venv module", async () => {
    const here = ready();
    const debian =
      "because ensurepip is not\navailable. On Debian/Ubuntu systems, you need to install the python3-venv\npackage\n\n    apt install python3.11-venv\n";
    const python = join(here.root, "debian/python3");
    script(python, `[ "$3" = venv ] && { printf '${debian}'; exit 1; }; echo '[3, 11, "${python}", "/usr", "/usr"]'`);
    const found = await problem(findEngine({ ...here, env: { PATH: dirname(python) } }));
    expect(found).toMatchObject({ kind: "venv", button: "Try Again" });
    expect(found.message).toContain("Install the package python3.11-venv, then try again.");
    // With uv it is not the venv module that is in the way.
    script(join(here.root, "debian/uv"), "echo 'error: Failed to fetch'; exit 1");
    expect((await problem(findEngine({ ...here, env: { PATH: dirname(python) } }))).kind).toBe("network");
  });

  it("without network, soon", { timeout: SLOW }, async () => {
    const offline = { PIP_CONFIG_FILE: "/dev/null", PIP_FIND_LINKS: "", PIP_EXTRA_INDEX_URL: "" };
    for (const env of [
      { ...offline, PIP_INDEX_URL: "http://127.0.0.1:9" },
      { ...offline, PIP_NO_INDEX: "1" },
    ]) {
      const here = ready({ lock: LOCKED, env });
      const found = await problem(findEngine(here));
      expect(found).toMatchObject({ kind: "network", button: "Try Again" });
      expect(found.details).toContain("tiny");
      expect(environments(here)).toEqual([]);
    }
  });

  it("with an engine that does not fit, or none packed", { timeout: SLOW }, async () => {
    const here = ready({ engine: 2, quick: true });
    expect(await problem(findEngine(here))).toMatchObject({ kind: "install", button: "Show Log" });
    expect(environments(here)).toEqual([]);
    rmSync(here.packed, { recursive: true });
    expect((await problem(findEngine(here))).details).toContain("ENOENT");
    mkdirSync(here.packed);
    expect((await problem(findEngine(here))).details).toContain("no wheel");
  });
});
