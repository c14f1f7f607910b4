// A small editor: starts an ACP agent with one of the npm packages, sends the prompts, allows once what it is asked,
// loads the session again in another process of the agent, and prints what it saw as JSON.
//
//     node acp_client.mjs PACKAGE '{"program": […], "env": {…}, "cwd": …, "prompts": […]}'

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { Readable, Writable } from "node:stream";

const [name, job] = process.argv.slice(2);
const { program, env, cwd, prompts } = JSON.parse(job);
const library = await import(name);
const { ndJsonStream, PROTOCOL_VERSION } = library;

/** The requests of an editor, as each package has them. */
const connecting = {
  "@agentclientprotocol/sdk": (stream, editor) => {
    const { client, methods } = library;
    const { agent } = client({ name: "byleave-test" })
      .onRequest(methods.client.session.requestPermission, ({ params }) => editor.requestPermission(params))
      .onRequest(methods.client.fs.readTextFile, ({ params }) => editor.readTextFile(params))
      .onNotification(methods.client.session.update, ({ params }) => editor.sessionUpdate(params))
      .connect(stream);
    return {
      initialize: (params) => agent.request(methods.agent.initialize, params),
      newSession: (params) => agent.request(methods.agent.session.new, params),
      prompt: (params) => agent.request(methods.agent.session.prompt, params),
      loadSession: (params) => agent.request(methods.agent.session.load, params),
    };
  },
  "@zed-industries/agent-client-protocol": (stream, editor) => new library.ClientSideConnection(() => editor, stream),
};

/** Start the agent, work with it, and wait until it has ended because stdin did. */
async function withAgent(work) {
  const seen = { updates: [], asked: [] };
  const editor = {
    async requestPermission(question) {
      seen.asked.push(question);
      const { optionId } = question.options.find((option) => option.kind === "allow_once");
      return { outcome: { outcome: "selected", optionId } };
    },
    async readTextFile({ path }) {
      return { content: await readFile(path, "utf8") };
    },
    async sessionUpdate({ update }) {
      seen.updates.push(update);
    },
  };
  const process = spawn(program[0], program.slice(1), { cwd, env, stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(process, "exit");
  const stream = ndJsonStream(Writable.toWeb(process.stdin), Readable.toWeb(process.stdout));
  const agent = connecting[name](stream, editor);
  const initialized = await agent.initialize({
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: false } },
  });
  const done = await work(agent);
  process.stdin.end();
  const [code] = await ended;
  return { ...seen, ...done, initialized, code };
}

const first = await withAgent(async (agent) => {
  const { sessionId } = await agent.newSession({ cwd, mcpServers: [] });
  const stopped = [];
  for (const text of prompts) {
    stopped.push((await agent.prompt({ sessionId, prompt: [{ type: "text", text }] })).stopReason);
  }
  return { sessionId, stopped };
});
const again = await withAgent(async (agent) => {
  await agent.loadSession({ sessionId: first.sessionId, cwd, mcpServers: [] });
});
console.log(JSON.stringify({ first, again }));
