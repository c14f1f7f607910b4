// Tells a screen reader what is new, politely and once: a whole answer, a question that waits. Never the pieces of a text
// as it streams, and never what was there when the page opened.

import { useEffect, useRef, useState } from "react";
import { headline, headlineText } from "../cards/asked";
import type { Entry, Question } from "../state/model";
import { visible } from "../text/visible";

const LONGEST = 300;

export function Announcer({
  entries,
  questions,
  loading,
}: {
  entries: Entry[];
  questions: Question[];
  loading: boolean;
}) {
  const [text, setText] = useState("");
  const lastAnswer = useRef<string | null>(null);
  const asked = useRef<Set<string> | null>(null);

  const answer = entries.findLast((entry) => entry.kind === "message" && entry.role === "agent" && !entry.pending);
  const quiet = useRef(true);
  useEffect(() => {
    const before = lastAnswer.current;
    lastAnswer.current = answer?.id ?? null;
    if (!loading && !quiet.current && answer?.kind === "message" && answer.id !== before) {
      setText(`The agent says: ${visible(answer.content).slice(0, LONGEST)}`);
    }
    quiet.current = loading;
  }, [answer, loading]);

  useEffect(() => {
    const known = asked.current;
    asked.current = new Set(questions.map((question) => question.id));
    const fresh = known && questions.findLast((question) => !known.has(question.id));
    if (fresh) setText(`To review: ${headlineText(headline(fresh))}`);
  }, [questions]);

  return (
    <div className="app-hidden" aria-live="polite">
      {text}
    </div>
  );
}
