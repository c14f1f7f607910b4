// What is asked: a verb, and the exact command or path. Nothing of it is cut off: where it is long it takes its room, and
// long runs of blanks, which would push what follows out of sight, are counted instead.

import { Fragment } from "react";
import type { Host } from "../host";
import { thousands } from "../text/words";
import type { Headline as Words } from "./asked";

const RUN_OF_BLANKS = /( {24,})/;

interface HeadlineProps {
  words: Words;
  /** The file that is meant, where there is one to open. */
  file?: string | null;
  host?: Host;
}

export function Headline({ words: { verb, what }, file = null, host }: HeadlineProps) {
  const shown = (
    <bdi className="card-path">
      {what.split(RUN_OF_BLANKS).map((piece, index) =>
        index % 2 === 0 ? (
          // biome-ignore lint/suspicious/noArrayIndexKey: a piece is known by its place
          <Fragment key={index}>{piece}</Fragment>
        ) : (
          // biome-ignore lint/suspicious/noArrayIndexKey: as above
          <span key={index} className="card-blank">
            [{thousands(piece.length)} blanks]
          </span>
        ),
      )}
    </bdi>
  );
  return (
    <h2 className="card-asked">
      {verb && <span className="card-asked-verb">{verb} </span>}
      {file !== null && host?.openFile ? (
        <button type="button" className="card-open" title="Open the file" onClick={() => host.openFile?.(file)}>
          {shown}
        </button>
      ) : (
        shown
      )}
    </h2>
  );
}
