// The real OpenAI Agents SDK on a real Byleave; only the model is replaced.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  Agent,
  type AgentInputItem,
  type Model,
  type ModelRequest,
  type ModelResponse,
  RunState,
  run,
  setTracingDisabled,
  tool,
  Usage,
} from "@openai/agents";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { z } from "zod";
import { Machine } from "../src/index.js";
import { byleaveTools, settle, withdraw } from "../src/openai-agents.js";
import { approve, callsOf, recorded, reject, watch } from "./person.js";

setTracingDisabled(true);
const { serverUrl, token, projectId, workspace } = inject("place");
const machine = new Machine({ serverUrl, token, projectId });
let person: Awaited<ReturnType<typeof watch>>;

beforeAll(async () => {
  person = await watch();
});
afterAll(() => person.stop());

type Call = [name: string, input: object, callId?: string];

/** A model of the SDK's own kind that makes these calls, one after the other, and then says that it is done. */
class Scripted implements Model {
  requests: ModelRequest[] = [];
  constructor(private readonly calls: Call[]) {}

  async getResponse(request: ModelRequest): Promise<ModelResponse> {
    this.requests.push(request);
    const results = Array.isArray(request.input) ? request.input.filter(isResult).length : 0;
    const call = this.calls[results];
    const output: ModelResponse["output"] = call
      ? [
          {
            type: "function_call",
            name: call[0],
            callId: call[2] ?? `call_${results}`,
            arguments: JSON.stringify(call[1]),
          },
        ]
      : [
          {
            type: "message",
            role: "assistant",
            status: "completed",
            content: [{ type: "output_text", text: "Done." }],
          },
        ];
    return { output, usage: new Usage() };
  }

  // biome-ignore lint/correctness/useYield: no test streams
  async *getStreamedResponse(): AsyncGenerator<never> {
    throw new Error("not asked for");
  }

  /** What the model was told of its calls. */
  told(): string[] {
    const input = this.requests.at(-1)?.input;
    return Array.isArray(input) ? input.filter(isResult).map((item) => JSON.stringify(item)) : [];
  }
}

const isResult = (item: AgentInputItem) => item.type === "function_call_result";
const agentOf = (model: Model, tools = byleaveTools(machine)) => new Agent({ name: "worker", model, tools });

test("a run reads, writes what the person approves, and is told what was refused", async () => {
  const own = tool({
    name: "add",
    description: "Adds.",
    parameters: z.object({ one: z.number(), other: z.number() }),
    execute: ({ one, other }) => String(one + other),
  });
  const model = new Scripted([
    ["readFile", { path: "README.md" }],
    ["writeFile", { path: "openai.txt", content: "hi" }],
    ["runCommand", { command: "rm", args: ["-rf", "/"] }],
    ["readFile", { file: "README.md" }],
    ["add", { one: 1, other: 2 }],
  ]);
  const running = run(agentOf(model, [...byleaveTools(machine), own] as never), "go");
  await approve(await person.asked("openai.txt"));
  expect((await running).finalOutput).toBe("Done.");
  expect(readFileSync(join(workspace, "openai.txt"), "utf8")).toBe("hi");
  const [read, written, refused, wrong, sum] = model.told();
  expect(read).toContain("hello");
  expect(written).toContain("size");
  expect(refused).toContain("Command not allowed: rm");
  expect(wrong).toContain("file");
  expect(sum).toContain("3");
});

test("a run pauses for the person, and goes on from its saved state after the answer", async () => {
  const model = new Scripted([["writeFile", { path: "paused.txt", content: "x" }]]);
  const tools = () => byleaveTools(machine, { interrupt: true, scope: "thread-1" });
  const first = await run(agentOf(model, tools()), "go");
  expect(first.interruptions.map((item) => item.name)).toEqual(["writeFile"]);
  const saved = first.state.toString();

  const agent = agentOf(model, tools());
  const state = await RunState.fromString(agent, saved);
  expect(await settle(state, machine, { scope: "thread-1", timeoutMs: 0 })).toBe(false);
  await approve(await person.asked("paused.txt"));
  expect(await settle(state, machine, { scope: "thread-1" })).toBe(true);
  expect((await run(agent, state)).finalOutput).toBe("Done.");
  expect(readFileSync(join(workspace, "paused.txt"), "utf8")).toBe("x");
  expect(await callsOf("paused.txt")).toBe(1);
});

test("a rejection of a paused call reaches the model with its reason", async () => {
  const model = new Scripted([["writeFile", { path: "kept.txt", content: "x" }]]);
  const agent = agentOf(model, byleaveTools(machine, { interrupt: true, scope: "thread-2" }));
  const { state } = await run(agent, "go");
  await reject(await person.asked("kept.txt"), "keep it as it is");
  expect(await settle(state, machine, { scope: "thread-2" })).toBe(true);
  await run(agent, state);
  expect(model.told()[0]).toContain("keep it as it is");
});

test("a state that somebody else approved still waits for the person", async () => {
  const model = new Scripted([["writeFile", { path: "forged.txt", content: "x" }]]);
  const agent = agentOf(model, byleaveTools(machine, { interrupt: true, scope: "thread-3" }));
  const { state } = await run(agent, "go");
  for (const item of state.getInterruptions()) state.approve(item, { alwaysApprove: true });
  const running = run(agent, state);
  const question = await person.asked("forged.txt");
  expect((await recorded(question.tool_id)).status).toBe("awaiting_approval");
  await reject(question, "never asked for");
  await running;
  expect((await recorded(question.tool_id)).status).toBe("rejected");
});

test("a saved state that is dropped takes its question back", async () => {
  const model = new Scripted([["writeFile", { path: "dropped.txt", content: "x" }]]);
  const agent = agentOf(model, byleaveTools(machine, { interrupt: true, scope: "thread-4" }));
  const { state } = await run(agent, "go");
  await withdraw(state, machine, { scope: "thread-4" });
  const question = await person.asked("dropped.txt");
  expect(await recorded(question.tool_id)).toMatchObject({ status: "failed", error_type: "cancelled" });
});

test("a run that is aborted takes its question back", async () => {
  const model = new Scripted([["writeFile", { path: "stopped.txt", content: "x" }]]);
  const controller = new AbortController();
  const running = run(agentOf(model), "go", { signal: controller.signal }).catch((error: unknown) => error);
  const question = await person.asked("stopped.txt");
  controller.abort();
  expect(await running).toBeInstanceOf(Error);
  await person.finished(question.tool_id);
  expect(await recorded(question.tool_id)).toMatchObject({ status: "failed", error_type: "cancelled" });
});

test("a server that is down is told to the model with what to do", async () => {
  const model = new Scripted([["readFile", { path: "README.md" }]]);
  const lost = new Machine({ serverUrl: "http://127.0.0.1:9", token, projectId });
  await run(agentOf(model, byleaveTools(lost)), "go");
  expect(model.told()[0]).toContain("Cannot reach the server");
});

test("interruptions need a scope, and tools a name that exists", () => {
  expect(() => byleaveTools(machine, { interrupt: true })).toThrow("need a scope");
  expect(() => byleaveTools(machine, { tools: ["rm" as never] })).toThrow("no tool 'rm'");
  expect(byleaveTools(machine, { tools: ["readFile"] }).map((one) => one.name)).toEqual(["readFile"]);
});
