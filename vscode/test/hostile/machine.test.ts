// What a command finds in the sandbox: nothing of the editor, in its environment or among its descriptors.

import { readdirSync } from "node:fs";
import { expect, it } from "vitest";
import { Workspace } from "../../src/tools/Workspace.js";
import { workspaceWith } from "../tools/places.js";

it("A command inherits no variable and no descriptor of the editor", async () => {
  process.env.ASSENT_TEST_SECRET = "of-the-editor";
  const root = workspaceWith({
    "look.py":
      "import os\nprint(sorted(os.environ))\nfor fd in sorted(map(int, os.listdir('/proc/self/fd'))):\n" +
      "    try: print('fd', fd, os.readlink(f'/proc/self/fd/{fd}'))\n    except OSError: pass\n",
  });
  const workspace = new Workspace(root);
  const result = await workspace.run("execute_command", { command: "python", args: ["look.py"], timeout: 20 });
  const { stdout } = result as unknown as { stdout: string };
  console.log(stdout, JSON.stringify(result));
  expect(stdout).not.toContain("ASSENT_TEST_SECRET");
  expect(stdout.match(/^fd \d+/gm)).toEqual(["fd 0", "fd 1", "fd 2"]);
  expect(readdirSync(root)).toEqual(["look.py"]);
  workspace.close();
});
