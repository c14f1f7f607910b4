// Finds the engine: the Python client that this extension starts. The person's own setting first, then PATH, then a
// private environment. A setting that is wrong is told, never passed over; nothing in an opened folder is ever run.

import { mkdirSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { privateEngine } from "./install.js";
import {
  askVersion,
  ENGINE,
  EngineProblem,
  type EngineProgram,
  executable,
  home,
  programs,
  type Surroundings,
  startsIn,
} from "./outside.js";

export { ENGINE, EngineProblem, type EngineProgram, engineEnvironment, type Surroundings } from "./outside.js";

/** The program to start the engine with. Throws an EngineProblem, or the signal's reason when aborted. */
export async function findEngine(around: Surroundings): Promise<EngineProgram> {
  try {
    // Programs are run in it.
    mkdirSync(around.storage, { recursive: true });
  } catch (error) {
    throw new EngineProblem(
      "install",
      "Byleave could not make its storage directory. The log says why.",
      String(error),
    );
  }
  const setting = around.setting?.trim();
  if (setting) return fromSetting(setting, around);
  return (await fromPath(around)) ?? (await privateEngine(around));
}

async function fromSetting(setting: string, around: Surroundings): Promise<EngineProgram> {
  const command = setting.startsWith("~/") ? join(home(around), setting.slice(2)) : setting;
  if (!isAbsolute(command)) {
    throw new EngineProblem(
      "setting",
      `The setting byleave.path must be a full path such as ~/bin/byleave; '${setting}' is not one.`,
    );
  }
  if (!executable(command)) {
    throw new EngineProblem(
      "setting",
      `There is no program at '${setting}'. Correct the setting byleave.path, or clear it.`,
    );
  }
  if (startsIn(command, around.folders)) {
    throw new EngineProblem(
      "setting",
      `'${setting}' runs from an opened folder, where agents could change it. Set byleave.path to a program outside.`,
    );
  }
  const found = await askVersion(command, [], around);
  if (found === null) {
    throw new EngineProblem(
      "setting",
      `'${setting}' does not answer as Byleave does. Correct the setting byleave.path, or clear it.`,
    );
  }
  if (found.engine !== ENGINE) {
    throw new EngineProblem(
      "version",
      `The setting byleave.path names Byleave ${found.version} with engine ${found.engine ?? "0"}, and this extension needs engine ${ENGINE}. Update that program, or clear the setting.`,
    );
  }
  return { command, args: [], version: found.version, from: "setting" };
}

async function fromPath(around: Surroundings): Promise<EngineProgram | null> {
  for (const command of programs(["byleave"], around)) {
    const found = await askVersion(command, [], around);
    if (found?.engine === ENGINE) return { command, args: [], version: found.version, from: "path" };
    if (found !== null) around.log("skipped a Byleave that does not fit", { command, ...found, needed: ENGINE });
  }
  return null;
}
