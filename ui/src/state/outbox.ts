// Messages that were sent and not answered yet. Each has a name of its own, under which the server keeps it once, however
// often it is sent: what got lost on the way can be sent again without a doubt. Kept over a reload, and no longer.

import type { MessageAccepted, MessageBody } from "@protocol";
import { type Api, insist, Problem, passing } from "../api";
import type { Host } from "../host";

/** After so long nobody expects a message to go out by itself when the page opens: the person gets it back instead. */
export const YOUNG_MS = 2 * 60_000;
/** The same words so long after are another message: under the old name they would go nowhere. */
export const SAME_MS = 10 * 60_000;

interface Unanswered {
  body: MessageBody;
  /** When it was last sent, by the person's own clock. */
  at: number;
  /** The person has it back, and decides: by itself it goes no more. */
  back?: boolean;
}

const slot = (project: string, session: string | null) => `sending ${project} ${session ?? "new"}`;

export class Outbox {
  readonly #host: Host;
  readonly #api: Api;

  constructor(host: Host, api: Api) {
    this.#host = host;
    this.#api = api;
  }

  /** Sends a message. The same one, after its answer was lost, goes under the same name: it arrives once. `usual`: its
   * agent and mode are what the server takes where none are named. */
  async send(project: string, wanted: Omit<MessageBody, "client_key">, usual = false): Promise<MessageAccepted> {
    const session = wanted.session_id ?? null;
    const before = this.#left(project, session);
    const again = before && within(before, SAME_MS) && same(before.body, wanted, usual);
    const body = again ? before.body : { ...wanted, client_key: newKey() };
    try {
      const accepted = await this.#insist(project, session, body);
      this.#drop(project, session, body);
      return accepted;
    } catch (error) {
      // The server has answered: it holds nothing of it, and the next one is another message.
      if (!passing(error)) this.#drop(project, session, body);
      else if (!this.#isOthers(project, session, body)) {
        this.#keep(project, session, { body, at: Date.now(), back: true });
      }
      throw error;
    }
  }

  /** What was on its way when the page was left, a moment ago: it is to be sent, not lost. */
  interrupted(project: string, session: string | null): Omit<MessageBody, "client_key"> | null {
    const left = this.#left(project, session);
    return left && !left.back && within(left, YOUNG_MS) ? left.body : null;
  }

  /** What was on its way when the page was left, too long ago to go by itself: the person gets it back, once. */
  stranded(project: string, session: string | null): string | null {
    const left = this.#left(project, session);
    if (!left || left.back || within(left, YOUNG_MS)) return null;
    this.#keep(project, session, { ...left, back: true });
    return left.body.content;
  }

  async #insist(project: string, session: string | null, body: MessageBody): Promise<MessageAccepted> {
    this.#keep(project, session, { body, at: Date.now() });
    const attempt = () => {
      // Each time anew: another tab must not take for stranded what is still being tried here.
      if (!this.#isOthers(project, session, body)) this.#keep(project, session, { body, at: Date.now() });
      return this.#api.post(project, body);
    };
    return insist(attempt).catch((error: unknown) => {
      if (!(error instanceof Problem) || !passing(error)) throw error;
      const hint = "Not confirmed. Retrying is safe; it won't be sent twice.";
      throw new Problem(error.message, error.status, hint, error.state);
    });
  }

  #keep(project: string, session: string | null, left: Unanswered): void {
    this.#host.remember(slot(project, session), JSON.stringify(left));
  }

  #left(project: string, session: string | null): Unanswered | null {
    const kept = this.#host.recall(slot(project, session));
    try {
      const left = JSON.parse(kept ?? "null") as Partial<Unanswered> | null;
      return typeof left?.at === "number" && typeof left.body?.content === "string" ? (left as Unanswered) : null;
    } catch {
      return null; // not what we wrote
    }
  }

  /** Whether another tab has a message of its own on its way here: that one stays. */
  #isOthers(project: string, session: string | null, { client_key }: MessageBody): boolean {
    const left = this.#left(project, session);
    return left !== null && !left.back && left.body.client_key !== client_key;
  }

  /** Another tab may have sent another message meanwhile: that one stays. */
  #drop(project: string, session: string | null, { client_key }: MessageBody): void {
    if (this.#left(project, session)?.body.client_key === client_key) this.#host.remember(slot(project, session), null);
  }
}

/** A clock that was set back makes nothing old. */
function within({ at }: Unanswered, span: number): boolean {
  return Math.abs(Date.now() - at) < span;
}

/** Also where the page came over plain HTTP, and the browser makes no such names. */
function newKey(): string {
  return [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(16).padStart(8, "0")).join("");
}

function same(before: MessageBody, wanted: MessageBody, usual: boolean): boolean {
  if (before.content !== wanted.content) return false;
  const who = ({ agent, mode, model }: MessageBody) => JSON.stringify([agent ?? null, mode ?? null, model ?? null]);
  // Sent before the agents were known, it named none.
  return who(before) === who(wanted) || (usual && who(before) === who({ content: "" }));
}
