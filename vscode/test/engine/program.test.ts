// Finding the engine: the order of places, and that nothing in an opened folder is ever run.

import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { describe, expect, it } from "vitest";
import { engineEnvironment, findEngine } from "../../src/engine/program.js";
import { fake, machine, problem, script } from "./surroundings.js";

describe("order", () => {
  it("takes the setting before PATH", async () => {
    const here = machine();
    const [own, other] = [fake(join(here.root, "own/byleave")), fake(join(here.root, "bin/byleave"))];
    const env = { PATH: join(here.root, "bin") };
    expect(await findEngine({ ...here, env, setting: own })).toEqual({
      command: own,
      args: [],
      version: "0.1.0",
      from: "setting",
    });
    expect(existsSync(`${other}.ran`)).toBe(false);
    expect(await findEngine({ ...here, env })).toMatchObject({ command: other, from: "path" });
    expect(await findEngine({ ...here, env, setting: " " })).toMatchObject({ from: "path" });
  });

  it("expands the home directory of the setting", async () => {
    const here = machine({ setting: "~/bin/byleave" });
    const own = fake(join(here.root, "home/bin/byleave"));
    expect(await findEngine(here)).toMatchObject({ command: own, from: "setting" });
  });

  it("skips what does not fit on PATH, and says so in the log", async () => {
    const here = machine();
    fake(join(here.root, "a/byleave"), { version: "0.0.9" });
    fake(join(here.root, "b/byleave"), { version: "9.0.0", engine: 2 });
    script(join(here.root, "c/byleave"), "echo hello");
    script(join(here.root, "d/byleave"), `echo '{"version": "0.1.0", "engine": 1}'; exit 1`);
    mkdirSync(join(here.root, "e/byleave"), { recursive: true });
    chmodSync(fake(join(here.root, "f/byleave")), 0o644);
    const right = fake(join(here.root, "g/byleave"));
    const path = [..."abcdefg"].map((name) => join(here.root, name)).join(delimiter);
    expect(await findEngine({ ...here, env: { PATH: path } })).toMatchObject({ command: right, from: "path" });
    expect(here.logged).toHaveLength(4);
    expect(here.logged[1]).toContain('"engine":2,"needed":1');
  });

  it("goes on to a private environment after PATH", async () => {
    const here = machine();
    expect(await problem(findEngine(here))).toMatchObject({ kind: "install", button: "Show Log" });
  });
});

describe("a setting that is wrong is told, and nothing else is tried", () => {
  async function told(change: (root: string) => string) {
    const here = machine();
    const other = fake(join(here.root, "bin/byleave"));
    const setting = change(here.root);
    const found = await problem(findEngine({ ...here, setting, env: { PATH: join(here.root, "bin") } }));
    expect(existsSync(`${other}.ran`)).toBe(false);
    expect(found.message).toContain("byleave.path");
    expect(found.button).toBe("Open Settings");
    return found;
  }

  it("missing", async () => {
    expect((await told((root) => join(root, "none"))).kind).toBe("setting");
  });

  it("relative", async () => {
    expect((await told(() => "byleave")).message).toContain("full path");
    expect((await told(() => "./byleave")).message).toContain("full path");
  });

  it("not executable, or a directory", async () => {
    const plain = (root: string) => {
      writeFileSync(join(root, "plain"), "");
      return join(root, "plain");
    };
    expect((await told(plain)).message).toContain("no program");
    expect((await told((root) => root)).message).toContain("no program");
  });

  it("another program", async () => {
    expect((await told(() => "/bin/echo")).message).toContain("does not answer as Byleave");
  });

  it("another version", async () => {
    const found = await told((root) => fake(join(root, "old"), { version: "0.0.9" }));
    expect(found.kind).toBe("version");
    expect(found.message).toContain("Byleave 0.0.9 with engine 0, and this extension needs engine 1");
  });

  it("in the opened folder", async () => {
    let path = "";
    const found = await told((root) => {
      path = fake(join(root, "ws/byleave"));
      return path;
    });
    expect(found.kind).toBe("setting");
    expect(found.message).toContain("opened folder");
    expect(existsSync(`${path}.ran`)).toBe(false);
  });
});

describe("nothing in an opened folder is run", () => {
  it("not from PATH, by whatever name", async () => {
    const here = machine();
    const own = fake(join(here.root, "ws/.venv/bin/byleave"));
    symlinkSync(join(here.root, "ws"), join(here.root, "alias"));
    mkdirSync(join(here.root, "links"));
    symlinkSync("../ws/.venv/bin/byleave", join(here.root, "links/byleave"));
    symlinkSync(join(here.root, "alias/.venv/bin"), join(here.root, "linked"));
    const entries = ["ws/.venv/bin", "alias/.venv/bin", "links", "linked", "links/../ws/.venv/bin"];
    for (const entry of entries) {
      const env = { PATH: `${here.root}/${entry}` };
      expect((await problem(findEngine({ ...here, env }))).kind).toBe("install");
      const folders = [join(here.root, "alias")];
      expect((await problem(findEngine({ ...here, env, folders }))).kind).toBe("install");
    }
    expect(existsSync(`${own}.ran`)).toBe(false);
    expect(here.logged).toHaveLength(10);
  });

  it("not from relative and empty entries of PATH", async () => {
    const here = machine();
    const stored = fake(join(here.storage, "byleave"));
    const before = process.cwd();
    try {
      process.chdir(here.storage);
      for (const PATH of ["", ":", ".", "./", "../storage"]) {
        expect((await problem(findEngine({ ...here, env: { PATH } }))).kind).toBe("install");
      }
    } finally {
      process.chdir(before);
    }
    expect(existsSync(`${stored}.ran`)).toBe(false);
  });

  it("not over a link in the folder that leads out of it: an agent can turn it", async () => {
    const here = machine();
    const outside = fake(join(here.root, "outside/byleave"));
    symlinkSync(outside, join(here.root, "ws/byleave"));
    mkdirSync(join(here.root, "bin"));
    symlinkSync(join(here.root, "ws/byleave"), join(here.root, "bin/byleave"));
    await problem(findEngine({ ...here, env: { PATH: join(here.root, "bin") } }));
    await problem(findEngine({ ...here, setting: join(here.root, "bin/byleave") }));
    expect(existsSync(`${outside}.ran`)).toBe(false);
  });

  it("not by an interpreter of the folder", async () => {
    const here = machine();
    mkdirSync(join(here.root, "ws/.venv/bin"), { recursive: true });
    // As in a real environment, the interpreter itself is a link to one outside.
    symlinkSync("/bin/sh", join(here.root, "ws/.venv/bin/python"));
    const inside = join(here.root, "ws/.venv/bin/python");
    const answer = `: > '${here.root}/ran'; echo '{"version": "0.1.0", "engine": 1}'`;
    script(join(here.root, "a/byleave"), answer, `#!${inside} -I`);
    script(join(here.root, "b/byleave"), `'''exec' "${inside}" "$0" "$@"\n' '''\n${answer}`);
    script(join(here.root, "c/byleave"), answer, `#!/usr/bin/env -S ${inside}`);
    for (const name of "abc") {
      await problem(findEngine({ ...here, env: { PATH: join(here.root, name) } }));
      expect(existsSync(join(here.root, "ran"))).toBe(false);
    }
  });

  it("not by a python3 that env finds in the folder", async () => {
    const here = machine();
    script(join(here.root, "ws/bin/python3"), `: > '${here.root}/ran'`);
    script(join(here.root, "bin/byleave"), `print('{"version": "0.1.0", "engine": 1}')`, "#!/usr/bin/env python3");
    const PATH = [join(here.root, "ws/bin"), "ws/bin", join(here.root, "bin"), "/usr/bin", "/bin"].join(delimiter);
    expect(await findEngine({ ...here, env: { PATH } })).toMatchObject({ from: "path" });
    expect(existsSync(join(here.root, "ran"))).toBe(false);
  });

  it("but from a directory beside it whose name begins alike", async () => {
    const here = machine();
    const twin = fake(join(here.root, "ws-evil/byleave"));
    expect(await findEngine({ ...here, env: { PATH: join(here.root, "ws-evil") } })).toMatchObject({ command: twin });
    expect(await findEngine({ ...here, setting: twin })).toMatchObject({ command: twin });
  });

  it("and links that go in circles are no way out", async () => {
    const here = machine();
    symlinkSync("b", join(here.root, "a"));
    symlinkSync("a", join(here.root, "b"));
    const env = { PATH: join(here.root, "a") };
    expect((await problem(findEngine({ ...here, env }))).kind).toBe("install");
  });

  it("nor is anything installed into it", async () => {
    const here = machine();
    const found = await problem(findEngine({ ...here, folders: [here.root] }));
    expect(found.message).toContain("Open a smaller folder");
    expect(found.button).toBe("Open Settings");
  });
});

describe("how it is run", () => {
  const env = {
    PATH: "/usr/bin:/bin",
    HOME: "/home/someone",
    HTTPS_PROXY: "http://proxy",
    PIP_INDEX_URL: "http://index",
    PYTHONPATH: "/evil",
    PYTHONSTARTUP: "/evil.py",
    VIRTUAL_ENV: "/env",
    ELECTRON_RUN_AS_NODE: "1",
    VSCODE_PID: "1",
    NODE_OPTIONS: "--require /evil.js",
    BYLEAVE_TOKEN: "secret",
    BYLEAVE_SERVER_URL: "http://evil",
    BYLEAVE_HOME: "/kept",
  };

  it("drops what would change how Python starts, and the token", () => {
    expect(Object.keys(engineEnvironment(env)).sort()).toEqual([
      "BYLEAVE_HOME",
      "HOME",
      "HTTPS_PROXY",
      "PATH",
      "PIP_INDEX_URL",
    ]);
    expect(engineEnvironment({ PATH: ".::bin" })).toEqual({});
  });

  it("drops what leads into a folder from PATH", () => {
    const here = machine();
    mkdirSync(join(here.root, "ws/bin"));
    const PATH = [join(here.root, "ws/bin"), "/usr/bin", "bin", ""].join(delimiter);
    expect(engineEnvironment({ PATH }, here.folders)).toEqual({ PATH: "/usr/bin" });
  });

  it("drops variables that lead into a folder, and what would change an install or weaken the engine", () => {
    const here = machine();
    const inside = join(here.root, "ws/x");
    const led = { LD_PRELOAD: inside, BASH_ENV: inside, SSL_CERT_FILE: inside, LD_LIBRARY_PATH: `/usr/lib:${inside}` };
    const own = { PIP_REQUIREMENT: "/r", PIP_PYTHON: "/p", UV_PYTHON: "/p", BYLEAVE_SANDBOX: "none" };
    const kept = {
      LD_LIBRARY_PATH: "/usr/lib",
      BYLEAVE_USER_POLICY: "/p.toml",
      PIP_FIND_LINKS: "/l",
      UV_INDEX_URL: "u",
    };
    expect(engineEnvironment({ ...led, ...own }, here.folders)).toEqual({});
    // The dynamic linker takes a list with spaces or semicolons, too.
    for (const mark of [" ", ";"]) {
      expect(engineEnvironment({ LD_PRELOAD: `libm.so${mark}${inside}` }, here.folders)).toEqual({});
    }
    expect(engineEnvironment(kept, here.folders)).toEqual(kept);
  });

  it("never a program whose Python is led to a folder by a .pth file or an editable install", async () => {
    for (const [name, text] of [
      ["x.pth", "FOLDER/src\n"],
      ["__editable___x_finder.py", "MAPPING = {'x': 'FOLDER/x'}"],
    ]) {
      const here = machine();
      const packages = join(here.root, "env/lib/python3.12/site-packages");
      mkdirSync(packages, { recursive: true });
      writeFileSync(join(packages, String(name)), String(text).replace("FOLDER", String(here.folders[0])));
      const python = fake(join(here.root, "env/bin/python3"));
      const own = script(join(here.root, "bin/byleave"), "");
      writeFileSync(own, `#!${python}\n`);
      const env = { PATH: join(here.root, "bin") };
      expect(await problem(findEngine({ ...here, env, setting: own }))).toMatchObject({ kind: "setting" });
      expect(existsSync(`${python}.ran`)).toBe(false);
    }
  });

  it("in the storage directory, with that environment and without input", async () => {
    const here = machine({ env: { ...env, PATH: "/usr/bin:/bin" } });
    const body = `pwd > '${here.root}/pwd'; env > '${here.root}/env'; cat; echo '{"version": "0.1.0", "engine": 1}'`;
    await findEngine({ ...here, setting: script(join(here.root, "own"), body) });
    expect(readFileSync(join(here.root, "pwd"), "utf8").trim()).toBe(here.storage);
    expect(readFileSync(join(here.root, "env"), "utf8")).not.toMatch(/secret|evil|ELECTRON|VSCODE|VIRTUAL_ENV/);
  });

  it("with an end: by the signal, at once, with all that it started", async () => {
    const here = machine();
    const started = join(here.root, "started");
    const body = `(sleep 60; : > '${here.root}/late') & echo $! > '${started}.new'; mv '${started}.new' '${started}'; wait`;
    const setting = script(join(here.root, "own"), body);
    const stop = new AbortController();
    const finding = findEngine({ ...here, env: { PATH: "/usr/bin:/bin" }, setting, signal: stop.signal });
    while (!existsSync(started)) await new Promise((resolve) => setTimeout(resolve, 10));
    stop.abort(new Error("called off"));
    await expect(finding).rejects.toThrow("called off");
    const pid = Number(readFileSync(started, "utf8"));
    await expect.poll(() => running(pid)).toBe(false);
    await expect(findEngine({ ...here, setting, signal: stop.signal })).rejects.toThrow("called off");
  });

  it("with bounded output", async () => {
    const here = machine({ env: { PATH: "/usr/bin:/bin" } });
    const body = `head -c 3000000 /dev/zero | tr '\\0' x; echo '{"version": "0.1.0", "engine": 1}'`;
    const found = await problem(findEngine({ ...here, setting: script(join(here.root, "own"), body) }));
    expect(found.message).toContain("does not answer as Byleave");
    expect(here.logged.join("").length).toBeLessThan(5000);
  });
});

it("folders that are not there, or moved, do no harm", async () => {
  const here = machine();
  const own = fake(join(here.root, "bin/byleave"));
  renameSync(join(here.root, "ws"), join(here.root, "gone"));
  expect(await findEngine({ ...here, setting: own })).toMatchObject({ from: "setting" });
});

function running(pid: number): boolean {
  try {
    // One that ended and was not yet waited for counts as ended.
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}
