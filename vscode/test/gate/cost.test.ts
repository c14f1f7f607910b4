// No call, text or rule makes the gate slow: what it takes grows with the length, whatever the content.

import { expect, test } from "vitest";
import { Gate, maskText, Policy, parsePolicy, safeLines, safeText } from "../../src/gate/index.js";

const SIZE = 100_000;
const HOSTILE = [
  "a",
  "=",
  "key=",
  "password: ",
  "://:",
  "eyJ",
  "-----BEGIN PRIVATE KEY-----\n",
  "A1+/",
  "curl -u ",
  "login -p ",
  "--token ",
  "\n \n",
  " ",
  "\u200b",
  "\x1b[",
  "[[",
  "kind: Secret\ndata:\n a: bbb\n",
  "password password ",
  "_a1",
  "sk-",
  "$2a$",
  "{",
  "../",
  "a:",
  "/",
  ".",
  "\\",
  "😀",
  "token_token_",
  "TZ=",
  "é",
];

function seconds(work: () => unknown): number {
  const began = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(began);
  return (user + system) / 1e6;
}

test("masking and showing a hostile text takes no longer than it is long", () => {
  for (const piece of HOSTILE) {
    const text = piece.repeat(Math.ceil(SIZE / piece.length));
    expect([piece, seconds(() => maskText(text)) < 3]).toEqual([piece, true]);
    expect([piece, seconds(() => [safeText(text), safeLines(text)]) < 3]).toEqual([piece, true]);
  }
});

test("judging a hostile argument takes no longer than it is long", () => {
  const text = '[[rule]]\naction = "deny"\npaths = ["a*b*c*d*e*f*g/**", "**/x/**/y/**/z", "*.pem"]\n';
  const gate = new Gate({ policy: new Policy([parsePolicy(text, "user", "policy.toml")]) });
  for (const piece of HOSTILE) {
    const long = piece.repeat(Math.ceil(SIZE / piece.length));
    for (const [command, ...args] of [
      ["echo", long],
      ["date", "-d", long],
      ["git", "log", long],
      ["cat", long],
      ["git", "clone", long],
      ["tar", long],
      ["find", ".", "-name", long],
      ["ls", `-${long}`],
    ]) {
      const took = seconds(() => gate.judge("execute_command", { command, args }, { workspace: "/home/user/ws" }));
      expect([command, piece, took < 3]).toEqual([command, piece, true]);
    }
    const took = seconds(() =>
      gate.judge("search_files", { pattern: "x", glob: long.slice(0, 1000) }, { workspace: "/ws" }),
    );
    expect([piece, took < 1]).toEqual([piece, true]);
  }
});
