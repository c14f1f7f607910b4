// What went wrong with an answer. Its place is there before anything does, so that it is heard.

import { Sentences } from "../text/Sentences";
import type { Trouble } from "./deciding";

export function Problem({ problem }: { problem: Trouble | null }) {
  return (
    <div role="alert">
      {problem && (
        <p className="card-caution">
          <Sentences text={problem.message} />{" "}
          {problem.hint && (
            <span>
              <Sentences text={problem.hint} />
            </span>
          )}
        </p>
      )}
    </div>
  );
}
