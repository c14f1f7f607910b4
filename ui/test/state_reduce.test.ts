// @vitest-environment node
import type { FeedEvent } from "@protocol";
import { describe, expect, test } from "vitest";
import { fromExecution, fromMessage, MOST_OUTPUT, withOutput } from "../src/state/entries";
import { type AppState, type ChatEntry, EMPTY, type ToolCall } from "../src/state/model";
import { type Action, reduce } from "../src/state/reduce";
import * as sample from "./state_samples";

const OPEN: AppState = { ...EMPTY, link: "up", me: sample.me, projectId: "p", sessionId: "s", loading: false };

function told(state: AppState, ...actions: (Action | FeedEvent)[]): AppState {
  return actions.reduce<AppState>(
    (now, action) => reduce(now, "kind" in action ? { type: "event", event: action } : action),
    state,
  );
}

const ids = (state: AppState) => state.entries.map((entry) => entry.id);
const tool = (state: AppState, id: string) => state.entries.find((entry) => entry.id === id) as ToolCall;
const local = (content: string): ChatEntry => ({
  kind: "message",
  id: "local 1",
  role: "user",
  content,
  runId: null,
  at: Date.parse(sample.at(1)),
  pending: true,
});

describe("messages", () => {
  test("text that streams is one entry, and the final message takes its place", () => {
    const streaming = told(OPEN, sample.text("Hel", 1), sample.text("lo", 2));
    expect(streaming.entries).toMatchObject([{ id: "text r", content: "Hello", pending: true }]);
    expect(streaming.runId).toBe("r");
    const final = told(streaming, sample.said("m", 3, { content: "Hello." }));
    expect(final.entries).toMatchObject([{ id: "m", content: "Hello.", pending: false }]);
  });

  test("what streams stays below the calls that are made meanwhile", () => {
    const state = told(OPEN, sample.text("I look", 1), sample.started("t", 2), sample.text("…", 3));
    expect(ids(state)).toEqual(["t", "text r"]);
  });

  test("a message that comes twice is there once", () => {
    expect(ids(told(OPEN, sample.said("m", 1), sample.said("m", 1)))).toEqual(["m"]);
  });

  test("a message that comes late is put where its time is", () => {
    expect(ids(told(OPEN, sample.said("b", 5), sample.said("a", 2)))).toEqual(["a", "b"]);
  });

  test("a piece of text that comes after its answer is not shown", () => {
    expect(ids(told(OPEN, sample.said("m", 1), sample.text("late", 2)))).toEqual(["m"]);
  });

  test("what is told of another session changes nothing on the screen", () => {
    const state = told(
      OPEN,
      sample.said("m", 1, { session_id: "x" }),
      sample.text("t", 1, "x"),
      sample.started("t", 1, { session_id: "x" }),
      sample.run("running", "r9", "x"),
      {
        kind: "chat.usage",
        session_id: "x",
        run_id: "r",
        requests: 1,
        input_tokens: 1,
        output_tokens: 1,
        cost_usd: null,
        timestamp: sample.at(1),
      },
    );
    expect(state).toBe(OPEN);
  });

  test("an error of a run is a remark with its hint, and what was said before stays", () => {
    const state = told(
      OPEN,
      sample.text("half", 1),
      { kind: "chat.error", session_id: "s", run_id: "r", message: "Broke.", hint: "Again.", timestamp: sample.at(2) },
      sample.run("failed"),
    );
    expect(state.entries).toMatchObject([
      { content: "half", pending: false },
      { kind: "remark", tone: "error", text: "Broke.", hint: "Again." },
    ]);
    expect(state.runId).toBeNull();
  });
});

describe("sending", () => {
  test("what is sent is shown as pending and then as the record's own", () => {
    const posting = told(OPEN, { type: "posting", entry: local("hi") });
    expect(posting.entries).toMatchObject([{ id: "local 1", pending: true }]);
    const accepted = { message_id: "m", session_id: "s", run_id: "r" };
    const posted = told(posting, { type: "posted", localId: "local 1", accepted });
    expect(posted.entries).toMatchObject([{ id: "m", pending: false, runId: "r" }]);
    expect(posted.runId).toBe("r");
  });

  test("when the feed is quicker than the answer there is still one entry", () => {
    const known = told(
      OPEN,
      { type: "posting", entry: local("hi") },
      sample.said("m", 2, { role: "user", content: "hi" }),
    );
    expect(ids(known)).toEqual(["m"]);
    const accepted = { message_id: "m", session_id: "s", run_id: "r" };
    expect(ids(told(known, { type: "posted", localId: "local 1", accepted }))).toEqual(["m"]);
  });

  test("a run that was over before its message was accepted does not work for ever", () => {
    const accepted = { message_id: "m", session_id: "s", run_id: "r" };
    const done = told(OPEN, { type: "posting", entry: local("hi") }, sample.said("answer", 3));
    expect(told(done, { type: "posted", localId: "local 1", accepted }).runId).toBeNull();
    const failed = told(
      OPEN,
      { type: "posting", entry: local("hi") },
      { kind: "chat.error", session_id: "s", run_id: "r", message: "Broke.", hint: null, timestamp: sample.at(2) },
    );
    expect(told(failed, { type: "posted", localId: "local 1", accepted }).runId).toBeNull();
  });

  test("what was not accepted leaves the conversation", () => {
    expect(
      told(OPEN, { type: "posting", entry: local("hi") }, { type: "post-failed", localId: "local 1" }).entries,
    ).toEqual([]);
  });
});

describe("tool calls", () => {
  test("a call starts, tells its output, and ends with its result", () => {
    const running = told(
      OPEN,
      sample.started("t", 1),
      sample.output("t", "a"),
      sample.output("t", "b"),
      sample.output("t", "c", "stderr"),
    );
    expect(tool(running, "t")).toMatchObject({
      status: "executing",
      output: [
        { stream: "stdout", text: "ab" },
        { stream: "stderr", text: "c" },
      ],
    });
    const over = told(running, sample.finished("t", 3, { result_shortened: true }));
    expect(tool(over, "t")).toMatchObject({ status: "completed", output: [], resultShortened: true, milliseconds: 5 });
    expect(told(over, sample.output("t", "late"))).toBe(over);
  });

  test("a call that asks waits, runs when allowed, and never goes back", () => {
    const start = sample.started("tool-q", 1, { approved_by: null, risk_level: "MEDIUM" });
    const waits = told(OPEN, start, sample.asked("q", 2));
    expect(tool(waits, "tool-q").status).toBe("awaiting_approval");
    const allowed = told(waits, sample.decided("q"));
    expect(tool(allowed, "tool-q").status).toBe("executing");
    expect(tool(told(allowed, sample.asked("q", 2)), "tool-q").status).toBe("executing");
    expect(tool(told(allowed, start), "tool-q").status).toBe("executing");
  });

  test("the end of a call nobody knows changes nothing", () => {
    expect(told(OPEN, sample.finished("t", 1))).toBe(OPEN);
  });

  test("an undo is told on the call", () => {
    const undone: FeedEvent = {
      kind: "tool.undone",
      tool_id: "t",
      undo_id: null,
      files: 2,
      undone_by: "person:alice",
      session_id: "s",
      timestamp: sample.at(5),
    };
    expect(tool(told(OPEN, sample.started("t", 1), undone), "t").undone).toEqual({ by: "person:alice", files: 2 });
  });

  test("of very much output the newest is kept", () => {
    let pieces = withOutput([], { stream: "stdout", text: "first" });
    for (let count = 0; count < 40; count += 1)
      pieces = withOutput(pieces, { stream: "stdout", text: "x".repeat(16_000) });
    expect(pieces.reduce((sum, piece) => sum + piece.text.length, 0)).toBeLessThanOrEqual(MOST_OUTPUT);
    expect(withOutput([], { stream: "stdout", text: "x".repeat(MOST_OUTPUT * 2) })).toHaveLength(1);
  });

  test("signals for machines change nothing", () => {
    const signal = {
      kind: "tool.result_ack",
      tool_id: "t",
      status: "completed",
      session_id: "s",
      timestamp: sample.at(1),
    };
    expect(told(OPEN, signal as FeedEvent)).toBe(OPEN);
  });
});

describe("questions", () => {
  test("a call that a person changed is what they made of it, and says so", () => {
    const edit = { edited_by: "person:alice", asked: { path: "q", content: "x" } };
    const start = sample.started("tool-q", 1, { approved_by: null });
    const again = sample.asked("r", 3, { tool_id: "tool-q", tool_params: { path: "q", content: "y" }, edit });
    const state = told(OPEN, start, sample.asked("q", 2), sample.decided("q", { status: "cancelled" }), again);
    expect(tool(state, "tool-q")).toMatchObject({ params: { content: "y" }, edit, status: "awaiting_approval" });
    expect(state.questions.map(({ id }) => id)).toEqual(["r"]);
    expect(tool(told(OPEN, start, sample.asked("q", 2)), "tool-q").edit).toBeUndefined();
  });

  test("questions of every session wait, in the order they came", () => {
    const state = told(OPEN, sample.asked("a", 1), sample.asked("b", 2, { session_id: "other" }), sample.asked("a", 1));
    expect(state.questions.map((each) => each.id)).toEqual(["a", "b"]);
    expect(state.questions[0]).toMatchObject({ user_id: "alice", project_id: "p", status: "pending" });
  });

  test("an identical call joins its question", () => {
    const state = told(OPEN, sample.asked("a", 1), sample.asked("a", 1, { tool_id: "second" }));
    expect(state.questions).toMatchObject([{ tool_ids: ["tool-a", "second"] }]);
  });

  test("decided elsewhere: it no longer waits, and its card says by whom", () => {
    const state = told(OPEN, sample.asked("a", 1), sample.decided("a", { status: "rejected", reason: "no" }));
    expect(state.questions).toEqual([]);
    expect(state.settled).toMatchObject([{ status: "rejected", by: "person:bob", reason: "no", here: false }]);
    expect(told(state, sample.asked("a", 1)).questions).toEqual([]);
    expect(told(state, { type: "dismissed", approvalId: "a" }).settled).toEqual([]);
  });

  test("decided here is said so, whichever comes first: the answer or the feed", () => {
    const question = sample.approval("a", 1);
    const here = { question, status: "approved", by: "person:alice", reason: null, here: true } as const;
    const asking = told(OPEN, sample.asked("a", 1));
    for (const order of [
      [{ type: "settled", settled: here } as const, sample.decided("a", { decided_by: "person:alice" })],
      [sample.decided("a", { decided_by: "person:alice" }), { type: "settled", settled: here } as const],
    ]) {
      expect(told(asking, ...order).settled).toMatchObject([{ here: true, by: "person:alice" }]);
    }
  });

  test("an answer that came second does not overwrite what the feed told", () => {
    const question = sample.approval("a", 1);
    const second = { question, status: "approved", by: null, reason: null, here: false } as const;
    const state = told(OPEN, sample.asked("a", 1), sample.decided("a"), { type: "settled", settled: second });
    expect(state.settled).toMatchObject([{ by: "person:bob", here: false }]);
  });

  test("a decision about nothing that was shown changes nothing", () => {
    expect(told(OPEN, sample.decided("zzz"))).toBe(OPEN);
    expect(told(OPEN, sample.asked("a", 1), sample.decided("a", { status: "pending" })).questions).toHaveLength(1);
  });

  test("the list of the server replaces what waits, without what is over", () => {
    const approvals = [
      sample.approval("b", 2),
      sample.approval("a", 1),
      sample.approval("c", 0, { status: "approved" }),
    ];
    expect(
      told(OPEN, sample.asked("old", 1), { type: "approvals", approvals }).questions.map((each) => each.id),
    ).toEqual(["a", "b"]);
  });
});

describe("runs, usage, grants, machines", () => {
  test("the run that works is the one to stop, not one that waits in line", () => {
    const state = told(OPEN, sample.run("running", "r1"), sample.run("ready", "r2"));
    expect(state.runId).toBe("r1");
    expect(told(state, sample.run("done", "r1"), sample.run("running", "r2")).runId).toBe("r2");
    expect(told(state, sample.run("running", "r1"))).toBe(state);
    expect(told(state, { type: "run-over", runId: "r1" }).runId).toBeNull();
  });

  test("usage is what the run used so far", () => {
    const used: FeedEvent = {
      kind: "chat.usage",
      session_id: "s",
      run_id: "r",
      requests: 2,
      input_tokens: 30,
      output_tokens: 4,
      cost_usd: null,
      timestamp: sample.at(1),
    };
    expect(told(OPEN, used).usage).toEqual({ requests: 2, inputTokens: 30, outputTokens: 4, cost: null });
  });

  test("a new grant comes first and is remarked in its conversation; a changed one stays in its place", () => {
    const changed = (grant: ReturnType<typeof sample.grant>): FeedEvent => ({
      kind: "grant.changed",
      grant,
      timestamp: sample.at(1),
    });
    const state = told(OPEN, changed(sample.grant("a")), changed(sample.grant("b", { session_id: "x" })));
    expect(state.grants.map((each) => each.id)).toEqual(["b", "a"]);
    expect(state.entries).toMatchObject([{ kind: "remark", id: "grant a" }]);
    const revoked = told(state, changed(sample.grant("a", { status: "revoked" })));
    expect(revoked.grants.map((each) => each.status)).toEqual(["active", "revoked"]);
    expect(told(OPEN, changed(sample.grant("c", { status: "expired" }))).entries).toEqual([]);
  });

  test("machines come with the feed", () => {
    const machines = [{ client_id: "m", workspace: null, isolation: null, next: true, editor: null }];
    const state = told(OPEN, { kind: "project.machines", machines, timestamp: sample.at(1) });
    expect(state).toMatchObject({ machines, machinesKnown: true });
  });
});

describe("the record", () => {
  const record = (
    entries: AppState["entries"],
    changes: Partial<Extract<Action, { type: "record" }>> = {},
  ): Action => ({
    type: "record",
    sessionId: "s",
    entries,
    older: false,
    fresh: true,
    ...changes,
  });

  test("messages and calls are one list by time", () => {
    const state = told(
      { ...OPEN, loading: true },
      record([
        fromMessage(sample.message("m2", 5, { role: "agent" })),
        fromMessage(sample.message("m1", 1)),
        fromExecution(sample.execution("t", 3)),
      ]),
    );
    expect(ids(state)).toEqual(["m1", "t", "m2"]);
    expect(state).toMatchObject({ loading: false, runId: null });
  });

  test("at the same moment the question comes before the call and the call before the answer", () => {
    const state = told(
      OPEN,
      record([
        fromMessage(sample.message("m2", 1, { role: "agent" })),
        fromExecution(sample.execution("t", 1)),
        fromMessage(sample.message("m1", 1)),
      ]),
    );
    expect(ids(state)).toEqual(["m1", "t", "m2"]);
  });

  test("a call that has not ended means that its run works", () => {
    expect(told(OPEN, record([fromExecution(sample.execution("t", 1, { status: "awaiting_approval" }))])).runId).toBe(
      "r",
    );
  });

  test("a record of a session that is no longer open is not shown", () => {
    expect(told(OPEN, record([fromMessage(sample.message("m", 1))], { sessionId: "gone" }))).toBe(OPEN);
  });

  test("older entries come in front, and one that is known is not doubled nor put back", () => {
    const state = told(OPEN, sample.said("b", 5), sample.started("t", 6), sample.finished("t", 7));
    const stale = fromExecution(sample.execution("t", 6, { status: "executing", result: null }));
    const next = told(
      state,
      record([fromMessage(sample.message("a", 1)), fromMessage(sample.message("b", 5)), stale], {
        fresh: false,
        older: true,
      }),
    );
    expect(ids(next)).toEqual(["a", "b", "t"]);
    expect(tool(next, "t").status).toBe("completed");
    expect(next.older).toBe(true);
    expect(told(next, record([stale], { fresh: false })).entries).toEqual(next.entries);
  });

  test("after a gap only what the record cannot have stays beside it", () => {
    const before = told(
      OPEN,
      sample.said("lost", 1),
      sample.text("half", 2, "s", "r2"),
      sample.started("t", 3),
      sample.output("t", "live"),
    );
    const next = told(
      before,
      { type: "opening", sessionId: "s" },
      record([fromMessage(sample.message("m", 4)), fromExecution(sample.execution("t", 3, { status: "executing" }))]),
    );
    expect(ids(next)).toEqual(["t", "m", "text r2"]);
    expect(tool(next, "t").output).toHaveLength(1);
    const answered = told(before, record([fromMessage(sample.message("answer", 4, { role: "agent", run_id: "r2" }))]));
    expect(ids(answered)).not.toContain("text r2");
  });

  test("a long result of the record says that it was shortened", () => {
    expect(fromExecution(sample.execution("t", 1, { result: { shortened: true } })).resultShortened).toBe(true);
    expect(fromExecution(sample.execution("t", 1, { result: null })).resultShortened).toBe(false);
  });

  test("opening another session empties the screen, opening the same again does not", () => {
    const state = told(OPEN, sample.said("m", 1));
    expect(told(state, { type: "opening", sessionId: "x" })).toMatchObject({
      entries: [],
      loading: true,
      sessionId: "x",
    });
    expect(told(state, { type: "opening", sessionId: "s" }).entries).toHaveLength(1);
    expect(told(state, { type: "opening", sessionId: null })).toMatchObject({ loading: false, entries: [] });
  });

  test("a record that could not be read ends the waiting for it", () => {
    const state = { ...OPEN, loading: true };
    expect(told(state, { type: "record-failed", sessionId: "s" }).loading).toBe(false);
    expect(told(state, { type: "record-failed", sessionId: "x" })).toBe(state);
    expect(told(state, { type: "loading-older", on: true }).loadingOlder).toBe(true);
  });
});

describe("the rest", () => {
  test("another project forgets everything of the last one but who is asking", () => {
    const state = told({ ...OPEN, projects: [] }, sample.asked("a", 1), { type: "project", projectId: "p2" });
    expect(state).toMatchObject({ projectId: "p2", questions: [], sessionId: null, me: sample.me, link: "up" });
  });

  test("signed out, nothing of the person stays", () => {
    expect(told(OPEN, sample.said("m", 1), { type: "signed-out" })).toEqual({
      ...EMPTY,
      link: "signed-out",
      loading: false,
    });
  });

  test("full mode is refused to an agent that may not have it", () => {
    const narrow = { ...sample.agent, name: "narrow", widest_mode: "sandbox" as const };
    const state = told(OPEN, { type: "agents", agents: [sample.agent, narrow] });
    expect(state).toMatchObject({ agent: "chat", modes: { chat: "sandbox", narrow: "sandbox" } });
    expect(told(state, { type: "mode", agent: "chat", mode: "full" }).modes.chat).toBe("full");
    expect(told(state, { type: "mode", agent: "narrow", mode: "full" })).toBe(state);
    expect(told(state, { type: "mode", agent: "nobody", mode: "full" })).toBe(state);
    expect(told(state, { type: "agent", agent: "narrow" }).agent).toBe("narrow");
    expect(told(state, { type: "agent", agent: "nobody" })).toBe(state);
    expect(
      told(state, { type: "mode", agent: "chat", mode: "full" }, { type: "agents", agents: [sample.agent] }).modes.chat,
    ).toBe("full");
    expect(told(state, { type: "agents", agents: [] }).agent).toBe("");
  });

  test("what is as it was is the same value", () => {
    expect(told(OPEN, { type: "link", link: "up" }, { type: "clock", ahead: 0 })).toBe(OPEN);
    expect(told(OPEN, { type: "link", link: "down" }, { type: "clock", ahead: 9000 })).toMatchObject({
      link: "down",
      serverAhead: 9000,
    });
  });

  test("a notice that is there already is not said twice, and goes when it is put away", () => {
    const once = told(
      OPEN,
      { type: "notice", notice: { id: 1, text: "x", hint: null } },
      { type: "notice", notice: { id: 2, text: "x", hint: null } },
    );
    expect(once.notices).toHaveLength(1);
    expect(told(once, { type: "notice-gone", id: 2 }).notices).toEqual([]);
  });

  test("lists of the server are taken as they are", () => {
    const state = told(
      EMPTY,
      { type: "me", me: sample.me, projects: [] },
      { type: "sessions", sessions: [sample.session("s")] },
      { type: "grants", grants: [sample.grant("g")] },
      { type: "machines", machines: [] },
    );
    expect(state).toMatchObject({ me: sample.me, machinesKnown: true });
    expect([state.sessions.length, state.grants.length]).toEqual([1, 1]);
  });
});

describe("runs of the session", () => {
  const runs = (list: ReturnType<typeof sample.listed>[], asked: string | null = null): Action => ({
    type: "runs",
    sessionId: "s",
    runs: list,
    asked,
  });

  test("one that is open works; of several the oldest, since they go in order", () => {
    const list = [sample.listed("c", "ready", 3), sample.listed("b", "waiting", 2), sample.listed("a", "done", 1)];
    expect(told(OPEN, runs(list)).runId).toBe("b");
    expect(told(OPEN, { ...runs(list), sessionId: "x" } as Action)).toBe(OPEN);
  });

  test("one that ended while nobody listened works no more, and what it said streams no more", () => {
    const before = told(OPEN, sample.text("half", 1));
    const after = told(before, runs([sample.listed("r", "failed", 1, "Broke.")], "r"));
    expect(after.runId).toBeNull();
    expect(after.entries).toMatchObject([
      { kind: "message", content: "half", pending: false },
      { kind: "remark", tone: "error", text: "Broke." },
    ]);
  });

  test("a message sent since they were asked for has a run that is newer", () => {
    const sent = { ...OPEN, runId: "new" };
    expect(told(sent, runs([sample.listed("old", "done", 1)])).runId).toBe("new");
    // What is over is over, also when it began since.
    expect(told(sent, runs([sample.listed("new", "done", 1)])).runId).toBeNull();
  });

  test("why the last one failed is said once, the feed's words first, and not when more was said since", () => {
    const failed = runs([sample.listed("r", "failed", 5, "Broke.")]);
    const error: FeedEvent = {
      kind: "chat.error",
      session_id: "s",
      run_id: "r",
      message: "Broke.",
      hint: "Again.",
      timestamp: sample.at(6),
    };
    for (const state of [told(OPEN, failed, failed, error), told(OPEN, error, failed)]) {
      expect(state.entries).toMatchObject([{ kind: "remark", text: "Broke.", hint: "Again." }]);
    }
    expect(told(OPEN, sample.said("m", 9), failed).entries).toHaveLength(1);
    expect(told(OPEN, runs([sample.listed("r", "done", 5)])).entries).toEqual([]);
    const anonymous = { ...error, run_id: null };
    expect(told(OPEN, failed, anonymous).entries).toHaveLength(2);
  });

  test("that a person stopped it is said plainly, and the same after a reload", () => {
    const remark = { kind: "remark", tone: "plain", text: "Stopped by you." };
    expect(told(OPEN, sample.run("running"), sample.run("failed")).entries).toMatchObject([remark]);
    const record = runs([sample.listed("r", "failed", 1)]);
    expect(told(OPEN, record, sample.run("failed")).entries).toMatchObject([remark]);
  });
});

test("a call that was denied knows by whom", () => {
  const state = told(OPEN, sample.started("tool-q", 1), sample.asked("q", 2));
  const denied = told(state, sample.decided("q", { status: "rejected" }));
  expect(tool(denied, "tool-q").deniedBy).toBe("person:bob");
  const decision = {
    approval_id: "q",
    status: "rejected",
    decided_by: "person:bob",
    decided_from: "page",
    decided_at: sample.at(3),
    reason: null,
    scope: null,
    grant_id: null,
  } as const;
  const recorded = (changes: object) =>
    fromExecution(sample.execution("x", 1, { status: "rejected", decision: { ...decision, ...changes } }));
  expect(recorded({})).toMatchObject({ deniedBy: "person:bob", deniedFrom: "page" });
  expect(recorded({ status: "timeout", decided_by: null })).toMatchObject({ deniedBy: null, deniedFrom: null });
  const late = told(state, sample.decided("q", { status: "timeout", decided_by: null }));
  expect(tool(late, "tool-q")).toMatchObject({ deniedBy: null });
});
