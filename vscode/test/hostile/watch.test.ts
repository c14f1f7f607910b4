// A question whose files could not be looked at says so in the chat alone.

import { expect, test, vi } from "vitest";
import type { Api } from "../../../ui/src/api.js";
import type { FeedListener, Host } from "../../../ui/src/host.js";
import { type Asked, Watch } from "../../src/host/watch.js";
import { question } from "../tools/fakes.js";

test("a look that failed counts as one: the question cannot be allowed by a dialog that does not tell of it", () => {
  const listeners: FeedListener[] = [];
  const host = {
    feed: (_path: string, _last: string | null, listener: FeedListener) => {
      listeners.push(listener);
      return () => {};
    },
  };
  const api = { approvals: async () => ({ approvals: [] }) };
  const asked = vi.fn((_question: Asked) => {});
  const watch = new Watch(
    host as unknown as Host,
    api as unknown as Api,
    "p",
    { changed: () => {}, asked, over: () => {}, event: () => {} },
    () => () => {},
  );
  const event = question({ inspection: { files: [], problem: "It is too large." } });
  listeners[0]?.open();
  listeners[0]?.frame({ id: "1", event: event.kind, data: JSON.stringify(event) });
  watch.end();
  expect(asked.mock.calls[0]?.[0].inspected).toBe(true);
});
