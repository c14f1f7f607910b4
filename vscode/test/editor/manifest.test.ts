// The manifest against the code: what it offers exists, and what a repository brings along in .vscode/settings.json has no
// say in how agents may work in it, by the manifest, which the editor goes by, and by what is read.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeEach, expect, test } from "vitest";
import { ChangedFiles } from "../../src/editor/changes.js";
import { type CommandPorts, registerCommands } from "../../src/editor/commands.js";
import { Differences } from "../../src/editor/diffs.js";
import { ENGINE_SETTINGS, readSettings, workspaceSettings } from "../../src/editor/settings.js";
import { searchSettings } from "../../src/editor/web_search.js";
import { folderSettings, handlers, reset, Secrets, settings, workspace } from "./fake_vscode.js";

interface Step {
  readonly description: string;
  readonly media: { readonly markdown: string };
}

interface Manifest {
  readonly activationEvents: readonly string[];
  readonly capabilities: { readonly untrustedWorkspaces: { readonly restrictedConfigurations: readonly string[] } };
  readonly contributes: {
    readonly commands: readonly { readonly command: string; readonly title: string }[];
    readonly keybindings: readonly { readonly command: string; readonly key: string; readonly mac: string }[];
    readonly menus: Readonly<Record<string, readonly { readonly command: string; readonly when: string }[]>>;
    readonly views: { readonly byleave: readonly { readonly id: string }[] };
    readonly walkthroughs: readonly { readonly steps: readonly Step[] }[];
    readonly viewsWelcome: readonly { readonly contents: string; readonly view: string }[];
    readonly configuration: { readonly properties: Readonly<Record<string, { readonly scope: string }>> };
  };
}

const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as Manifest;
const properties = manifest.contributes.configuration.properties;

beforeEach(reset);

test.each(Object.entries(properties))("%s can be set for a machine only, never by a folder", (name, { scope }) => {
  expect(scope).toBe("machine");
  expect(manifest.capabilities.untrustedWorkspaces.restrictedConfigurations).toContain(name);
});

async function everything() {
  return { ...readSettings(), ...workspaceSettings(), ...(await searchSettings(new Secrets() as never)) };
}

test("what a folder says is not read, even if the editor let it through", async () => {
  const before = await everything();
  for (const name of Object.keys(properties)) folderSettings.set(name.replace("byleave.", ""), 7);
  folderSettings.set("serverUrl", "https://evil.example");
  folderSettings.set("path", "./evil");
  folderSettings.set("sandbox", "none");
  expect(await everything()).toEqual(before);
});

test("every setting is read, and no other", async () => {
  const read = new Set<string>();
  const inspect = (name: string) => {
    read.add(`byleave.${name}`);
    return { globalValue: settings.get(name) };
  };
  const { getConfiguration } = workspace;
  try {
    workspace.getConfiguration = () => ({ ...getConfiguration(), inspect }) as never;
    await everything();
  } finally {
    workspace.getConfiguration = getConfiguration;
  }
  expect([...read].sort()).toEqual(Object.keys(properties).sort());
  for (const name of ENGINE_SETTINGS) {
    expect(Object.keys(properties).some((each) => each === name || each.startsWith(`${name}.`))).toBe(true);
  }
});

const sources = fileURLToPath(new URL("../../src", import.meta.url));
const code = readdirSync(sources, { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".ts"))
  .map((name) => readFileSync(join(sources, name), "utf8"))
  .join("\n");

test("every command of the palette, the menus and the keys exists, and none beside them", () => {
  new ChangedFiles(new Differences());
  registerCommands({ signing: {} } as CommandPorts);
  // The extension's own beginning registers this one.
  const own = [...code.matchAll(/registerCommand\("(byleave\.setSearchKey)"/g)].map(([, name]) => name);
  const { commands, keybindings, menus } = manifest.contributes;
  const offered = commands.map(({ command }) => command);
  expect([...handlers.keys(), ...own].sort()).toEqual([...offered].sort());
  for (const { command } of [...keybindings, ...Object.values(menus).flat()]) expect(offered).toContain(command);
});

test("every key is bound once, on a Mac too", () => {
  for (const name of ["key", "mac"] as const) {
    const keys = manifest.contributes.keybindings.map((each) => each[name]);
    expect(new Set(keys).size).toBe(keys.length);
    expect(keys).not.toContain(undefined);
  }
});

test("every context that the menus and keys ask for is set somewhere", () => {
  const { keybindings, menus } = manifest.contributes;
  const asked = JSON.stringify([keybindings, menus]).match(/byleave\.(connected|askingDiffs)/g) ?? [];
  expect(new Set(asked)).toContain("byleave.askingDiffs");
  for (const name of new Set(asked)) expect(code).toContain(`"${name}"`);
  for (const { id } of manifest.contributes.views.byleave) expect(code).toContain(`"${id}"`);
});

test("a link that is opened from outside wakes the extension", () => {
  expect(manifest.activationEvents).toContain("onUri");
});

test("the walkthrough has its pictures, each with words for those who do not see it", () => {
  const steps = manifest.contributes.walkthroughs.flatMap((each) => each.steps);
  const root = fileURLToPath(new URL("../../", import.meta.url));
  for (const { media } of steps) {
    const text = readFileSync(join(root, media.markdown), "utf8");
    for (const [, words, name] of text.matchAll(/!\[([^\]]*)\]\(([^)]+)\)/g)) {
      expect(words).not.toBe("");
      expect(readdirSync(join(root, "media/walkthrough"))).toContain(name);
    }
  }
  const pictured = steps.filter(({ media }) => readFileSync(join(root, media.markdown), "utf8").includes("!["));
  expect(pictured.length).toBeGreaterThanOrEqual(5);
});

test("the empty list of changes says what it is for", () => {
  const { views, viewsWelcome } = manifest.contributes;
  expect(viewsWelcome.map(({ view }) => view)).toEqual(["byleave.changes"]);
  expect(viewsWelcome[0]?.contents).toMatch(/^\$\(diff\) No changes yet\.\n/);
  expect(views.byleave.map(({ id }) => id)).toContain("byleave.changes");
});

test("the steps of the walkthrough mark code as the editor reads it there: with two marks on each side", () => {
  const steps = manifest.contributes.walkthroughs.flatMap((each) => each.steps);
  expect(steps.some(({ description }) => description.includes("``"))).toBe(true);
  for (const { description } of steps) expect(description.replace(/``[^`]+``/g, "")).not.toContain("`");
});
