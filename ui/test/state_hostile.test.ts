// @vitest-environment node
import { expect, test } from "vitest";
import { Chat } from "../src/state/chat";
import * as sample from "./state_samples";
import { TableHost } from "./state_samples";

const settled = () => new Promise((resolve) => setTimeout(resolve, 0));

test("leaving a project whose stream never answers does not hold back what the next one tells", async () => {
  const projects = ["p", "q"].map((id) => ({ project_id: id, name: id, created_at: sample.at(0) }));
  const host = new TableHost({
    "GET /my/projects": { projects, total_count: 2 },
    "GET /my/projects/q/chat/sessions": { sessions: [], total_count: 0 },
    "GET /my/projects/q/agents": { agents: [sample.agent], total_count: 1 },
    "GET /my/projects/q/machines": { machines: [], total_count: 0 },
  });
  host.opens = false;
  const chat = new Chat(host, () => () => {});
  const first = chat.start("p", null);
  await settled();
  expect(host.streams).toHaveLength(1);
  host.opens = true;
  await chat.openProject("q", null);
  await first;
  host.tell(sample.asked("question", 5));
  expect(chat.store.get()).toMatchObject({ projectId: "q", link: "up" });
  expect(chat.store.get().questions).toHaveLength(1);
  chat.close();
});
