// What is masked in a question: how many places and characters, and the real values when the person asks for them. They
// are fetched then, shown here alone, and kept nowhere.

import type { SeenFile, WriteChange } from "@protocol";
import { useState } from "react";
import type { Api } from "../api";
import type { Question } from "../state/model";
import { Lines } from "../text/Lines";
import { counted } from "../text/words";
import { told } from "./told";

/** What of a call is shown, and may be masked: a write's content is in its difference, where there is one. */
export function shownOf({ tool_params, inspection }: Question, change: WriteChange | null): string {
  const files: readonly SeenFile[] = inspection?.files ?? [];
  const texts = [...Object.values(tool_params).flat().map(String), ...files.map((file) => file.text ?? "")];
  return change?.change.after ?? texts.join("\n");
}

const MASK = /\[masked:[^\],]{1,60}, (\d{1,9}) characters?\]/g;

export function Masked({ question, shown, api }: { question: Question; shown: string; api: Api }) {
  const [real, setReal] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const places = [...shown.matchAll(MASK)];
  if (places.length === 0) return null;
  const hidden = places.reduce((sum, [, many]) => sum + Number(many), 0);
  if (real !== null) return <Lines text={real} start={null} label="The call with nothing masked" />;
  const load = async () => {
    try {
      setReal((await api.whole(question.id, true)).text);
    } catch (error) {
      setProblem(told(error));
    }
  };
  return (
    <p className="card-told">
      {counted(hidden, "character")} in {counted(places.length, "place")} masked: they look secret.{" "}
      <button type="button" onClick={load}>
        Show them
      </button>{" "}
      {problem && <span role="alert">{problem}</span>}
    </p>
  );
}
