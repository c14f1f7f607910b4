// One line of facts below the headline: how risky it is, what it runs, the network, the time limit.

import { Clock, Globe, GlobeLock, Play } from "lucide-react";
import type { ReactNode } from "react";
import type { Question } from "../state/model";
import { runs, timeLimit } from "./asked";
import { Risk } from "./Risk";

const MOST_FILES = 3;

export function Chips({ question, children }: { question: Question; children?: ReactNode }) {
  const files = runs(question);
  const limit = timeLimit(question);
  const isCommand = question.tool_name === "execute_command";
  return (
    <div className="card-chips">
      <Risk level={question.risk_level} />
      {files.slice(0, MOST_FILES).map(({ path, script }) => (
        <span key={path} className="card-chip card-chip-code">
          <Play size={12} aria-hidden="true" />
          <span className="app-hidden">Runs </span>
          <bdi>{script === null ? path : `${path} → ${script}`}</bdi>
        </span>
      ))}
      {files.length > MOST_FILES && <span className="card-chip">and {files.length - MOST_FILES} more files</span>}
      {question.network ? (
        <span className="card-chip card-chip-warns">
          <Globe size={12} aria-hidden="true" />
          Uses the network
        </span>
      ) : (
        // Only a command could have a network, so only of one it is news that it has none.
        isCommand && (
          <span className="card-chip">
            <GlobeLock size={12} aria-hidden="true" />
            No network
          </span>
        )
      )}
      {limit && (
        <span className="card-chip">
          <Clock size={12} aria-hidden="true" />
          {limit}
        </span>
      )}
      {children}
    </div>
  );
}
