// What the owner denies, under names that a text cannot hold.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { Policy, parsePolicy } from "../../src/gate/index.js";
import { Workspace } from "../../src/tools/Workspace.js";
import { workspaceWith } from "../tools/places.js";

const LOOK = `import os
for place, _, names in os.walk(b'.'):
    for name in names:
        if name.endswith(b'.key'):
            try: print(open(os.path.join(place, name)).read())
            except OSError as error: print(error.strerror)
`;
const policy = new Policy([
  parsePolicy('[[rule]]\naction = "deny"\npaths = ["**/*.key"]\n', "user", "policy.toml", true),
]);
const ODD = Buffer.from([0x64, 0xff]);

function look(root: string) {
  return new Workspace(root, { policy }).run("execute_command", { command: "python", args: ["look.py"], timeout: 20 });
}

it("A denied file whose name is no UTF-8 cannot be covered, so no command runs", async () => {
  const root = workspaceWith({ "look.py": LOOK });
  writeFileSync(Buffer.concat([Buffer.from(`${root}/`), ODD, Buffer.from(".key")]), "the secret");
  await expect(look(root)).rejects.toThrow("cannot be hidden");
});

it("Nor where such a name is a directory's, which cannot be looked into", async () => {
  const root = workspaceWith({ "look.py": LOOK });
  const directory = Buffer.concat([Buffer.from(`${root}/`), ODD]);
  mkdirSync(directory);
  writeFileSync(Buffer.concat([directory, Buffer.from("/a.key")]), "the secret");
  await expect(look(root)).rejects.toThrow("cannot be hidden");
});

it("Such a name that no rule is about, and one that only looks like it, hold nothing up", async () => {
  const root = workspaceWith({ "look.py": LOOK, "\ufffd.key": "the secret" });
  writeFileSync(Buffer.concat([Buffer.from(`${root}/`), ODD, Buffer.from(".txt")]), "plain");
  mkdirSync(join(root, "\ufffd"));
  const { stdout } = (await look(root)) as unknown as { stdout: string };
  expect(stdout).not.toContain("the secret");
});
