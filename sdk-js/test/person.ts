// The person of the tests: sees the questions as they are asked, and answers them over REST.
import { inject } from "vitest";

const place = inject("place");
const headers = { Authorization: `Bearer ${place.personToken}` };

export interface Question {
  approval_id: string;
  tool_id: string;
  tool_name: string;
  tool_params: Record<string, unknown>;
}

/** Begin to watch; resolves when the server sends events. */
export async function watch() {
  const events: { kind: string; data: Question }[] = [];
  let news = Promise.withResolvers<void>();
  const stop = new AbortController();
  const url = `${place.serverUrl}/my/projects/${place.projectId}/chat/stream?execute=false`;
  const response = await fetch(url, { headers, signal: stop.signal });
  const reading = (async () => {
    let rest = "";
    for await (const piece of (response.body as ReadableStream<BufferSource>).pipeThrough(new TextDecoderStream())) {
      const frames = (rest + piece).split("\n\n");
      rest = frames.pop() ?? "";
      for (const frame of frames) {
        const kind = /^event: ?(.*)$/m.exec(frame)?.[1];
        const data = /^data: ?(.*)$/m.exec(frame)?.[1];
        if (kind && data) events.push({ kind, data: JSON.parse(data) as Question });
      }
      news.resolve();
      news = Promise.withResolvers<void>();
    }
  })().catch(() => undefined);

  const until = async (kind: string, fits: (data: Question) => boolean): Promise<Question> => {
    for (;;) {
      const found = events.find((event) => event.kind === kind && fits(event.data));
      if (found) return found.data;
      await news.promise;
    }
  };
  return {
    /** The question about a write of this path. */
    asked: (path: string) => until("tool.approval_request", (question) => question.tool_params.path === path),
    finished: (toolId: string) => until("tool.finished", (data) => data.tool_id === toolId),
    async stop() {
      stop.abort();
      await reading;
    },
  };
}

export const approve = (question: Question) => decide(question, "approve", { decision: "approved" });
export const reject = (question: Question, reason: string) => decide(question, "reject", { reason });

async function decide(question: Question, verb: string, body: object) {
  const url = `${place.serverUrl}/my/projects/${place.projectId}/approvals/${question.approval_id}/${verb}`;
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(await answer.text());
}

/** The record of a call, as the person sees it. */
export async function recorded(toolId: string): Promise<{ status: string; error_type: string | null }> {
  const answer = await fetch(`${place.serverUrl}/my/tools/${toolId}`, { headers });
  return (await answer.json()) as { status: string; error_type: string | null };
}

/** How many calls of this path are on the record. */
export async function callsOf(path: string): Promise<number> {
  const answer = await fetch(`${place.serverUrl}/my/tools/history?limit=200`, { headers });
  const { executions } = (await answer.json()) as { executions: Question[] };
  return executions.filter((one) => one.tool_params.path === path).length;
}
