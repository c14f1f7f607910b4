// The real Vercel AI SDK on a real Byleave; only the model is replaced, by the library's own.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { generateText, isStepCount, streamText, tool } from "ai";
import { MockLanguageModelV4, simulateReadableStream } from "ai/test";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { z } from "zod";
import { byleaveTools } from "../src/ai-sdk.js";
import { Machine } from "../src/index.js";
import { approve, callsOf, recorded, reject, watch } from "./person.js";

const { serverUrl, token, projectId, workspace } = inject("place");
const machine = new Machine({ serverUrl, token, projectId });
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } } as never;
let person: Awaited<ReturnType<typeof watch>>;

beforeAll(async () => {
  person = await watch();
});
afterAll(() => person.stop());

type Call = [name: string, input: object];

/** The library's mock model, which makes these calls, one after the other, and then says that it is done. */
function scripted(calls: Call[], id = "call") {
  let step = 0;
  const next = () => {
    const call = calls[step++];
    return call
      ? ({ type: "tool-call", toolCallId: `${id}_${step}`, toolName: call[0], input: JSON.stringify(call[1]) } as const)
      : undefined;
  };
  return new MockLanguageModelV4({
    doGenerate: async () => {
      const call = next();
      const finishReason = { unified: call ? "tool-calls" : "stop", raw: undefined } as never;
      return { content: [call ?? { type: "text", text: "Done." }], finishReason, usage, warnings: [] };
    },
    doStream: async () => {
      const call = next();
      const finishReason = { unified: call ? "tool-calls" : "stop", raw: undefined } as never;
      const said = [
        { type: "text-start", id: "1" } as const,
        { type: "text-delta", id: "1", delta: "Done." } as const,
        { type: "text-end", id: "1" } as const,
      ];
      const chunks = [...(call ? [call] : said), { type: "finish", finishReason, usage } as const];
      return { stream: simulateReadableStream({ chunks: chunks as never[] }) };
    },
  });
}

/** What the model was told of its calls. */
function told(model: MockLanguageModelV4): string[] {
  const prompt = model.doGenerateCalls.at(-1)?.prompt ?? [];
  return prompt.filter((message) => message.role === "tool").map((message) => JSON.stringify(message.content));
}

test("a generation reads, writes what the person approves, and is told what was refused", async () => {
  const add = tool({
    description: "Adds.",
    inputSchema: z.object({ one: z.number(), other: z.number() }),
    execute: ({ one, other }) => one + other,
  });
  const model = scripted([
    ["readFile", { path: "README.md" }],
    ["writeFile", { path: "vercel.txt", content: "hi" }],
    ["runCommand", { command: "rm", args: ["-rf", "/"] }],
    ["readFile", { file: "README.md" }],
    ["add", { one: 1, other: 2 }],
  ]);
  const tools = { ...byleaveTools(machine), add };
  const generating = generateText({ model, tools, stopWhen: isStepCount(9), prompt: "go" });
  await approve(await person.asked("vercel.txt"));
  const result = await generating;
  expect(result.text).toBe("Done.");
  expect(readFileSync(join(workspace, "vercel.txt"), "utf8")).toBe("hi");
  const [read, written, refused, wrong, sum] = told(model);
  expect(read).toContain("hello");
  expect(written).toContain("size");
  expect(refused).toContain("Command not allowed: rm");
  expect(wrong).toContain("file");
  expect(sum).toContain("3");
  const first = result.steps[0]?.toolResults[0];
  if (first?.dynamic || first?.toolName !== "readFile") throw new Error("The first call is a read.");
  const content: string = first.output.content; // typed
  expect(content).toBe("hello\n");
});

test("a rejection reaches the model with its reason", async () => {
  const model = scripted([["writeFile", { path: "vercel-no.txt", content: "x" }]]);
  const generating = generateText({ model, tools: byleaveTools(machine), stopWhen: isStepCount(3), prompt: "go" });
  await reject(await person.asked("vercel-no.txt"), "keep it as it is");
  expect((await generating).text).toBe("Done.");
  expect(told(model)[0]).toContain("keep it as it is");
});

test("a stream that is aborted takes its question back", async () => {
  const model = scripted([["writeFile", { path: "vercel-stop.txt", content: "x" }]]);
  const controller = new AbortController();
  const { signal } = controller;
  const result = streamText({ model, tools: byleaveTools(machine), abortSignal: signal, prompt: "go" });
  const reading = result.consumeStream();
  const question = await person.asked("vercel-stop.txt");
  controller.abort();
  await reading;
  await person.finished(question.tool_id);
  expect(await recorded(question.tool_id)).toMatchObject({ status: "failed", error_type: "cancelled" });
});

test("a call that is repeated after a restart is the same call", async () => {
  const generate = () =>
    generateText({
      model: scripted([["writeFile", { path: "vercel-once.txt", content: "x" }]], "kept"),
      tools: byleaveTools(machine, { scope: "thread-1", tools: ["writeFile"] }),
      stopWhen: isStepCount(3),
      prompt: "go",
    });
  const first = generate();
  await approve(await person.asked("vercel-once.txt"));
  expect((await first).text).toBe("Done.");
  expect((await generate()).text).toBe("Done.");
  expect(await callsOf("vercel-once.txt")).toBe(1);
});

test("a long result is shortened for the model and whole for the program", async () => {
  writeFileSync(join(workspace, "long.txt"), "x".repeat(300_000));
  const lines = Array.from({ length: 990 }, (_, index) => `needle ${index} ${"x".repeat(400)}`);
  writeFileSync(join(workspace, "many.txt"), lines.join("\n"));
  const model = scripted([
    ["readFile", { path: "long.txt" }],
    ["searchFiles", { pattern: "needle", path: "many.txt" }],
  ]);
  const tools = byleaveTools(machine);
  const { steps } = await generateText({ model, tools, stopWhen: isStepCount(4), prompt: "go" });
  const [read, found] = told(model);
  expect(read?.length).toBeLessThan(120_000);
  expect(read).toContain("start_line");
  expect(found).toContain("ask for less at once");
  expect(steps[0]?.toolResults[0]?.output).toMatchObject({ content: "x".repeat(300_000) });
});
