// What a write that waits would do: the difference against the file as it is on the machine. Where there is none to be
// had, all that would be written is shown instead. It never shows another question's difference.

import type { WriteChange } from "@protocol";
import { useEffect, useRef, useState } from "react";
import { type Api, passing } from "../api";
import type { Host } from "../host";
import { Again } from "../state/again";
import type { Question } from "../state/model";
import { Lines } from "../text/Lines";
import { compared, DiffView } from "./DiffView";
import { textOf } from "./reading";
import { told } from "./told";

interface WriteShownProps {
  question: Question;
  loaded: Loaded;
  api: Api;
  host: Host;
  /** Something appeared above the buttons. */
  moved: () => void;
}

export type Loaded = { change: WriteChange } | { problem: string } | null;

/** What a write would change, once the machine has said it; of another call there is nothing to ask. */
export function useChange(question: Question, api: Api, moved: () => void, wanted = true): Loaded {
  const [loaded, setLoaded] = useState<Loaded>(null);
  const tell = useRef(moved);
  tell.current = moved;
  const { id, digest } = question;
  const asks = wanted && question.tool_name === "write_file";
  useEffect(() => {
    if (!asks) return;
    let here = true;
    const settle = (found: Loaded) => {
      if (!here) return;
      setLoaded(found);
      tell.current();
    };
    const again = new Again();
    const load = () =>
      api.change(id).then(
        (change) => settle(change.digest === digest ? { change } : { problem: "What came belongs to another call." }),
        (error: unknown) => {
          settle({ problem: told(error) });
          if (here && passing(error)) again.later(load);
        },
      );
    void load();
    return () => {
      here = false;
      again.reset();
    };
  }, [api, id, digest, asks]);
  return loaded;
}

export function WriteShown({ question, loaded, api, host, moved }: WriteShownProps) {
  if (loaded === null) {
    return (
      <p className="card-loading" role="status">
        Comparing with your file…
      </p>
    );
  }
  if ("problem" in loaded) {
    return (
      <section className="card-part">
        <p className="card-caution">The difference cannot be shown: {loaded.problem}</p>
        <Written question={question} api={api} moved={moved} />
      </section>
    );
  }
  const { change } = loaded.change;
  const whole = compared(change) !== null;
  return (
    <>
      {(whole || change.note) && <DiffView change={change} named host={host} approvalId={question.id} />}
      {!whole && <Written question={question} api={api} moved={moved} />}
    </>
  );
}

// All of what would be written; where the question holds only a part, the rest is fetched when asked for.
function Written({ question, api, moved }: Omit<WriteShownProps, "host" | "loaded">) {
  const [whole, setWhole] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const content = textOf(question.tool_params.content);
  const partial = question.tool_params.content_size !== undefined;
  const load = async () => {
    if (busy) return;
    setBusy(true);
    setProblem(null);
    try {
      setWhole((await api.whole(question.id)).text);
      moved();
    } catch (error) {
      setProblem(told(error));
    }
    setBusy(false);
  };
  if (whole !== null) return <Lines text={whole} start={null} label="All of the call" />;
  return (
    <>
      <p className="card-part-title">Content to write</p>
      {content === null ? (
        <p className="card-told">It is not here yet.</p>
      ) : (
        <Lines text={content} label="Content to write" />
      )}
      {(partial || content === null) && (
        <p className="card-told">
          Not all of it is here.{" "}
          <button type="button" aria-disabled={busy} onClick={load}>
            {busy ? "Loading…" : "Show all of it"}
          </button>{" "}
          {problem && <span role="alert">{problem}</span>}
        </p>
      )}
    </>
  );
}
