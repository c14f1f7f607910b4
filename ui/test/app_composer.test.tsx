import { act, cleanup, render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, test } from "vitest";
import { Problem } from "../src/api";
import { Composer } from "../src/app/Composer";
import { TableHost } from "./state_samples";

afterEach(cleanup);

type Props = Parameters<typeof Composer>[0];

/** A tab's place to write; tabs of one browser share what their hosts keep. */
function tab(host: TableHost, given: Partial<Props> = {}) {
  const user = userEvent.setup({ delay: null });
  const nothing = { text: "", count: 0 };
  let props: Props = {
    host,
    projectId: "p",
    sessionId: null,
    ready: true,
    begun: null,
    working: false,
    send: async () => {},
    stop: () => {},
    offered: nothing,
    ...given,
  };
  const view = render(<Composer {...props} />);
  const here = within(view.container);
  const field = () => here.getByRole("textbox", { name: "Message" }) as HTMLTextAreaElement;
  return {
    here,
    field,
    type: (text: string) => user.type(field(), text),
    show: (changes: Partial<Props>) => {
      props = { ...props, ...changes };
      view.rerender(<Composer {...props} />);
    },
  };
}

/** An answer that comes when the test says. */
function later() {
  let resolve = () => {};
  let reject = (_reason: Problem) => {};
  const answer = new Promise<void>((yes, no) => {
    [resolve, reject] = [yes, no];
  });
  return { send: () => answer, resolve, reject };
}

test("what another tab writes for another conversation is not taken along by a first message here", async () => {
  const host = new TableHost();
  const { send, resolve } = later();
  const [one, two] = [tab(host, { send }), tab(host)];
  await one.type("hello{Enter}");
  await two.type("a plan of its own");
  await act(async () => resolve());
  one.show({ sessionId: "s", begun: "s" });
  expect(one.field().value).toBe("");
  expect(host.kept.has("draft p s")).toBe(false);
  expect(host.kept.get("draft p new")).toBe("a plan of its own");
});

test("what comes back stands before what was typed here, not before what another tab typed", async () => {
  const host = new TableHost();
  const { send, reject } = later();
  const [one, two] = [tab(host, { send, sessionId: "s" }), tab(host, { sessionId: "s" })];
  await one.type("hello{Enter}");
  await one.type("and more");
  await two.type("a plan of its own");
  await act(async () => reject(new Problem("No.", 413)));
  expect(one.field().value).toBe("hello\n\nand more");
  expect(two.field().value).toBe("a plan of its own");
});

test("sending leaves what another tab has written in its place", async () => {
  const host = new TableHost();
  const [one, two] = [tab(host, { sessionId: "s" }), tab(host, { sessionId: "s" })];
  await one.type("hello");
  await two.type("a plan");
  await one.type("{Enter}");
  expect(host.kept.get("draft p s")).toBe("a plan");
});

test("an example does not take the place of what was typed", async () => {
  const host = new TableHost();
  const one = tab(host);
  one.show({ offered: { text: "list src", count: 1 } });
  expect(one.field().value).toBe("list src");
  one.show({ offered: { text: "read it", count: 2 } });
  expect(one.field().value).toBe("read it"); // one example for another
  await one.type(" first");
  one.show({ offered: { text: "list src", count: 3 } });
  expect(one.field().value).toBe("read it first\n\nlist src");
  expect(host.kept.get("draft p new")).toBe("read it first\n\nlist src");
});

test("what the chat gives back comes into the field of its conversation, before what was typed since", async () => {
  const host = new TableHost();
  const one = tab(host, { sessionId: "s" });
  await one.type("next");
  one.show({ returned: { projectId: "p", sessionId: "x", text: "of another" } });
  expect(one.field().value).toBe("next");
  one.show({ returned: { projectId: "p", sessionId: "s", text: "first" } });
  expect(one.field().value).toBe("first\n\nnext");
  expect(host.kept.get("draft p s")).toBe("first\n\nnext");
  one.show({ sessionId: "x" });
  one.show({ sessionId: "s" });
  expect(screen.getAllByRole("textbox").map((each) => (each as HTMLTextAreaElement).value)).toEqual(["first\n\nnext"]);
});

test("a message that gets no answer keeps nobody from writing in another conversation", async () => {
  const host = new TableHost();
  const { send, resolve } = later();
  const sent: string[] = [];
  const one = tab(host, { send, sessionId: "s" });
  await one.type("hello{Enter}");
  expect(one.here.getByRole("button", { name: "Sending…" })).toBeTruthy();
  one.show({ sessionId: "x", send: async (content) => void sent.push(content) });
  await one.type("elsewhere{Enter}");
  expect(sent).toEqual(["elsewhere"]);
  one.show({ sessionId: "s" });
  await one.type("next{Enter}");
  expect(sent).toEqual(["elsewhere"]); // one after the other
  await act(async () => resolve());
  await one.type("{Enter}");
  expect(sent).toEqual(["elsewhere", "next"]);
});
