// The checks a signal passes before anything acts on it: the client trusts none of them blindly (C2). In order: is its time
// still running, is it still wanted, is it what was approved (the digest, computed here), does the owner's own gate let it
// pass, where the gate wants an approval, is there one, and was everything shown that it would run. The first that fails
// ends it with an error whose type says why. Nothing here runs a tool.

import { isDeepStrictEqual } from "node:util";
import type { ExecutionSignal } from "@protocol";
import { alwaysAsks, type Gate, message, type Params, type Verdict } from "../gate/index.js";
import { callDigest } from "../protocol/digests.js";
import { TOO_LATE } from "./deadline.js";
import { ByleaveError, DriftedError, ExecutionCancelled, ExecutionTimeout, NotFound, RefusedError } from "./errors.js";
import type { Link } from "./link.js";
import type { Clock, Log } from "./ports.js";
import type { Workspace } from "./Workspace.js";
import { repr, TABLES, type ToolName } from "./words.js";

/** A signal older than this may have ended meanwhile; before it changes anything the server is asked. */
const STALE = 10_000;
const ENDED: readonly string[] = ["COMPLETED", "REJECTED", "TIMEOUT", "FAILED"];

/** A call that may run, as it was understood. */
export interface Passed {
  readonly verdict: Verdict;
  readonly params: Params;
}

export interface CheckParts {
  readonly projectId: string;
  readonly workspace: Workspace;
  readonly gate: Gate;
  readonly link: Link;
  readonly clock: Clock;
  readonly log: Log;
}

/** Checks signals for one project and workspace. */
export class SignalChecks {
  /** How many milliseconds the server's clock is ahead of ours; deadlines are on the server's. */
  serverAhead = 0;

  constructor(private readonly parts: CheckParts) {}

  /** What may run, and the gate's verdict on it; throws for any other. */
  async check(event: ExecutionSignal): Promise<Passed> {
    const now = this.parts.clock.now() + this.serverAhead;
    if (now >= Date.parse(event.deadline)) {
      throw new ExecutionTimeout(TOO_LATE);
    }
    if (TABLES.tools[event.tool_name as ToolName].changes_things && now - Date.parse(event.timestamp) > STALE) {
      await this.#checkStillWanted(event);
    }
    this.#checkDigest(event);
    return this.#checkGate(event);
  }

  /** A replayed signal may have been called off or given up meanwhile: it must not have a late effect. */
  async #checkStillWanted(event: ExecutionSignal): Promise<void> {
    let status = "FAILED";
    try {
      ({ status } = await this.parts.link.getTool(event.tool_id));
    } catch (error) {
      if (!(error instanceof ByleaveError)) {
        throw error;
      }
      if (!(error instanceof NotFound)) {
        // The signal is genuine and in time; not being able to ask again is no reason against it.
        const fields = { tool_id: event.tool_id, error: error.message };
        this.parts.log.warn("could not ask whether it is still wanted", fields);
        return;
      }
    }
    if (ENDED.includes(status)) {
      throw new ExecutionCancelled("It ended on the server before it could be run; nothing was run.");
    }
  }

  #checkDigest(event: ExecutionSignal): void {
    let digest: string | undefined;
    try {
      digest = callDigest(event.tool_name, event.tool_params, this.parts.projectId, event.bound);
    } catch {
      // What JSON cannot say one way has no digest, so nobody can have approved it.
    }
    if (digest !== event.digest) {
      throw new DriftedError("What was signalled is not what was approved; nothing was run.");
    }
  }

  async #checkGate(event: ExecutionSignal): Promise<Passed> {
    const { isolated } = await this.parts.workspace.isolation();
    const passed = this.#judge(event, event.tool_params, isolated);
    if (this.parts.gate.policy.hasRules) {
      // A rule knows names only: a link must meet the rules of what it leads to as well.
      const real = this.parts.workspace.underRealNames(passed.params);
      if (!isDeepStrictEqual(real, passed.params)) {
        this.#judge(event, real, isolated);
      }
    }
    checkBound(event, passed.verdict);
    return passed;
  }

  /** Our own verdict on a call under one spelling; throws where that needed more than the signal has. */
  #judge(event: ExecutionSignal, params: unknown, isolated: boolean): Passed {
    const { gate, workspace } = this.parts;
    const judgement = gate.judge(event.tool_name, params, { workspace: workspace.root, isolated });
    const { verdict } = judgement;
    if (verdict.level === "REFUSE" || judgement.params === null) {
      throw new RefusedError(message(verdict), null, verdict.errorType ?? "refused");
    }
    if (verdict.level === "LOW") {
      return { verdict, params: judgement.params };
    }
    if (event.approved_by.startsWith("mode:") && gate.policy.widestMode === "sandbox") {
      throw new RefusedError("This machine's rules permit no mode but sandbox; it was not run.");
    }
    if (!hasApproval(event, verdict)) {
      const needed = alwaysAsks(verdict) ? "approval by a person" : "approval";
      throw new RefusedError(
        `On this machine it is ${verdict.level}: it needed ${needed} and has none, so it was not run.`,
      );
    }
    return { verdict, params: judgement.params };
  }
}

/** An answer to a question covers what was shown: it must be bound to exactly the files that would run. */
function checkBound(event: ExecutionSignal, verdict: Verdict): void {
  const [kind] = event.approved_by.split(":", 1);
  // A mode and the owner's own rules answer no question; nothing had to be shown for them.
  if (!["person", "grant"].includes(kind ?? "") || verdict.level === "LOW") {
    return;
  }
  const bound = Object.keys(event.bound);
  if (event.tool_name === "write_file" && bound.length <= 1) {
    return; // that it is this one is the workspace's to see, which knows the links
  }
  const differ = [
    ...verdict.runs.filter((path) => !bound.includes(path)),
    ...bound.filter((path) => !verdict.runs.includes(path)),
  ];
  if (differ.length > 0) {
    const names = differ.sort().slice(0, 3).map(repr).join(", ");
    throw new DriftedError(
      `What was shown is not what it would run (${names}); nothing was run.`,
      "Ask again: what it would run is then shown.",
    );
  }
}

/** What must be there as it was shown. A grant covers writes whatever they replace: it was given without a look. */
export function boundOf(event: ExecutionSignal): Readonly<Record<string, string>> {
  return event.tool_name === "write_file" && !event.approved_by.startsWith("person:") ? {} : event.bound;
}

/** Whether the signal says who allowed it. What always asks is allowed by a person alone. */
export function hasApproval(event: ExecutionSignal, verdict: Verdict): boolean {
  const at = event.approved_by.indexOf(":");
  if (at < 0) {
    return false; // a kind without a name
  }
  const [kind, name] = [event.approved_by.slice(0, at), event.approved_by.slice(at + 1)];
  if (alwaysAsks(verdict) && kind !== "person") {
    return false;
  }
  switch (kind) {
    case "person":
      return name !== "" && event.approval_id !== null;
    case "grant":
      return name !== "";
    case "mode":
      return name === "full" && event.mode === "full";
    case "rule": // counts only where this machine's own rules allow the call too
      return name !== "" && verdict.waivedBy !== null;
    default:
      return false;
  }
}
