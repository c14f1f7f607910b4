// Undo asked for by the server: who is answered, when, and how often. And the steps in which one file takes another's place
// while somebody else saves.

import {
  appendFileSync,
  existsSync,
  linkSync,
  lstatSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import type { UndoRequested } from "@protocol";
import { beforeEach, describe, expect, it } from "vitest";
import { ByleaveError, RefusedError, UnreachableError } from "../../src/tools/errors.js";
import { O_DIRECTORY, O_PATH, type Opened, PathValidator } from "../../src/tools/PathValidator.js";
import { place, swap, takeAway, Unexpected } from "../../src/tools/swapping.js";
import type { UndoDesk } from "../../src/tools/undo_desk.js";
import { UndoIntents } from "../../src/tools/undo_intents.js";
import { Undoer, type UndoerParts } from "../../src/tools/undoing.js";
import { Workspace } from "../../src/tools/Workspace.js";
import { CLIENT, FakeClock, FakeLink, FakeLog, FakeMemory, PROJECT, settled, until } from "./fakes.js";
import { temporary, workspaceWith } from "./places.js";

let root: string;
let link: FakeLink;
let log: FakeLog;
let clock: FakeClock;
let memory: FakeMemory;
let workspace: Workspace;
let forgotten = 0;
let count = 0;

beforeEach(async () => {
  root = workspaceWith({ "a.txt": "one\n" });
  [link, log, clock, forgotten] = [new FakeLink(), new FakeLog(), new FakeClock(), 0];
  memory = new FakeMemory();
  workspace = new Workspace(root, { undo: { directory: join(temporary(), "undo"), memory } });
  await workspace.run("write_file", { path: "a.txt", content: "new\n", mode: "write" }, { recordAs: "exec_1" });
});

function undoer(more: Partial<UndoerParts> = {}): Undoer {
  const forget = () => {
    forgotten += 1;
  };
  const desk = workspace.undoing as UndoDesk;
  const intents = new UndoIntents(memory);
  return new Undoer({ projectId: PROJECT, clientId: CLIENT, desk, link, forget, intents, clock, log, ...more });
}

function asked(plan: string | null, more: Partial<UndoRequested> = {}): UndoRequested {
  count += 1;
  return {
    kind: "tool.undo_request",
    timestamp: new Date().toISOString(),
    request_id: `undoreq_${count}`,
    tool_id: "exec_1",
    client_id: CLIENT,
    session_id: "s",
    plan,
    partial: false,
    keep_off: {},
    deadline: new Date(clock.now() + 10_000).toISOString(),
    ...more,
  };
}

async function answered(by: Undoer, event: UndoRequested, reports = 1): Promise<Record<string, unknown>> {
  const before = link.undone.length;
  by.request(event, 0);
  await until(() => link.undone.length === before + reports);
  return link.undone.at(-1)?.body ?? {};
}

const digestOf = (report: Record<string, unknown>) => (report.plan as { plan: string }).plan;

describe("A request", () => {
  it("for a plan is answered with it, and one to act is carried out and told", async () => {
    const by = undoer();
    const look = await answered(by, asked(null));
    expect(look).toMatchObject({ plan: { tool_id: "exec_1", total_files: 1 } });
    expect([look.done, forgotten]).toEqual([undefined, 0]);
    const done = await answered(by, asked(digestOf(look)));
    expect(done).toMatchObject({ done: true, undo_id: expect.stringMatching(/^undo_/), plan: { total_files: 1 } });
    expect(readFileSync(join(root, "a.txt"), "utf8")).toBe("one\n");
    expect(forgotten).toBe(2);
    await by.close();
  });

  it("that was carried out is shown here too, before it is told; what goes wrong with that does no harm", async () => {
    const seen: unknown[] = [];
    const onUndone: UndoerParts["onUndone"] = (plan, undoId) => {
      seen.push([plan.files.map(({ path }) => path), undoId, link.undone.length]);
      throw new Error("no window");
    };
    const by = undoer({ onUndone });
    const look = await answered(by, asked(null));
    const done = await answered(by, asked(digestOf(look)));
    expect(seen).toEqual([[["a.txt"], done.undo_id, 1]]);
    expect([done.done, log.said("undo not shown")]).toEqual([true, 1]);
    await by.close();
  });

  it("that is repeated, late, another's, or comes after the end is not answered", async () => {
    const by = undoer();
    const event = asked(null);
    await answered(by, event);
    by.request(event, 0);
    by.request(asked(null, { deadline: new Date(clock.now() - 1).toISOString() }), 0);
    by.request(asked(null), 20_000); // late on the server's clock
    by.request(asked(null, { client_id: "client_2" }), 0);
    await by.close();
    by.request(asked(null), 0);
    await settled();
    expect(link.undone).toHaveLength(1);
    expect([log.said("repeated undo request ignored"), log.said("late undo request ignored")]).toEqual([1, 2]);
  });

  it("whose time passes while it waits for its turn does nothing", async () => {
    const by = undoer();
    const { plan: shown } = await (workspace.undoing as UndoDesk).look("exec_1");
    const late = asked(shown);
    let now = 0;
    const slow = {
      ...clock,
      now: () => {
        now += 6_000;
        return now + clock.now();
      },
      monotonic: () => 0,
      after: clock.after.bind(clock),
    };
    const report = await answered(undoer({ clock: slow }), late);
    expect(report).toMatchObject({ problem: expect.stringMatching(/^Its time was up/), plan: { tool_id: "exec_1" } });
    expect(readFileSync(join(root, "a.txt"), "utf8")).toBe("new\n");
    await by.close();
  });

  it("that cannot be met says why, without secrets", async () => {
    const secret = `ghp_${"a".repeat(36)}`;
    const by = undoer();
    expect(await answered(by, asked(null, { tool_id: "exec_9" }))).toMatchObject({
      problem: expect.stringMatching(/Nothing that 'exec_9' changed .* is known\. What is older than a week/),
    });
    expect(await answered(by, asked("0".repeat(64)))).toMatchObject({
      problem: expect.stringMatching(/Something changed while you decided; nothing was undone\. Look at what/),
    });
    const failing = (error: unknown) => ({ look: () => Promise.reject(error) }) as unknown as UndoDesk;
    const problems: [unknown, RegExp][] = [
      [new ByleaveError(`It is ${secret}`), /^It is (?!.*ghp_aaa)/],
      [Object.assign(new Error("x"), { code: "EIO" }), /^The machine could not do it: i\/o error\./],
      [new TypeError("x"), /^The client failed with TypeError/],
      ["x", /^The client failed with string/],
    ];
    for (const [error, words] of problems) {
      const report = await answered(undoer({ desk: failing(error) }), asked(null));
      expect(report.problem).toMatch(words);
    }
    expect(await answered(undoer({ desk: undefined }), asked(null))).toMatchObject({
      problem: expect.stringMatching(/nothing can be undone from it/),
    });
  });

  it("is kept off what the server's own rules deny", async () => {
    await workspace.run("write_file", { path: "b.txt", content: "b", mode: "write" }, { recordAs: "exec_2" });
    const by = undoer();
    const look = await answered(by, asked(null, { keep_off: { write_file: ["a.*"] } }));
    expect(look).toMatchObject({ plan: { files: [], lost: { "a.txt": expect.stringMatching(/rules deny/) } } });
    const unread = await answered(by, asked(null, { keep_off: { read_file: ["a.txt"] } }));
    expect(unread).toMatchObject({ plan: { files: [{ before: null, note: expect.stringMatching(/rules deny/) }] } });
    const { keep_off: _, ...older } = asked(null, { tool_id: "exec_2" });
    expect(await answered(by, older as UndoRequested)).toMatchObject({ plan: { files: [{ before: "b" }] } });
    await by.close();
  });

  it("beyond what is taken at once is left out", async () => {
    let finish = () => {};
    const desk = { look: () => new Promise<never>((_, reject) => (finish = () => reject(new ByleaveError("x")))) };
    const by = undoer({ desk: desk as unknown as UndoDesk });
    for (let number = 0; number < 17; number += 1) {
      by.request(asked(null), 0);
    }
    expect(log.said("undo request left out")).toBe(1);
    await settled(5);
    const closing = by.close();
    await settled(5);
    finish();
    await closing;
    expect(link.undone).toHaveLength(1);
  });
});

describe("A report", () => {
  it("that cannot be delivered is sent again, and what was done also on the next connection", async () => {
    const by = undoer();
    const { plan } = await (workspace.undoing as UndoDesk).look("exec_1");
    link.fail("postUndoReport", ...Array.from({ length: 5 }, () => new UnreachableError("gone")));
    by.request(asked(plan, { deadline: new Date(clock.now() + 3_600_000).toISOString() }), 0);
    await until(() => log.said("undone") === 1);
    await until(() => {
      clock.advance(5_000);
      return log.said("undo report not delivered") === 5;
    });
    await by.resend();
    expect(link.undone).toMatchObject([{ toolId: "exec_1", body: { done: true } }]);
    await by.resend();
    expect(link.undone).toHaveLength(1);
    await by.close();
  });

  it("that the server does not take is not sent again; and a closing client waits for it only a moment", async () => {
    const by = undoer();
    link.fail("postUndoReport", new RefusedError("no"));
    by.request(asked(null), 0);
    await until(() => log.said("undo report not taken") === 1);
    const never = { postUndoReport: () => new Promise<void>(() => {}) };
    const other = undoer({ link: never });
    other.request(asked(null), 0);
    await until(() => log.said("undo requested") === 2);
    let closed = false;
    const closing = other.close().then(() => (closed = true));
    await until(() => {
      clock.advance(2_001);
      return closed;
    });
    await closing;
    expect(link.undone).toEqual([]);
    await by.close();
  });
});

describe("An undo that outlives its request", () => {
  const intentsLeft = () => [...memory.keys()].filter((key) => key.startsWith("undoing:"));
  const text = () => readFileSync(join(root, "a.txt"), "utf8");
  let desk: UndoDesk;
  let digest: string;

  beforeEach(async () => {
    desk = workspace.undoing as UndoDesk;
    digest = (await desk.look("exec_1")).plan;
  });

  /** A desk that stops after it has begun, until it is told to go on. */
  function stopping(act: () => ReturnType<UndoDesk["carryOut"]>): { readonly desk: UndoDesk; goOn: () => void } {
    let goOn = () => {};
    const going = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const carryOut: UndoDesk["carryOut"] = async (_tool, _digest, _partial, wanted) => {
      await wanted();
      await going;
      return act();
    };
    return { desk: { carryOut } as unknown as UndoDesk, goOn };
  }

  it("is said to be under way, once, and then to be done", async () => {
    const slow = stopping(() => desk.carryOut("exec_1", digest, false, () => true));
    const by = undoer({ desk: slow.desk });
    by.request(asked(digest), 0);
    await until(() => intentsLeft().length === 1);
    clock.advance(5_000);
    await until(() => link.undone.length === 1);
    for (let more = 0; more < 3; more += 1) {
      clock.advance(5_000);
      await settled(3);
    }
    slow.goOn();
    await until(() => link.undone.length === 2);
    expect(link.undone.map(({ body }) => [body.begun, body.done])).toEqual([
      [true, undefined],
      [undefined, true],
    ]);
    await by.close();
    expect([intentsLeft(), clock.timers.size]).toEqual([[], 0]);
  });

  it("goes on although nobody could be told that it does", async () => {
    const slow = stopping(() => desk.carryOut("exec_1", digest, false, () => true));
    const by = undoer({ desk: slow.desk });
    link.fail("postUndoReport", new UnreachableError("gone"));
    by.request(asked(digest), 0);
    await until(() => intentsLeft().length === 1);
    clock.advance(5_000);
    await until(() => log.said("undo under way not told") === 1);
    slow.goOn();
    await until(() => link.undone.length === 1);
    expect(link.undone).toMatchObject([{ body: { done: true } }]);
    await by.close();
  });

  it("and is done when the client is killed before its report is told when it starts again, until the server has it", async () => {
    const silent = { postUndoReport: () => new Promise<void>(() => {}) };
    const event = asked(digest);
    undoer({ link: silent }).request(event, 0);
    await until(() => log.said("undone") === 1); // and the client is gone
    const again = undoer();
    link.fail("postUndoReport", new UnreachableError("away"));
    await again.resend();
    expect([link.undone, intentsLeft().length]).toEqual([[], 1]);
    await again.resend();
    await again.resend();
    expect(link.undone).toMatchObject([
      {
        toolId: "exec_1",
        body: {
          request_id: event.request_id,
          done: true,
          undo_id: expect.stringMatching(/^undo_/),
          plan: { tool_id: "exec_1", plan: digest, total_files: 1, files: [] },
        },
      },
    ]);
    expect([intentsLeft(), text()]).toEqual([[], "one\n"]);
  });

  it("and is killed in the middle is told as that when the client starts again, and can be finished", async () => {
    // The disk holds what was written until the kill; nothing after that comes to an end.
    const died = new FakeMemory();
    for (const [key, value] of memory.values) {
      died.values.set(key, value);
    }
    const place = join(temporary(), "undo");
    const killed = new Workspace(root, { undo: { directory: place, memory: died } });
    await killed.run("write_file", { path: "b.txt", content: "b", mode: "write" }, { recordAs: "exec_2" });
    const { plan } = await (killed.undoing as UndoDesk).look("exec_2");
    const write = died.write.bind(died);
    let begun = false;
    died.write = async (key, value) => {
      if (begun) {
        return new Promise<void>(() => {});
      }
      await write(key, value);
      begun = key.startsWith("undo:");
    };
    const event = asked(plan, { tool_id: "exec_2" });
    undoer({ desk: killed.undoing, intents: new UndoIntents(died) }).request(event, 0);
    await until(() => begun && !existsSync(join(root, "b.txt")));

    const disk = new FakeMemory();
    for (const [key, value] of died.values) {
      disk.values.set(key, value);
    }
    const started = new Workspace(root, { undo: { directory: place, memory: disk } });
    const again = undoer({ desk: started.undoing, intents: new UndoIntents(disk) });
    await again.resend();
    expect(link.undone).toEqual([
      {
        toolId: "exec_2",
        body: { request_id: event.request_id, problem: expect.stringMatching(/stopped in the middle.*Look at what/) },
      },
    ]);
    const look = await answered(again, asked(null, { tool_id: "exec_2" }));
    const done = await answered(again, asked(digestOf(look), { tool_id: "exec_2" }));
    expect(done).toMatchObject({ done: true, undo_id: expect.stringMatching(/^undo_/) });
    expect([...disk.keys()].filter((key) => key.startsWith("undoing:"))).toEqual([]);
    await again.close();
  });

  it("and was only about to begin is told to have changed nothing", async () => {
    await new UndoIntents(memory).keep("undoreq_9", "exec_1", digest, clock.now());
    await undoer().resend();
    expect(link.undone).toMatchObject([
      { body: { request_id: "undoreq_9", problem: "The client stopped before anything was undone." } },
    ]);
    expect([intentsLeft(), text()]).toEqual([[], "new\n"]);
  });

  it("is not told of while what calls changed cannot be looked at, and one that cannot be read never", async () => {
    await new UndoIntents(memory).keep("undoreq_9", "exec_1", digest, clock.now());
    memory.values.set("undoing:torn", "{");
    memory.values.set("undoing:other", '{"toolId": 1}');
    await undoer({ desk: undefined }).resend();
    expect([link.undone, intentsLeft()]).toEqual([[], ["undoing:undoreq_9"]]);
    await undoer().resend();
    expect(link.undone).toHaveLength(1);
  });

  it("does not begin where that cannot be written down before", async () => {
    memory.broken = true;
    const report = await answered(undoer(), asked(digest));
    expect(report).toMatchObject({ problem: expect.stringMatching(/no space left on device/) });
    expect([report.done, text()]).toEqual([undefined, "new\n"]);
  });

  it("does not begin where its time passes while that is written down", async () => {
    const write = memory.write.bind(memory);
    memory.write = async (key, value) => {
      await write(key, value);
      clock.advance(key.startsWith("undoing:") ? 11_000 : 0);
    };
    const report = await answered(undoer(), asked(digest));
    expect(report).toMatchObject({ problem: expect.stringMatching(/^Its time was up before it could begin/) });
    expect([text(), intentsLeft()]).toEqual(["new\n", []]);
  });

  it("and failed is told also on the next connection", async () => {
    const slow = stopping(() => Promise.reject(Object.assign(new Error("x"), { code: "EIO" })));
    const by = undoer({ desk: slow.desk });
    slow.goOn();
    link.fail("postUndoReport", ...Array.from({ length: 5 }, () => new UnreachableError("gone")));
    by.request(asked(digest), 0);
    await until(() => {
      clock.advance(1_000);
      return log.said("undo report not delivered") === 5;
    });
    await by.resend();
    await by.resend();
    expect(link.undone).toMatchObject([{ body: { problem: expect.stringMatching(/i\/o error/) } }]);
    expect(intentsLeft()).toEqual([]);
    await by.close();
  });
});

describe("While somebody else saves", () => {
  let directory: Opened;
  const stat = async (name: string) => lstatSync(`${directory.base}/${name}`, { bigint: true });
  const names = () => readdirSync(root).sort();
  const text = (name: string) => readFileSync(join(root, name), "utf8");

  beforeEach(() => {
    directory = new PathValidator(root).open(".", O_PATH | O_DIRECTORY);
    writeFileSync(join(root, "a.txt"), "old");
    writeFileSync(join(root, "draft"), "draft");
  });

  it("a draft takes a free name only", () => {
    expect(() => place(directory, "draft", "a.txt")).toThrow(Unexpected);
    place(directory, "draft", "b.txt");
    expect(names()).toEqual(["a.txt", "b.txt"]);
    expect(() => place(directory, "missing", "c.txt")).toThrow("ENOENT");
  });

  it("a file is replaced only while it is what was compared, and nothing of ours stays", async () => {
    const saved = async (name: string) => {
      const seen = await stat(name);
      writeFileSync(join(root, "other"), "saved");
      renameSync(join(root, "other"), join(root, "a.txt")); // as many editors save
      return seen;
    };
    await expect(swap(directory, "draft", "a.txt", saved)).rejects.toThrow(Unexpected);
    expect([text("a.txt"), names()]).toEqual(["saved", ["a.txt", "draft"]]);
    const written = async (name: string) => {
      const seen = await stat(name);
      appendFileSync(join(root, "a.txt"), " more"); // as others do
      return seen;
    };
    await expect(swap(directory, "draft", "a.txt", written)).rejects.toThrow(Unexpected);
    expect([text("a.txt"), names()]).toEqual(["saved more", ["a.txt", "draft"]]);
    await expect(swap(directory, "draft", "a.txt", async () => undefined)).rejects.toThrow(Unexpected);
    await expect(swap(directory, "draft", "gone", stat)).rejects.toThrow("it is gone");
    await swap(directory, "draft", "a.txt", stat);
    expect([text("a.txt"), names()]).toEqual(["draft", ["a.txt"]]);
  });

  it("a file is taken away only while it is what was compared; else it is put back, or both stay", async () => {
    await expect(takeAway(directory, "a.txt", async () => undefined)).rejects.toThrow(Unexpected);
    const other = (times: number) => {
      let looked = 0;
      return async (name: string) => {
        looked += 1;
        return looked > times ? undefined : stat(name);
      };
    };
    await expect(takeAway(directory, "a.txt", other(1))).rejects.toThrow(Unexpected);
    expect([text("a.txt"), names()]).toEqual(["old", ["a.txt", "draft"]]);
    const unreadable = async (name: string) => {
      if (name !== "a.txt") throw new Error("EIO");
      return stat(name);
    };
    await expect(takeAway(directory, "a.txt", unreadable)).rejects.toThrow("EIO");
    expect([text("a.txt"), names()]).toEqual(["old", ["a.txt", "draft"]]);
    let looked = 0;
    const again = async (name: string) => {
      looked += 1;
      if (looked === 2) {
        writeFileSync(join(root, "a.txt"), "saved"); // while the old one is aside
        return undefined;
      }
      return stat(name);
    };
    await expect(takeAway(directory, "a.txt", again)).rejects.toThrow(Unexpected);
    expect(text("a.txt")).toBe("saved");
    const [kept = ""] = names().filter((name) => /^a\.txt\.[0-9a-f]{8}\.saved$/.test(name));
    expect(text(kept)).toBe("old");
    const vanishing = async (name: string) => {
      const seen = await stat(name);
      if (existsSync(join(root, "a.txt"))) {
        renameSync(join(root, "a.txt"), join(root, "moved"));
      }
      return seen;
    };
    await expect(takeAway(directory, "a.txt", vanishing)).rejects.toThrow("it is gone");
    linkSync(join(root, "moved"), join(root, "a.txt"));
    await takeAway(directory, "a.txt", stat);
    expect(names()).not.toContain("a.txt");
  });
});
