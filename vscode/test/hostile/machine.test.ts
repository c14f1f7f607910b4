// What a command finds in the sandbox: nothing of the editor, in its environment or among its descriptors.

import { spawnSync } from "node:child_process";
import { closeSync, openSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { buildSync } from "esbuild";
import { expect, it } from "vitest";
import { temporary, workspaceWith } from "../tools/places.js";

const LOOK = `import os
print(sorted(os.environ))
for fd in sorted(map(int, os.listdir('/proc/self/fd'))):
    try: print('fd', fd, os.readlink(f'/proc/self/fd/{fd}'))
    except OSError: pass
try: print(os.listdir(40))
except OSError as error: print(error)
`;
const RUN = `import { Workspace } from "./src/tools/Workspace.js";
const workspace = new Workspace(process.argv[2]!);
const result = await workspace.run("execute_command", { command: "python", args: ["look.py"], timeout: 20 });
console.log((result as unknown as { stdout: string }).stdout);
workspace.close();
`;

it("A command gets no variable of the editor, and no descriptor that the editor itself inherited", () => {
  const root = workspaceWith({ "look.py": LOOK });
  const outfile = join(temporary(), "run.mjs");
  const resolveDir = join(import.meta.dirname, "../..");
  buildSync({
    stdin: { contents: RUN, resolveDir, loader: "ts" },
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
  });
  const outside = openSync("/", "r");
  const stdio: ("ignore" | "pipe" | number)[] = [
    "ignore",
    "pipe",
    "pipe",
    ...new Array<"ignore">(37).fill("ignore"),
    outside,
  ];
  const env = { ...process.env, BYLEAVE_TEST_SECRET: "of-the-editor" };
  const { stdout, stderr } = spawnSync(process.execPath, [outfile, root], { stdio, env, encoding: "utf8" });
  closeSync(outside);
  expect(stderr).toBe("");
  expect(stdout).not.toContain("BYLEAVE_TEST_SECRET");
  const others = stdout.match(/^fd (?!0 |1 |2 ).*$/gm) ?? [];
  expect(others.filter((line) => !line.endsWith(" /dev/null"))).toEqual([]);
  expect(stdout).toContain("Not a directory");
  expect(readdirSync(root)).toEqual(["look.py"]);
});
