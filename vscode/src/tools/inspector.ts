// Answers to the server's question what a call would run or replace, before it asks a person. The owner's own gate judges
// the call first, under its real name too: what it refuses is not looked at. Each question is answered once at a time, and
// again when it is asked again. An answer that cannot be posted is dropped: the server asks again. Nothing is run here.

import { isDeepStrictEqual } from "node:util";
import type { Inspection, InspectionRequested, SeenFile } from "@protocol";
import { type Gate, type Judgement, maskText, message } from "../gate/index.js";
import { ByleaveError, CallerError, kindOf, NotFound, UnreachableError } from "./errors.js";
import { type Link, pauseBefore } from "./link.js";
import { type Clock, type Log, sleep } from "./ports.js";
import type { Workspace } from "./Workspace.js";
import { firstCharacters } from "./words.js";

/** More questions than this at once are not taken; the server asks again. */
const AT_ONCE = 64;

export interface InspectorParts {
  readonly projectId: string;
  readonly workspace: Workspace;
  readonly gate: Gate;
  readonly link: Link;
  readonly tries: number;
  readonly clock: Clock;
  readonly log: Log;
}

/** Looks at files for one project and workspace. */
export class Inspector {
  readonly #open = new Set<string>();
  readonly #stop = new AbortController();

  constructor(private readonly parts: InspectorParts) {}

  /** Answer, unless an answer to the same question is on its way. */
  async request(event: InspectionRequested): Promise<void> {
    const { log } = this.parts;
    if (this.#open.has(event.tool_id) || this.#stop.signal.aborted) {
      return;
    }
    if (this.#open.size >= AT_ONCE) {
      log.warn("inspection left out", { tool_id: event.tool_id });
      return;
    }
    log.info("inspection requested", { tool_id: event.tool_id, tool: event.tool_name });
    this.#open.add(event.tool_id);
    try {
      await this.#post(event.tool_id, await this.#look(event));
    } catch (error) {
      const name = kindOf(error);
      log.error("inspection failed unexpectedly", { tool_id: event.tool_id, error: name });
    } finally {
      this.#open.delete(event.tool_id);
    }
  }

  /** Stop looking; nobody waits for an answer that is not there. */
  close(): void {
    this.#stop.abort();
  }

  async #look(event: InspectionRequested): Promise<Inspection> {
    const { gate, workspace } = this.parts;
    const { isolated } = await workspace.isolation();
    const judge = (params: unknown): Judgement =>
      gate.judge(event.tool_name, params, { workspace: workspace.root, isolated });
    let judgement = judge(event.tool_params);
    const { params, toolName } = judgement;
    if (params !== null && gate.policy.hasRules) {
      // A rule knows names only: a link must meet the rules of what it leads to as well.
      const real = workspace.underRealNames(params);
      const other = isDeepStrictEqual(real, params) ? judgement : judge(real);
      judgement = other.verdict.level === "REFUSE" ? other : judgement;
    }
    const { verdict } = judgement;
    if (verdict.level === "REFUSE" || params === null) {
      const problem = firstCharacters(`Refused on this machine: ${maskText(message(verdict))}`, 400);
      return { files: [], problem };
    }
    return toolName === "write_file"
      ? workspace.inspectWrite(params.path as string)
      : workspace.inspect(String(params.command), verdict.runs);
  }

  async #post(toolId: string, inspection: Inspection): Promise<void> {
    const { clock, link, log, projectId, tries } = this.parts;
    for (let attempt = 0; attempt < tries && !this.#stop.signal.aborted; attempt += 1) {
      try {
        await link.postInspection(projectId, toolId, inspection);
        log.info("inspected", { tool_id: toolId, files: inspection.files.length, problem: inspection.problem });
        return;
      } catch (error) {
        if (!(error instanceof ByleaveError)) {
          throw error;
        }
        log.warn("inspection not delivered", { tool_id: toolId, attempt: attempt + 1, error: error.message });
        if (error instanceof UnreachableError) {
          await sleep(clock, pauseBefore(attempt), this.#stop.signal);
          continue;
        }
        const lean = withoutTexts(inspection);
        if (error instanceof CallerError && !(error instanceof NotFound) && !isDeepStrictEqual(lean, inspection)) {
          await this.#post(toolId, lean); // perhaps more than this server takes
        }
        return;
      }
    }
  }
}

/** The same look at what would be replaced, by its digest alone. What would run is never left out. */
function withoutTexts(inspection: Inspection): Inspection {
  const files = inspection.files.map((file): SeenFile => {
    return file.role === "replaces" && file.text
      ? { ...file, text: null, shortened: true, note: "It is too long for this server." }
      : file;
  });
  return { ...inspection, files: files as Inspection["files"] };
}
