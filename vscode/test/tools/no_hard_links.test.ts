// A file system without hard links, or one whose link arrives a moment too late: files are written, put in place and taken
// away all the same, and what somebody else saved is never lost. Only the system's `link` is another here.

import { lstatSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { O_DIRECTORY, O_PATH, type Opened, PathValidator } from "../../src/tools/PathValidator.js";
import { place, swap, takeAway, Unexpected } from "../../src/tools/swapping.js";
import { Workspace } from "../../src/tools/Workspace.js";
import { workspaceWith } from "./places.js";

const system = vi.hoisted(() => ({ link: (_from: string, _to: string): void => {} }));

vi.mock("node:fs", async (original) => {
  const real = await original<typeof import("node:fs")>();
  return { ...real, linkSync: (from: string, to: string) => system.link(from, to) };
});

const failing = (code: string) => () => {
  throw Object.assign(new Error(code), { code });
};

let root: string;
let directory: Opened;
const text = (name: string) => readFileSync(join(root, name), "utf8");
const names = () => readdirSync(root).sort();
const stat = async (name: string) => lstatSync(`${directory.base}/${name}`, { bigint: true });

beforeEach(() => {
  root = workspaceWith({ "a.txt": "old", draft: "draft" });
  directory = new PathValidator(root).open(".", O_PATH | O_DIRECTORY);
});

afterEach(() => {
  system.link = () => {};
});

describe.each([["EPERM"], ["EOPNOTSUPP"], ["ENOTSUP"]])("Where a link is answered with %s", (code) => {
  beforeEach(() => {
    system.link = failing(code);
  });

  it("a draft takes a free name, and no other", () => {
    expect(() => place(directory, "draft", "a.txt")).toThrow(Unexpected);
    expect([text("a.txt"), text("draft")]).toEqual(["old", "draft"]);
    place(directory, "draft", "b.txt");
    expect([names(), text("b.txt")]).toEqual([["a.txt", "b.txt"], "draft"]);
  });

  it("a file is replaced only while it is what was compared", async () => {
    const saved = async (name: string) => {
      const seen = await stat(name);
      writeFileSync(join(root, "a.txt"), "saved");
      return seen;
    };
    await expect(swap(directory, "draft", "a.txt", saved)).rejects.toThrow(Unexpected);
    expect([text("a.txt"), text("draft")]).toEqual(["saved", "draft"]);
    await swap(directory, "draft", "a.txt", stat);
    expect([names(), text("a.txt")]).toEqual([["a.txt"], "draft"]);
  });

  it("a file that was saved while it was taken away is put back", async () => {
    let looked = 0;
    const changing = async (name: string) => {
      looked += 1;
      return looked === 1 ? stat(name) : undefined;
    };
    await expect(takeAway(directory, "a.txt", changing)).rejects.toThrow(Unexpected);
    expect([text("a.txt"), names()]).toEqual(["old", ["a.txt", "draft"]]);
  });

  it("a new file is written", async () => {
    const workspace = new Workspace(root);
    const params = { path: "new.md", content: "new", mode: "write" };
    expect(await workspace.run("write_file", params)).toMatchObject({ success: true });
    expect([text("new.md"), names()]).toEqual(["new", ["a.txt", "draft", "new.md"]]);
  });
});

describe("A new file", () => {
  const write = () => new Workspace(root).run("write_file", { path: "new.md", content: "ours", mode: "write" });

  it.each([["EEXIST"], ["EPERM"]])("that somebody else makes at that moment stays theirs (%s)", async (code) => {
    system.link = (_from, to) => {
      writeFileSync(to, "theirs");
      failing(code)();
    };
    await expect(write()).rejects.toThrow("'new.md' appeared while it was written.");
    expect([text("new.md"), names()]).toEqual(["theirs", ["a.txt", "draft", "new.md"]]);
  });

  it("that the system refuses for another reason is not written, and nothing stays of it", async () => {
    system.link = failing("EIO");
    await expect(write()).rejects.toThrow("i/o error");
    expect(names()).toEqual(["a.txt", "draft"]);
    expect(() => place(directory, "draft", "b.txt")).toThrow("EIO");
    expect(names()).toEqual(["a.txt", "draft"]);
  });
});
