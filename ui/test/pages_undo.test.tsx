// Undo: the plan is shown before anything happens, what stands in the way is said, and only the plan that was shown is
// carried out.

import { act, cleanup, screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { mayUndo } from "../src/pages/Execution";
import type { State } from "../src/state/model";
import { execution, expectAccessible, FakeHost, machine, refused, showPage, type told, undoPlan } from "./pages_house";

beforeEach(() => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
});

afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

const UNDO = "/my/tools/exec_1/undo";
const written = execution({
  tool_name: "write_file",
  tool_params: { path: "a.txt", content: "new\n" },
  risk_level: "MEDIUM",
});
const user = userEvent.setup({ advanceTimers: (ms) => vi.advanceTimersByTime(ms) });

async function open(plan: object | (() => ReturnType<typeof told>), part: Partial<State> = { machines: [machine()] }) {
  const host = new FakeHost().on("GET", "/my/tools/exec_1", written).on("GET", UNDO, plan);
  const shown = await showPage({ page: "history", tool: "exec_1" }, host, part);
  await press(screen.getByRole("button", { name: "Undo…" }));
  await settle();
  return shown;
}

async function press(element: Element): Promise<void> {
  await user.click(element);
  await settle();
}

/** What is on its way arrives, and what then appeared settles. */
async function settle(): Promise<void> {
  await act(async () => {});
  await act(async () => void vi.advanceTimersByTime(700));
}

describe("undo is offered for", () => {
  it.each([
    ["a write that was done", written, true],
    ["a write that was interrupted", { ...written, status: "failed", error_type: "interrupted" }, true],
    ["no write that failed", { ...written, status: "failed", error_type: "tool_error" }, false],
    ["no call that never reached a machine", { ...written, client_id: null }, false],
    ["no call that still runs", { ...written, status: "executing" }, false],
    ["no read", execution(), false],
    ["a command", execution({ tool_name: "execute_command", result: { changed_count: 2 } }), true],
    [
      "no command that changed nothing",
      execution({ tool_name: "execute_command", result: { changed_count: 0 } }),
      false,
    ],
  ] as const)("%s", (_, row, offered) => {
    expect(mayUndo(row)).toBe(offered);
  });
});

it("the plan is shown first, and carried out by a second, deliberate press", async () => {
  const { host } = await open(undoPlan({ notes: ["Its mode comes back too."] }));
  host.on("POST", UNDO, { tool_id: "exec_1", undo_id: "undo_7", files: 1, message: "Undone." });
  expect(document.activeElement?.textContent).toBe("Undo this call?");
  expect(screen.getByText(/a\.txt/, { selector: ".page-changes *" })).toBeTruthy();
  expect(screen.getByText("Its mode comes back too.")).toBeTruthy();
  expect(host.of(UNDO).filter((each) => each.method === "POST")).toHaveLength(0);
  await press(screen.getByRole("button", { name: "Undo this file" }));
  expect(host.of(UNDO).at(-1)?.body).toEqual({ plan: "a".repeat(64), partial: false });
  expect(screen.getByText("It is as before the call")).toBeTruthy();
  expect(screen.getByText("byleave undo undo_7")).toBeTruthy();
  await press(screen.getByRole("button", { name: "Close" }));
  expect(screen.getByRole("button", { name: "Undo…" })).toBeTruthy();
});

it("of a machine in VS Code it does not send anybody to a command that knows nothing of it", async () => {
  const plan = undoPlan({ total_files: 300 });
  const { host } = await open(plan, { machines: [machine({ editor: "vscode" })] });
  expect(screen.getByText(/would change too and cannot be shown here/).textContent).not.toContain("byleave undo");
  host.on("POST", UNDO, { tool_id: "exec_1", state: "done", undo_id: "undo_7", files: 1, message: "Undone." });
  await press(screen.getByRole("button", { name: /^Undo these/ }));
  expect(screen.getByText("It is as before the call")).toBeTruthy();
  expect(screen.queryByText(/byleave undo/)).toBeNull();
  expect(screen.getByText(/^To take that back, in VS Code: Bring It Back/)).toBeTruthy();
});

it("a press in the moment the button appears does nothing", async () => {
  const host = new FakeHost().on("GET", "/my/tools/exec_1", written).on("GET", UNDO, undoPlan());
  vi.useRealTimers();
  const { container } = await showPage({ page: "history", tool: "exec_1" }, host, { machines: [machine()] });
  await act(async () => screen.getByRole("button", { name: "Undo…" }).click());
  await act(async () => screen.getByRole("button", { name: "Undo this file" }).click());
  expect(host.of(UNDO)).toHaveLength(1);
  await expectAccessible(container);
});

it("a conflict is named, and nothing can be pressed", async () => {
  await open(undoPlan({ conflicts: ["b\u200b.txt"] }));
  expect(screen.getByRole("alert").textContent).toContain("b\\u{200b}.txt");
  expect(screen.queryByRole("button", { name: /^Undo th/ })).toBeNull();
});

it("what is lost must be accepted before the rest is undone", async () => {
  const files = ["a.txt", "c.txt"].map((path) => ({ path, kind: "delete" as const, before: "x" }));
  const { host } = await open(
    undoPlan({ files, total_files: 5, lost: { "big.bin": "too large" }, left: ["dir"], together: ["exec_2"] }),
  );
  host.on("POST", UNDO, { tool_id: "exec_1", undo_id: null, files: 0, message: "Nothing to do." });
  expect(screen.getByText("big.bin").closest("li")?.textContent).toBe("big.bin: too large");
  expect(screen.getByText("dir")).toBeTruthy();
  expect(screen.getByRole("link", { name: "exec_2" })).toBeTruthy();
  expect(screen.getByText(/3 more files would change too/)).toBeTruthy();
  const button = screen.getByRole("button", { name: "Undo these 5 files" });
  await press(button);
  expect(host.of(UNDO)).toHaveLength(1);
  await press(screen.getByRole("checkbox", { name: /leave the one above/ }));
  await press(button);
  expect(host.of(UNDO).at(-1)?.body).toEqual({ plan: "a".repeat(64), partial: true });
  expect(screen.getByText("Nothing had to change")).toBeTruthy();
  expect(screen.queryByText(/To take that back/)).toBeNull();
});

it("a directory among them is not called a file", async () => {
  await open(undoPlan({ files: [{ path: "docs", kind: "delete", note: "a directory" }], total_files: 2 }));
  expect(screen.getByRole("button", { name: "Undo these 2 paths" })).toBeTruthy();
});

it("several lost files are counted", async () => {
  await open(undoPlan({ lost: { a: "x", b: "y" } }));
  expect(screen.getByRole("checkbox", { name: /leave these 2 above/ })).toBeTruthy();
});

it("where everything is as it was there is nothing to press", async () => {
  await open(undoPlan({ files: [], total_files: 0 }));
  expect(screen.getByText(/nothing to undo/)).toBeTruthy();
});

it("a plan that no longer holds is refused in the server's words, and asked for again", async () => {
  const { host } = await open(undoPlan());
  host.on("POST", UNDO, () => refused(409, "Something changed while you decided; nothing was undone.", "Look again."));
  await press(screen.getByRole("button", { name: "Undo this file" }));
  expect(screen.getByRole("alert").textContent).toContain("nothing was undone");
  host.on("GET", UNDO, undoPlan({ plan: "b".repeat(64), total_files: 2 }));
  await press(screen.getByRole("button", { name: "Ask the machine again" }));
  expect(screen.getByRole("button", { name: "Undo these 2 files" })).toBeTruthy();
});

it("without a machine it says so, and asks by itself when the machine is back", async () => {
  const { host, heard } = await open(() => refused(409, "No machine is connected."), { machines: [] });
  expect(screen.getByText(/No machine is connected\. What the call replaced/).textContent).toContain("laptop");
  expect(screen.getByText("byleave undo exec_1")).toBeTruthy();
  expect(screen.getByText(/in VS Code, Undo This Change in its list Changed by Agents/)).toBeTruthy();
  host.on("GET", UNDO, undoPlan());
  await act(async () => heard({ machines: [machine()] }));
  expect(screen.getByRole("button", { name: "Undo this file" })).toBeTruthy();
});

it("with another machine it says that it is another one", async () => {
  const hint = "Connect it again: `byleave connect`.";
  const machines = [machine({ client_id: "desk" })];
  await open(() => refused(409, "That machine is not here.", hint, "disconnected"), { machines });
  expect(screen.getByText(/Another machine is connected/)).toBeTruthy();
  // What to do is said once, for this very call.
  expect(screen.queryByText(/Connect it again/)).toBeNull();
  expect(screen.getByText("byleave undo exec_1")).toBeTruthy();
});

it("when the right machine is there and fails, only its own words are shown", async () => {
  const { host } = await open(() => refused(504, "The machine did not answer."));
  expect(screen.getByRole("alert").textContent).toContain("did not answer");
  expect(screen.queryByText(/is connected\./)).toBeNull();
  host.on("GET", UNDO, undoPlan());
  await press(screen.getByRole("button", { name: "Ask again" }));
  expect(screen.getByRole("button", { name: "Undo this file" })).toBeTruthy();
});
