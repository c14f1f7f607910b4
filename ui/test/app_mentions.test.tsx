// Naming a file after an @: where a name begins and ends, what is put into the text, and the list with its keys.

import type { OfferedFile } from "@protocol";
import { cleanup, render, screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import { Problem } from "../src/api";
import { Composer } from "../src/app/Composer";
import { chosen, tokenAt } from "../src/app/mention";
import { expectAccessible, FakeHost } from "./pages_house";

afterEach(cleanup);

const file = (path: string, type: OfferedFile["type"] = "file"): OfferedFile => ({ path, type });

describe("a name", () => {
  it.each([
    ["read @", 6, ""],
    ["@src/a", 6, "src/a"],
    ["see (@x", 7, "x"],
    ["one @a two @b", 13, "b"],
    ["read @src more", 9, "src"],
  ])("begins with an @ after a blank: %s", (text, caret, query) => {
    expect(tokenAt(text, caret)?.query).toBe(query);
  });

  it.each([
    ["mail me@example", 15],
    ["no name", 7],
    ["read @a b", 9],
    [`@${"x".repeat(300)}`, 301],
    ["@a", 0],
  ])("is not typed in %s", (text, caret) => {
    expect(tokenAt(text, caret)).toBeNull();
  });

  it.each([
    ["read @ap now", 8, file("src/app.py"), "read src/app.py now", 15],
    ["read @ap", 8, file("src/app.py"), "read src/app.py ", 16],
    ["@a", 2, file("my notes.md"), '"my notes.md" ', 14],
    ["@s", 2, file("src", "directory"), "@src/", 5],
    ["@s", 2, file("my dir", "directory"), '"my dir/" ', 10],
  ])("is put into the text: %s", (text, caret, offered, next, at) => {
    const token = tokenAt(text, caret);
    expect(token && chosen(text, token, offered)).toEqual({ text: next, caret: at });
  });
});

function show(files: (query: string) => Promise<{ files: OfferedFile[]; complete: boolean }>) {
  return render(
    <Composer
      host={new FakeHost()}
      projectId="proj_1"
      sessionId={null}
      ready
      begun={null}
      working={false}
      send={send}
      stop={() => {}}
      files={files}
      offered={{ text: "", count: 0 }}
    />,
  );
}

const send = vi.fn(async (_: string) => {});
const field = () => screen.getByLabelText<HTMLTextAreaElement>("Message");

describe("the list", () => {
  it("is asked for once the typing rests, and chosen from with the keyboard", async () => {
    const files = vi.fn(async (query: string) => ({
      files: [file("src", "directory"), file("src/app.py")].filter(({ path }) => path.includes(query)),
      complete: true,
    }));
    const { container } = show(files);
    await userEvent.type(field(), "read @s");
    const options = await screen.findAllByRole("option");
    expect(options.map((option) => option.getAttribute("aria-selected"))).toEqual(["true", "false"]);
    expect(field().getAttribute("aria-activedescendant")).toBe(options[0]?.id);
    expect(screen.getByRole("status").textContent).toBe("2 files");
    await expectAccessible(container);
    await userEvent.keyboard("{ArrowDown}");
    expect(field().getAttribute("aria-activedescendant")).toBe(screen.getAllByRole("option")[1]?.id);
    await userEvent.keyboard("{ArrowDown}{ArrowUp}{Enter}");
    expect(field().value).toBe("read src/app.py ");
    await waitFor(() => expect(screen.queryByRole("listbox")).toBeNull());
    expect(send).not.toHaveBeenCalled();
  });

  it("goes on in a directory, and Escape closes it until another @", async () => {
    const files = vi.fn(async (query: string) => ({
      files: query.endsWith("/") ? [file("src/app.py")] : [file("src", "directory")],
      complete: false,
    }));
    show(files);
    await userEvent.type(field(), "@s");
    await userEvent.click(await screen.findByRole("option"));
    expect(field().value).toBe("@src/");
    await waitFor(() => expect(screen.getByRole("option").textContent).toContain("app.py"));
    expect(screen.getByRole("status").textContent).toBe("1 file, more as you type");
    await userEvent.keyboard("{Escape}");
    expect(screen.queryByRole("option")).toBeNull();
    await userEvent.keyboard("a");
    expect(screen.queryByRole("option")).toBeNull();
    await userEvent.keyboard(" @");
    expect(await screen.findByRole("option")).toBeTruthy();
    await userEvent.tab();
  });

  it("says why there is nothing to choose, and Enter sends all the same", async () => {
    const files = vi.fn(async (query: string) => {
      if (query === "no") return { files: [], complete: true };
      throw query === "why" ? new Problem("No machine is connected.", 409) : new Error("x");
    });
    show(files);
    await userEvent.type(field(), "@no");
    expect(await screen.findByText(/No file fits/)).toBeTruthy();
    await userEvent.clear(field());
    await userEvent.type(field(), "@why");
    expect(await screen.findByText("No machine is connected.")).toBeTruthy();
    await userEvent.clear(field());
    await userEvent.type(field(), "@x");
    expect(await screen.findByText("The files could not be listed.")).toBeTruthy();
    await userEvent.keyboard("{Enter}");
    expect(send).toHaveBeenCalledWith("@x");
  });
});
