// execute_command: one gated argv, run in the workspace's sandbox, without a shell. It finds the program in fixed
// directories, adds the options that keep git and zip from running or reading what they should not, starts it in the
// sandbox, and gives back bounded output. Exit codes are the command's own; one that a signal ended has 128 + the signal's
// number; null means that we ended it. What the owner's rules deny is covered, and where that cannot be done nothing runs.
// Where nothing isolates commands it refuses, unless the owner's setting says that none is wanted.

import { lstatSync } from "node:fs";
import type { ExecuteCommandResult } from "@protocol";
import { CommandValidator, changesWhatItRuns } from "../gate/index.js";
import { ByleaveError, ExecutionTimeout, RefusedError, ToolFailure } from "./errors.js";
import type { RunOptions } from "./FileSystemExecutor.js";
import type { Floor } from "./floor.js";
import { startsNothing } from "./git_words.js";
import { checkOperands, safeArguments } from "./operands.js";
import { type OnOutput, OutputKeeper } from "./output.js";
import type { PathValidator } from "./PathValidator.js";
import type { HeldFiles, Holding } from "./pins.js";
import { type Clock, SYSTEM_CLOCK, type ToolSettings } from "./ports.js";
import { type Ended, type ProcessOptions, runProcess } from "./processes.js";
import { findProgram } from "./programs.js";
import { drifted } from "./replacing.js";
import type { Launch, Sandbox } from "./sandbox.js";
import { repr, visibleName } from "./words.js";

const MAX_TOLD = 10;
/** To the agent, which gives the parameter. */
export const MORE_TIME = "Give it more time with 'timeout' (at most 300), or less to do.";

export interface CommandParams {
  readonly command: string;
  readonly args: readonly string[];
  readonly timeout: number;
}

export interface CommandOptions extends RunOptions {
  readonly network?: boolean;
  readonly onOutput?: OnOutput | undefined;
}

/** Runs commands of one workspace. */
export class CommandExecutor {
  constructor(
    private readonly paths: PathValidator,
    private readonly sandbox: Sandbox,
    private readonly settings: Pick<
      ToolSettings,
      "commandTimeoutSeconds" | "commandIdleSeconds" | "maxOutputBytes" | "sandbox"
    >,
    private readonly held: HeldFiles,
    private readonly floor: Floor,
    private readonly clock: Clock = SYSTEM_CLOCK,
  ) {}

  /** Run it to its end. Throws ExecutionTimeout (with the output so far) when time is up. */
  async run(params: CommandParams, options: CommandOptions = {}): Promise<ExecuteCommandResult> {
    const { args, command } = params;
    if ([command, ...args].some((word) => word.includes("\0"))) {
      throw new ToolFailure("An argument holds a NUL character, which no program can be given.");
    }
    if (!this.sandbox.isolation().isolated && this.settings.sandbox !== "none") {
      throw new RefusedError(
        `Nothing isolates commands on this machine, so none is run: ${this.sandbox.isolation().degraded[0]}`,
        "install bubblewrap, or allow commands without isolation in the settings of Byleave",
      );
    }
    checkOperands(this.paths, command, args);
    const argv = [findProgram(command, this.paths.root), ...safeArguments(command, args)];
    const keeper = new OutputKeeper(this.settings.maxOutputBytes, options.onOutput);
    const seconds = Math.min(params.timeout, this.settings.commandTimeoutSeconds);
    const masked = this.floor.masked(this.paths);
    const began = this.clock.monotonic();
    const { ended, launch, created } = await this.#start(params, argv, keeper, seconds, masked, options);
    const took = (this.clock.monotonic() - began) / 1000;
    const warnings = startsNothing(argv) ? [] : this.#newDenied(masked);
    const result = resultOf(command, ended, keeper, launch, created, took, warnings);
    if (ended.idle) {
      const quiet = this.settings.commandIdleSeconds;
      throw new ExecutionTimeout(
        `${command} printed nothing for ${quiet} s and was ended.`,
        "A setting of Byleave says how long it may be quiet.",
        result,
      );
    }
    if (ended.timedOut) {
      throw new ExecutionTimeout(`${command} ran longer than ${seconds} s and was ended.`, MORE_TIME, result);
    }
    return result;
  }

  async #start(
    { args, command }: CommandParams,
    argv: readonly string[],
    keeper: OutputKeeper,
    seconds: number,
    masked: readonly string[],
    { bound = {}, late, network = false, signal }: CommandOptions,
  ): Promise<{ ended: Ended; launch: Launch; created: string[] }> {
    let holding: Holding | undefined;
    if (Object.keys(bound).length > 0) {
      const { understood } = new CommandValidator([command]).judge(command, args, null);
      holding = await this.held.hold(bound, !changesWhatItRuns(command, args, understood));
    }
    try {
      const launch = await this.sandbox.launch(argv, { network, masked, pins: holding?.pins ?? [], signal });
      let created: string[] = [];
      try {
        this.#checkCovered(launch, masked);
        const idleSeconds = this.settings.commandIdleSeconds;
        const limits = { seconds, idleSeconds, late, clock: this.clock };
        const ended = holding
          ? await runHeld(launch, keeper, limits, holding, signal)
          : await runProcess(launch, keeper, { ...limits, signal });
        created = launch.release();
        return { ended, launch, created };
      } catch (error) {
        launch.release();
        throw error;
      }
    } finally {
      holding?.close();
    }
  }

  /** What is denied must be covered, or nothing runs: a sandbox may be too weak for it, or there is none. */
  #checkCovered(launch: Launch, masked: readonly string[]): void {
    const bare = masked.find(
      (path) =>
        !launch.isolation.masked.includes(path) &&
        lstatSync(`${this.paths.root}/${path}`, { throwIfNoEntry: false }) !== undefined,
    );
    if (bare !== undefined) {
      throw new RefusedError(
        `${repr(visibleName(bare))} is denied by this machine's rules, and here nothing keeps a command from it; nothing was run.`,
        "install bubblewrap, or use the file tools",
      );
    }
  }

  /** What a command made where the rules deny everything: nothing was there to be covered. */
  #newDenied(before: readonly string[]): string[] {
    try {
      const made = this.floor.masked(this.paths).filter((path) => !before.includes(path));
      const told = made
        .slice(0, MAX_TOLD)
        .map((path) => `It made ${repr(visibleName(path))}, which this machine's rules deny; look at it.`);
      return made.length <= MAX_TOLD ? told : [...told, `It made ${made.length - MAX_TOLD} more that are denied.`];
    } catch (error) {
      return [`Whether it made something that is denied could not be looked at. ${(error as Error).message}`];
    }
  }
}

/** Run it while the watch stands: at a change it is ended, and what it said is withheld. */
async function runHeld(
  launch: Launch,
  keeper: OutputKeeper,
  limits: Omit<ProcessOptions, "signal">,
  holding: Holding,
  signal: AbortSignal | undefined,
): Promise<Ended> {
  holding.covered = launch.covered;
  await holding.check();
  const stop = new AbortController();
  const cancel = () => stop.abort();
  signal?.addEventListener("abort", cancel, { once: true });
  if (signal?.aborted) {
    cancel(); // while the files were compared, or while others had their turn
  }
  holding.begin(cancel);
  try {
    const ended = await runProcess(launch, keeper, { ...limits, signal: stop.signal });
    if (holding.drifted === undefined) {
      return ended;
    }
  } catch (error) {
    // Ended by us, or the sandbox itself stumbled over the change.
    if (holding.drifted === undefined || signal?.aborted || !(error instanceof ByleaveError)) {
      throw error;
    }
  } finally {
    signal?.removeEventListener("abort", cancel);
  }
  throw drifted(holding.drifted, "it was ended while it started");
}

function resultOf(
  command: string,
  ended: Ended,
  keeper: OutputKeeper,
  launch: Launch,
  created: readonly string[],
  seconds: number,
  warnings: string[],
): ExecuteCommandResult {
  let error: string | null = null;
  if (ended.timedOut) {
    error = `${command} was ended because its time was up.`;
  } else if (ended.exitCode !== 0) {
    error = `${command} ended with exit code ${ended.exitCode}.`;
  }
  return {
    success: error === null,
    error,
    ...keeper.captured(),
    exit_code: ended.exitCode,
    execution_time: Math.round(seconds * 1000) / 1000,
    isolation: { ...launch.isolation, created: [...created] },
    changed: [],
    changed_count: 0,
    warnings,
  };
}
