// The dialogs of a whole conversation: what they ask of the server, what they say before anything goes, and what they do
// when it is refused.

import type { Session, SessionChanges, SessionUndoPlan } from "@protocol";
import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { listed } from "../src/conversation/Changes";
import type { Managed } from "../src/conversation/ConversationMenu";
import { Manage } from "../src/conversation/Manage";
import type { Host } from "../src/host";
import { AppHome } from "../src/parts/home";
import { Chat } from "../src/state/chat";
import type { State } from "../src/state/model";
import { expectAccessible, FakeHost, machine, refused, stateOf, told } from "./pages_house";

afterEach(cleanup);

const SESSION: Session = {
  session_id: "sess_1",
  project_id: "proj_1",
  title: "Tidy up",
  created_at: "2026-01-01T00:00:00.000Z",
};
const PATH = "/my/projects/proj_1/chat/sessions/sess_1";

interface Shown {
  chat: Chat;
  close: ReturnType<typeof vi.fn>;
  go: ReturnType<typeof vi.fn>;
}

async function show(
  what: Managed["what"],
  host: FakeHost,
  session = SESSION,
  part: Partial<State> = {},
): Promise<Shown> {
  const chat = new Chat(host as unknown as Host);
  act(() => {
    chat.store.do({ type: "project", projectId: "proj_1" });
    chat.store.do({ type: "sessions", sessions: [session] });
  });
  const close = vi.fn();
  const go = vi.fn();
  render(
    <AppHome>
      <Manage managed={{ what, session }} chat={chat} state={stateOf(part)} projectId="proj_1" go={go} close={close} />
    </AppHome>,
  );
  await screen.findByRole("dialog");
  return { chat, close, go };
}

const titles = (chat: Chat) => chat.store.get().sessions.map(({ title }) => title);

/** Past the moment in which a button that just came takes no press. */
async function press(name: string | RegExp): Promise<void> {
  const button = await screen.findByRole("button", { name });
  await waitFor(() => expect(button.getAttribute("aria-disabled")).not.toBe("true"));
  await userEvent.click(button);
}

describe("renaming", () => {
  it("keeps the title that the server kept", async () => {
    const host = new FakeHost().on("POST", `${PATH}/rename`, { ...SESSION, title: "Release 2" });
    const { chat, close } = await show("rename", host);
    const title = screen.getByLabelText<HTMLInputElement>("Title");
    expect(title.value).toBe("Tidy up");
    await userEvent.clear(title);
    expect(screen.getByRole<HTMLButtonElement>("button", { name: "Save" }).disabled).toBe(true);
    await userEvent.type(title, "  Release 2 {Enter}");
    await waitFor(() => expect(close).toHaveBeenCalled());
    expect(host.of(`${PATH}/rename`)[0]?.body).toEqual({ title: "Release 2" });
    expect(titles(chat)).toEqual(["Release 2"]);
  });

  it("says why it could not", async () => {
    const host = new FakeHost().on("POST", `${PATH}/rename`, () => refused(400, "Too long."));
    const { close } = await show("rename", host);
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    expect((await screen.findByRole("alert")).textContent).toContain("Too long.");
    expect(close).not.toHaveBeenCalled();
    await userEvent.click(screen.getByRole("button", { name: "Cancel" }));
    expect(close).toHaveBeenCalled();
  });
});

describe("deleting", () => {
  it("says what goes and what stays, and then it is gone", async () => {
    const host = new FakeHost().on("POST", `${PATH}/delete`, { success: true, message: "Deleted." });
    const { chat, close } = await show("delete", host);
    const dialog = screen.getByRole("dialog");
    expect(dialog.textContent).toContain("all its messages");
    expect(dialog.textContent).toContain("The record of its calls");
    expect(dialog.textContent).not.toContain("elsewhere");
    await expectAccessible(dialog);
    await press("Delete conversation");
    await waitFor(() => expect(close).toHaveBeenCalled());
    expect(titles(chat)).toEqual([]);
    expect(chat.store.get().gone).toBe("sess_1");
  });

  it("stops the agent first where one works", async () => {
    let works = true;
    const host = new FakeHost()
      .on("POST", `${PATH}/delete`, () =>
        works ? refused(409, "An agent is at work.", "Stop it.", "working") : told({ success: true, message: "" }),
      )
      .on("GET", "/my/projects/proj_1/chat/runs", {
        runs: [
          { run_id: "run_2", state: "running" },
          { run_id: "run_1", state: "done" },
        ],
      })
      .on("POST", "/my/projects/proj_1/chat/runs/run_2/cancel", () => {
        works = false;
        return told({ success: true, message: "" });
      });
    const { close } = await show("delete", host);
    await press("Delete conversation");
    await userEvent.click(await screen.findByRole("button", { name: "Stop the agent" }));
    await waitFor(() => expect(screen.queryByRole("alert")).toBeNull());
    expect(host.of("/my/projects/proj_1/chat/runs/run_1/cancel")).toEqual([]);
    await press("Delete conversation");
    await waitFor(() => expect(close).toHaveBeenCalled());
  });

  it("of an agent's own says that its next call begins a new one", async () => {
    await show("delete", new FakeHost(), { ...SESSION, session_id: "sess_agent_1" });
    expect(screen.getByRole("dialog").textContent).toContain("begins a new one");
  });
});

describe("exporting", () => {
  const host = () =>
    new FakeHost()
      .on("GET", `${PATH}/markdown`, { file_name: "Tidy-up.md", text: "# Tidy up\n" })
      .on("GET", `${PATH}/export`, { session: SESSION, messages: [] });
  const saved: { name: string; text: Promise<string> }[] = [];

  beforeEach(() => {
    saved.length = 0;
    let blob: Blob | null = null;
    // jsdom has neither.
    Object.assign(URL, {
      createObjectURL: (made: Blob) => {
        blob = made;
        return "blob:x";
      },
      revokeObjectURL: () => {},
    });
    vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(function (this: HTMLAnchorElement) {
      if (blob) saved.push({ name: this.download, text: blob.text() });
    });
  });
  afterEach(() => {
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
  });

  it("saves it under its own name", async () => {
    await show("export", host());
    await userEvent.click(screen.getByRole("button", { name: "Download as Markdown" }));
    expect(await screen.findByText("Saved as Tidy-up.md.")).toBeTruthy();
    await userEvent.click(screen.getByRole("button", { name: "Download as JSON" }));
    expect(await screen.findByText("Saved as Tidy-up.json.")).toBeTruthy();
    expect(saved.map(({ name }) => name)).toEqual(["Tidy-up.md", "Tidy-up.json"]);
    expect(JSON.parse((await saved[1]?.text) ?? "")).toEqual({ session: SESSION, messages: [] });
  });

  it("copies it, and says why it could not", async () => {
    const place = host();
    await show("export", place);
    const copied = vi.fn(async () => {});
    vi.stubGlobal("navigator", { clipboard: { writeText: copied } });
    fireEvent.click(screen.getByRole("button", { name: "Copy as Markdown" }));
    expect(await screen.findByText("Copied.")).toBeTruthy();
    expect(copied).toHaveBeenCalledWith("# Tidy up\n");
    place.on("GET", `${PATH}/markdown`, () => refused(404, "No session."));
    fireEvent.click(screen.getByRole("button", { name: "Copy as JSON" }));
    expect((await screen.findByRole("alert")).textContent).toContain("No session.");
  });
});

const CHANGES: SessionChanges = {
  session_id: "sess_1",
  files: [
    { path: "a.txt", change: "changed", tool_ids: ["exec_1"] },
    { path: "gone.txt", change: "deleted", tool_ids: ["exec_2"] },
    { path: "old.txt", change: "changed", tool_ids: ["exec_3"] },
  ],
  total_files: 5,
  commands: [
    { tool_id: "exec_4", line: "npm test", status: "completed", exit_code: 1, created_at: SESSION.created_at },
    { tool_id: "exec_5", line: "make", status: "failed", exit_code: null, created_at: SESSION.created_at },
  ],
  complete: false,
};

const PLAN: SessionUndoPlan = {
  tool_id: "exec_1",
  plan: "a".repeat(64),
  files: [
    { path: "a.txt", kind: "change", before: "one\ntwo\n", after: "one\n", note: null },
    { path: "made.txt", kind: "delete", before: "x\n", after: null, note: null },
    {
      path: "secret.pem",
      kind: "change",
      before: null,
      after: null,
      note: null,
      unshown: "not shown: it may hold secrets",
    },
  ],
  total_files: 3,
  conflicts: ["gone.txt"],
  lost: { "a.txt": "its old content was too large" },
  left: [],
  notes: [],
  together: [],
  calls: ["exec_3", "exec_2", "exec_1"],
  unknown: [],
};

describe("what it changed", () => {
  it("is the record's list with what the machine found", () => {
    const lines = listed(CHANGES, PLAN).map(({ path, kind, lines, note }) => [path, kind, lines, note]);
    expect(lines).toEqual([
      ["a.txt", "changed", { added: 1, removed: 0 }, "in part"],
      ["gone.txt", "deleted", null, "changed since"],
      ["made.txt", "created", { added: 1, removed: 0 }, null],
      ["old.txt", "changed", null, "as before now"],
      ["secret.pem", "changed", null, null],
    ]);
    expect(listed(CHANGES, null).map(({ note }) => note)).toEqual([null, null, null]);
  });

  it("is shown, and all of it undone as it was shown", async () => {
    const plan = { ...PLAN, conflicts: [], lost: {} };
    const host = new FakeHost()
      .on("GET", `${PATH}/changes`, CHANGES)
      .on("GET", `${PATH}/undo`, plan)
      .on("POST", `${PATH}/undo`, { session_id: "sess_1", state: "done", undone: [], files: 3, message: "Undone: 3." });
    const { go, close } = await show("changes", host);
    const dialog = screen.getByRole("dialog");
    await screen.findByRole("button", { name: "Undo all…" });
    expect(dialog.textContent).toContain("and 2 more that the record does not name");
    expect(dialog.textContent).toContain("exit code 1");
    expect(dialog.textContent).toContain("Older calls are not counted");
    await expectAccessible(dialog);
    await press("Undo all…");
    expect(await screen.findByText("Undo all 3 calls?")).toBeTruthy();
    await press("Undo these 3 files");
    expect(await screen.findByText("Undone: 3.")).toBeTruthy();
    expect(host.asked.at(-1)).toMatchObject({ method: "POST", body: { plan: plan.plan, partial: false } });
    expect(go).not.toHaveBeenCalled();
    await userEvent.click(screen.getByRole("button", { name: "Close" }));
    expect(close).toHaveBeenCalled();
  });

  it("leads to a command's own page", async () => {
    const host = new FakeHost().on("GET", `${PATH}/changes`, CHANGES).on("GET", `${PATH}/undo`, PLAN);
    const { go, close } = await show("changes", host);
    await userEvent.click(await screen.findByRole("link", { name: "npm test" }));
    expect(go).toHaveBeenCalledWith({ page: "history", tool: "exec_4" });
    expect(close).toHaveBeenCalled();
  });

  it("is nothing where nothing changed, and the machine is not asked", async () => {
    const none = { ...CHANGES, files: [], commands: [], total_files: 0, complete: true };
    const host = new FakeHost().on("GET", `${PATH}/changes`, none);
    await show("changes", host);
    expect(await screen.findByText(/No file was changed/)).toBeTruthy();
    expect(host.of(`${PATH}/undo`)).toEqual([]);
  });

  it("waits with the undo while an agent works, and says why the machine cannot", async () => {
    const host = new FakeHost()
      .on("GET", `${PATH}/changes`, CHANGES)
      .on("GET", `${PATH}/undo`, () => refused(409, "Not connected.", "Connect it.", "disconnected"));
    await show("changes", host, SESSION, { runId: "run_1", machines: [machine()] });
    expect(await screen.findByText(/The agent is at work here/)).toBeTruthy();
    expect(host.of(`${PATH}/undo`)).toEqual([]);
    cleanup();
    await show("changes", host);
    expect((await screen.findByRole("alert")).textContent).toContain("Not connected.");
  });

  it("has nothing to undo where every file is as before", async () => {
    const plan = { ...PLAN, files: [], total_files: 0, conflicts: [], lost: {}, calls: [] };
    const host = new FakeHost().on("GET", `${PATH}/changes`, CHANGES).on("GET", `${PATH}/undo`, plan);
    await show("changes", host);
    expect(await screen.findByText(/There is nothing to undo/)).toBeTruthy();
  });
});
