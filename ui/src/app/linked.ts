// A question that a link or a notification leads to: opens its project, and shows it as soon as it is there.

import { useEffect, useRef } from "react";
import type { Chat } from "../state/chat";
import type { AppState } from "../state/model";

/** `arrive` is called once: with the question, or with null where it does not wait any more. */
export function useLinked(
  chat: Chat,
  state: AppState,
  question: string | undefined,
  arrive: (question: string | null) => void,
): void {
  const end = useRef(arrive);
  end.current = arrive;
  const begun = state.projectId !== null;
  useEffect(() => {
    if (question === undefined || !begun) return;
    let left = false;
    void chat.openQuestion(question).then((waits) => !left && !waits && end.current(null));
    return () => {
      left = true;
    };
  }, [chat, question, begun]);
  const here = question !== undefined && state.questions.some(({ id }) => id === question);
  useEffect(() => {
    if (here && question !== undefined) end.current(question);
  }, [here, question]);
}
