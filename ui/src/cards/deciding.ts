// Sending an answer, once: what is on its way, what went wrong, and who was first when it came second. The server
// decides what holds; this only reports it.

import type { ApproveBody } from "@protocol";
import { useRef, useState } from "react";
import { type Api, Problem } from "../api";
import type { Question, Settled } from "../state/model";
import { visible } from "../text/visible";

export type Wider = Pick<ApproveBody, "scope" | "terms">;

export type Answer = { status: "approved"; terms: Wider } | { status: "rejected"; reason: string | null };

export interface Trouble {
  message: string;
  hint: string | null;
}

/** Sends one answer to one question, with the digest and the number of calls that were shown. */
export async function answer(
  question: Question,
  api: Api,
  projectId: string,
  given: Answer,
): Promise<{ settled: Settled } | { problem: Trouble }> {
  const { status } = given;
  const reason = given.status === "rejected" ? given.reason?.trim() || null : null;
  const mine = { question, status, by: `person:${question.user_id}`, reason, here: true };
  try {
    if (given.status === "rejected") await api.reject(projectId, question.id, reason);
    else {
      await api.approve(projectId, question.id, {
        decision: "approved",
        digest: question.digest,
        calls: Math.max(1, question.tool_ids.length),
        ...given.terms,
      });
    }
  } catch (error) {
    const other = whatHolds(error);
    if (!other) return { problem: problemOf(error) };
    // The same answer of the same person: ours, which had arrived although nobody said so. One that asks for more than
    // this call need not have been.
    const grants = given.status === "approved" && given.terms.scope !== undefined;
    if (!grants && other.status === status && other.by === mine.by) return { settled: mine };
    return {
      settled: { question, status: other.status, by: other.by, reason: null, here: false, second: other.message },
    };
  }
  return { settled: mine };
}

export interface Deciding {
  /** Which answer is on its way, if any. */
  sending: "approved" | "rejected" | null;
  problem: Trouble | null;
  /** Whether the answer is known: then nothing more can be said. */
  over: boolean;
  approve: (terms: Wider) => void;
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
  const [problem, setProblem] = useState<Trouble | null>(null);
  const [over, setOver] = useState(false);
  // Two presses can come before the first is drawn.
  const busy = useRef(false);
  const send = async (given: Answer) => {
    if (busy.current) return;
    busy.current = true;
    setSending(given.status);
    setProblem(null);
    const told = await answer(question, api, projectId, given);
    if ("problem" in told) {
      busy.current = false;
      setSending(null);
      setProblem(told.problem);
      return;
    }
    if (!told.settled.here) setSending(null);
    setOver(true);
    onDecided(told.settled);
  };
  return {
    sending,
    problem,
    over,
    approve: (terms) => void send({ status: "approved", terms }),
    reject: (reason) => void send({ status: "rejected", reason }),
  };
}

function whatHolds(error: unknown): { status: Settled["status"]; by: string | null; message: string } | null {
  if (!(error instanceof Problem) || error.status !== 409 || !error.state || !FINAL.has(error.state)) return null;
  const who = /, by ([^\n]+)\.$/.exec(error.message)?.[1];
  // The server names a person without their kind; a grant or a rule keeps it.
  const by = who === undefined ? null : who.includes(":") ? who : `person:${who}`;
  return { status: error.state as Settled["status"], by, message: visible(error.message) };
}

function problemOf(error: unknown): Trouble {
  if (error instanceof Problem) {
    return { message: visible(error.message), hint: error.hint === null ? null : visible(error.hint) };
  }
  const said = error instanceof Error ? visible(error.message) : "The answer could not be sent.";
  return { message: said, hint: "Nothing was decided. Try again." };
}
