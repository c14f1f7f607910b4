// Sending an answer, once: what is on its way, what went wrong, and who was first when it came second. The server
// decides what holds; this only reports it.

import type { ApproveBody } from "@protocol";
import { useRef, useState } from "react";
import { type Api, Problem } from "../api";
import type { Question, Settled } from "../state/model";
import { visible } from "../text/visible";

export interface Deciding {
  /** Which answer is on its way, if any. */
  sending: "approved" | "rejected" | null;
  problem: { message: string; hint: string | null } | null;
  /** Somebody else was first: what the server said of it. */
  second: string | null;
  approve: (terms: Pick<ApproveBody, "scope" | "terms">) => void;
  reject: (reason: string) => void;
}

const FINAL: ReadonlySet<string> = new Set(["approved", "rejected", "timeout", "cancelled"]);

export function useDeciding(
  question: Question,
  api: Api,
  projectId: string,
  onDecided: (settled: Settled) => void,
): Deciding {
  const [sending, setSending] = useState<Deciding["sending"]>(null);
  const [problem, setProblem] = useState<Deciding["problem"]>(null);
  const [second, setSecond] = useState<string | null>(null);
  // Two presses can come before the first is drawn.
  const busy = useRef(false);
  /** `grants`: more than this answer is asked for, which an earlier one need not have brought. */
  const send = async (
    status: "approved" | "rejected",
    reason: string | null,
    request: () => Promise<unknown>,
    grants = false,
  ) => {
    if (busy.current) return;
    busy.current = true;
    setSending(status);
    setProblem(null);
    try {
      await request();
    } catch (error) {
      busy.current = false;
      setSending(null);
      const other = whatHolds(error);
      if (!other) {
        setProblem(problemOf(error));
        return;
      }
      // The same answer of the same person: ours, which had arrived although nobody said so.
      if (!grants && other.status === status && other.by === `person:${question.user_id}`) {
        onDecided({ question, status, by: other.by, reason, here: true });
        return;
      }
      setSecond(other.message);
      onDecided({ question, status: other.status, by: other.by, reason: null, here: false });
      return;
    }
    onDecided({ question, status, by: `person:${question.user_id}`, reason, here: true });
  };
  return {
    sending,
    problem,
    second,
    approve: (terms) =>
      void send(
        "approved",
        null,
        () =>
          api.approve(projectId, question.id, {
            decision: "approved",
            digest: question.digest,
            calls: Math.max(1, question.tool_ids.length),
            ...terms,
          }),
        terms.scope !== undefined,
      ),
    reject: (reason) => {
      const said = reason.trim() || null;
      void send("rejected", said, () => api.reject(projectId, question.id, said));
    },
  };
}

function whatHolds(error: unknown): { status: Settled["status"]; by: string | null; message: string } | null {
  if (!(error instanceof Problem) || error.status !== 409 || !error.state || !FINAL.has(error.state)) return null;
  const who = /, by ([^\n]+)\.$/.exec(error.message)?.[1];
  // The server names a person without their kind; a grant or a rule keeps it.
  const by = who === undefined ? null : who.includes(":") ? who : `person:${who}`;
  return { status: error.state as Settled["status"], by, message: visible(error.message) };
}

function problemOf(error: unknown): { message: string; hint: string | null } {
  if (error instanceof Problem) {
    return { message: visible(error.message), hint: error.hint === null ? null : visible(error.hint) };
  }
  const said = error instanceof Error ? visible(error.message) : "The answer could not be sent.";
  return { message: said, hint: "Nothing was decided here; try again." };
}
