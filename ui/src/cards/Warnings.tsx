// What a person should know before the answer: reasons that the headline does not say, and notes of the server.

import { Info, TriangleAlert } from "lucide-react";
import type { Question } from "../state/model";
import { visible } from "../text/visible";
import { notes, warnings } from "./asked";

export function Warnings({ question }: { question: Question }) {
  const found = warnings(question);
  const told = notes(question);
  const problem = question.inspection?.problem;
  if (found.length + told.length === 0 && !problem) return null;
  return (
    <ul className="card-warnings">
      {found.map((finding, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: they never change
        <li key={index} data-level={finding.level}>
          {finding.level === "HIGH" ? (
            <TriangleAlert size={15} aria-hidden="true" />
          ) : (
            <Info size={15} aria-hidden="true" />
          )}
          <span>
            <bdi>{visible(finding.reason)}</bdi>
            {finding.instead && <span className="card-aside"> Safer: {visible(finding.instead)}</span>}
          </span>
        </li>
      ))}
      {told.map((note, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: they never change
        <li key={`note ${index}`} data-level="HIGH">
          <TriangleAlert size={15} aria-hidden="true" />
          <bdi>{note}</bdi>
        </li>
      ))}
      {problem && (
        <li data-level="HIGH">
          <TriangleAlert size={15} aria-hidden="true" />
          <span>What this runs could not be checked: {visible(problem)}</span>
        </li>
      )}
    </ul>
  );
}
