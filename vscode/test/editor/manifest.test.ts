// What a repository brings along in .vscode/settings.json has no say in how agents may work in it: by the manifest, which
// the editor goes by, and by what is read.

import { readFileSync } from "node:fs";
import { beforeEach, expect, test } from "vitest";
import { readSettings } from "../../src/editor/settings.js";
import { folderSettings, reset } from "./fake_vscode.js";

interface Manifest {
  readonly activationEvents: readonly string[];
  readonly capabilities: { readonly untrustedWorkspaces: { readonly restrictedConfigurations: readonly string[] } };
  readonly contributes: {
    readonly walkthroughs: readonly { readonly steps: readonly { readonly description: string }[] }[];
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

test("what a folder says is not read, even if the editor let it through", () => {
  const before = readSettings();
  for (const name of Object.keys(properties)) folderSettings.set(name.replace("byleave.", ""), true);
  folderSettings.set("serverUrl", "https://evil.example");
  folderSettings.set("serverCommand", "./evil");
  folderSettings.set("sandbox", "none");
  folderSettings.set("connectAtStart", false);
  folderSettings.set("notifications", false);
  expect(readSettings()).toEqual(before);
});

test("a link that is opened from outside wakes the extension", () => {
  expect(manifest.activationEvents).toContain("onUri");
});

test("the steps of the walkthrough mark code as the editor reads it there: with two marks on each side", () => {
  const steps = manifest.contributes.walkthroughs.flatMap((each) => each.steps);
  expect(steps.some(({ description }) => description.includes("``"))).toBe(true);
  for (const { description } of steps) expect(description.replace(/``[^`]+``/g, "")).not.toContain("`");
});
