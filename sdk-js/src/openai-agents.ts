// Byleave for the OpenAI Agents SDK: its six tools as function tools, with approvals as interruptions.
//
//     tools: byleaveTools(machine)                                     // waits inside the tool until a person answered
//     tools: byleaveTools(machine, { interrupt: true, scope: "t1" })   // ends the run with interruptions instead
//
// With `interrupt`, save `result.state.toString()`. When people have answered, call
// `await settle(state, machine, { scope: "t1" })` and run the agent with the state again, in any process. The SDK's
// approval decides nothing: a state that anybody else approved still waits for the person. A run that is aborted takes
// its question back; `withdraw` takes back those of a state that is not resumed.
//
// The parameters are checked by the gate alone, so that the record holds what the model sent: no Zod schema between.

import { type FunctionTool, type RunState, type RunToolApprovalItem, tool } from "@openai/agents";
import { CATALOGUE } from "./catalogue.js";
import { ByleaveError, CallerError } from "./errors.js";
import { hasEnded, type Machine } from "./machine.js";
import { callKey, namesOf, type ToolName, textOf } from "./shown.js";

export interface ToolOptions {
  /** Some of the six; all by default. */
  tools?: readonly ToolName[];
  /** End the run where a person has to be asked. Needs a scope: an interruption outlives the process. */
  interrupt?: boolean;
  /** Names the conversation, so that a call repeated after a restart is the same call. */
  scope?: string;
}

/** The tools for an agent of the SDK. */
export function byleaveTools(machine: Machine, options: ToolOptions = {}): FunctionTool[] {
  const { interrupt = false, scope } = options;
  if (interrupt && !scope) {
    throw new CallerError("Interruptions outlive this process, so they need a scope.", "pass scope: <thread id>");
  }
  return namesOf(options.tools).map((name) => {
    const { name: toolName, description, parameters } = CATALOGUE[name];
    return tool({
      name,
      description,
      // The SDK's type wants additional properties. The gate refuses them, so the model is told so.
      parameters: parameters as never,
      strict: false,
      async execute(input, _context, details) {
        const key = await callKey(scope, details?.toolCall?.callId, toolName, input);
        return textOf(await machine.execute(toolName, input as object, { key, signal: details?.signal }));
      },
      // Begins the call: one that needs nobody has ended by the time the SDK runs it.
      needsApproval: interrupt
        ? async (_context, input, callId) => {
            const key = await callKey(scope, callId, toolName, input);
            return !hasEnded(await machine.start(toolName, input as object, { key }));
          }
        : false,
      errorFunction(_context, error) {
        if (error instanceof ByleaveError) return String(error);
        throw error;
      },
    }) as FunctionTool;
  });
}

// biome-ignore lint/suspicious/noExplicitAny: of any context and agent
type AnyState = RunState<any, any>;

/**
 * Apply people's decisions to a saved state; resolves to true if it can be resumed.
 *
 * Waits for the answers, at most `timeoutMs`. Interruptions of other tools are left alone.
 */
export async function settle(
  state: AnyState,
  machine: Machine,
  { scope, timeoutMs }: { scope: string; timeoutMs?: number },
): Promise<boolean> {
  const waiting = ours(state);
  let settled = waiting.length === state.getInterruptions().length;
  for (const { item, toolName, input, callId } of waiting) {
    const key = await callKey(scope, callId, toolName, input);
    const begun = await machine.start(toolName, input, { key });
    const response = hasEnded(begun)
      ? begun
      : await machine.wait(begun.tool_id, timeoutMs === undefined ? {} : { timeoutMs });
    if (!hasEnded(response)) settled = false;
    else if (response.status === "completed") state.approve(item);
    else state.reject(item, { message: textOf(response) });
  }
  return settled;
}

/** Take back the questions of a saved state that will not be resumed. */
export async function withdraw(state: AnyState, machine: Machine, { scope }: { scope: string }): Promise<void> {
  for (const { toolName, input, callId } of ours(state)) {
    const key = await callKey(scope, callId, toolName, input);
    const begun = await machine.start(toolName, input, { key });
    if (!hasEnded(begun)) await machine.cancel(begun.tool_id);
  }
}

function ours(state: AnyState): { item: RunToolApprovalItem; toolName: string; input: object; callId: string }[] {
  return state.getInterruptions().flatMap((item) => {
    const raw = item.rawItem;
    if (raw.type !== "function_call" || !(raw.name in CATALOGUE)) return [];
    const { name: toolName } = CATALOGUE[raw.name as ToolName];
    return [{ item, toolName, input: JSON.parse(raw.arguments || "{}") as object, callId: raw.callId }];
  });
}
