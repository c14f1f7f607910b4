// The code of a one-time link goes to one address of this machine, and of what answers only so much is read as is needed.

import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { exchange } from "../../src/host/exchange.js";

const running: Server[] = [];
afterEach(async () => {
  for (const server of running.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

const TOKEN = { token: "made.for.me", user_id: "alice" };

async function standing(
  host: string,
  port = 0,
  answer: (response: ServerResponse) => unknown = (response) => response.end(told()),
) {
  const codes: string[] = [];
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const piece of request) text += String(piece);
    codes.push(text);
    answer(response);
  });
  running.push(server);
  await new Promise<void>((resolve) => server.listen(port, host, resolve));
  return { codes, port: (server.address() as AddressInfo).port };
}

const told = () => JSON.stringify(TOKEN);
const link = (name: string, port: number) => ({ origin: `http://${name}:${port}`, code: "abc" });

test.each(["localhost", "localhost.", "0.0.0.0"])(
  "a code for %s goes to the one number and to no other",
  async (name) => {
    const real = await standing("127.0.0.1");
    const other = await standing("::1", real.port);
    expect(await exchange(link(name, real.port))).toMatchObject({ kind: "token", user: "alice" });
    expect(other.codes).toEqual([]);
  },
);

test("a code goes to the other number only where nothing stands at the first", async () => {
  const six = await standing("::1");
  expect(await exchange(link("localhost", six.port))).toMatchObject({ kind: "token" });
  const broken = await standing("127.0.0.1", 0, (response) => response.destroy());
  const other = await standing("::1", broken.port);
  expect(await exchange(link("localhost", broken.port))).toMatchObject({ kind: "problem" });
  expect(broken.codes).toHaveLength(1);
  expect(other.codes).toEqual([]);
});

test("an answer without end is not read to its end", async () => {
  let sent = 0;
  const flood = await standing("127.0.0.1", 0, (response) => {
    const piece = Buffer.alloc(1 << 20, 97);
    const more = () => {
      for (let room = true; room && sent < 64 << 20; sent += piece.length) room = response.write(piece);
    };
    response.on("drain", more);
    more();
  });
  const answer = await exchange(link("127.0.0.1", flood.port));
  expect(answer).toMatchObject({ kind: "problem", words: expect.stringContaining("gives no token") });
  expect(sent).toBeLessThan(32 << 20);
});
