// Byleave for the Vercel AI SDK: its six tools as a tool set.
//
//     await generateText({ model, tools: byleaveTools(machine), stopWhen: isStepCount(20), prompt })
//
// A tool waits until a person has answered; aborting the generation calls its call off. A refusal, rejection or failure
// reaches the model as a tool error with its reason. The output of a tool is typed; the model is shown it as text.
//
// The parameters are checked by the gate alone, so that the record holds what the model sent.

import { jsonSchema, type Tool, tool } from "ai";
import { CATALOGUE } from "./catalogue.js";
import type { Machine } from "./machine.js";
import type {
  ExecuteCommandResult,
  ListDirectoryResult,
  ReadFileResult,
  SearchFilesResult,
  SearchWebResult,
  ToolResponse,
  WriteFileResult,
} from "./protocol.js";
import { callKey, namesOf, type ToolName, textOf } from "./shown.js";

/** What each tool returns. */
export interface ToolResults {
  readFile: ReadFileResult;
  writeFile: WriteFileResult;
  runCommand: ExecuteCommandResult;
  listDir: ListDirectoryResult;
  searchFiles: SearchFilesResult;
  searchWeb: SearchWebResult;
}

export type ByleaveTools = { [Name in ToolName]: Tool<Record<string, unknown>, ToolResults[Name]> };

export interface ToolOptions {
  /** Some of the six; all by default. */
  tools?: readonly ToolName[];
  /** Names the conversation, so that a call repeated after a restart is the same call. */
  scope?: string;
}

/** The tools for `generateText`, `streamText` and agents. */
export function byleaveTools(machine: Machine, { tools, scope }: ToolOptions = {}): ByleaveTools {
  const made = namesOf(tools).map((name) => [name, toolOf(machine, name, scope)]);
  return Object.fromEntries(made) as ByleaveTools;
}

function toolOf(machine: Machine, name: ToolName, scope: string | undefined) {
  const { name: toolName, description, parameters } = CATALOGUE[name];
  return tool({
    description,
    inputSchema: jsonSchema<Record<string, unknown>>(parameters as object),
    async execute(input, { toolCallId, abortSignal }): Promise<Record<string, unknown>> {
      const key = await callKey(scope, toolCallId, toolName, input);
      const response = await machine.execute(toolName, input, { key, signal: abortSignal });
      if (response.status !== "completed") throw new Error(textOf(response));
      return { ...(response.edited && { changed_by_user: response.edited }), ...response.result };
    },
    toModelOutput({ output }) {
      return { type: "text", value: textOf({ status: "completed", result: output } as ToolResponse) };
    },
  });
}
