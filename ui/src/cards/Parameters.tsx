// The exact parameters of a call. Each argument of a command stands in a box of its own, so that where one ends and the
// next begins, and one that is empty or blank, can be seen. Nothing is interpreted, nothing is hidden.

import { Lines, long } from "../text/Lines";
import { oneLine, pieces } from "../text/visible";
import { counted } from "../text/words";
import { type Fields, json } from "./reading";

const MOST_ARGUMENTS = 500;
const SHORT = 200;
const MOST_MARKED = 3000;

interface ParametersProps {
  toolName: string;
  params: Fields;
  /** Names that are shown elsewhere, with where. */
  elsewhere?: Record<string, string>;
  /** Leaves out what is null: nobody gave it. Not where somebody decides by what is shown. */
  given?: boolean;
  /** Each by its name, without the words of a command. */
  named?: boolean;
}

export function Parameters({ toolName, params, elsewhere = {}, given = false, named = false }: ParametersProps) {
  const isCommand =
    !named && toolName === "execute_command" && (params.args === undefined || Array.isArray(params.args));
  const { command, args, ...others } = params;
  const rest = Object.entries(isCommand ? others : params).filter(([, value]) => !given || value !== null);
  if (!isCommand && rest.length === 0) return <p className="card-aside">It was given no parameters.</p>;
  return (
    <dl className="card-params">
      {isCommand && (
        <div className="card-param">
          <dt>arguments</dt>
          <dd>
            <Arguments words={[command, ...((args as unknown[] | undefined) ?? [])]} />
          </dd>
        </div>
      )}
      {rest.map(([name, value]) => (
        <div className="card-param" key={name}>
          <dt>
            <bdi>{oneLine(name)}</bdi>
          </dt>
          <dd>
            {elsewhere[name] ? (
              <span className="card-aside">{elsewhere[name]}</span>
            ) : (
              <Value name={name} value={value} />
            )}
            {isCommand && name === "timeout" && typeof value === "number" && (
              <span className="card-aside"> {value === 1 ? "second" : "seconds"}</span>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Value({ name, value }: { name: string; value: unknown }) {
  const text = typeof value === "string" ? value : json(value);
  if (text === "") return <em className="card-aside">empty</em>;
  if (text.includes("\n") || text.length > SHORT) return <Lines text={text} start={null} label={oneLine(name)} />;
  return (
    <code className="card-value">
      <Blanks text={text} />
    </code>
  );
}

function Arguments({ words }: { words: unknown[] }) {
  const shown = words.slice(0, MOST_ARGUMENTS);
  return (
    <>
      <ol className="card-argv" aria-label={`${counted(words.length, "word")} of the command line`}>
        {shown.map((word, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: an argument is known by its place
          <li key={index}>
            <code>{word === "" ? <em>empty</em> : <Blanks text={typeof word === "string" ? word : json(word)} />}</code>
          </li>
        ))}
      </ol>
      {words.length > MOST_ARGUMENTS && (
        <Lines
          text={words.slice(MOST_ARGUMENTS).map(json).join("\n")}
          start={MOST_ARGUMENTS + 1}
          label="More arguments"
        />
      )}
    </>
  );
}

// Blanks at the ends of a word would not be seen, and an escape that was made here would pass for one that was written.
function Blanks({ text }: { text: string }) {
  if (text.length > MOST_MARKED) return long(oneLine(text));
  const [, before = "", middle = "", after = ""] = /^( *)(.*?)( *)$/s.exec(text) ?? [];
  return (
    <>
      {before && <Marked blanks={before.length} />}
      {pieces(middle).map((piece, index) =>
        index % 2 === 0 ? (
          piece
        ) : (
          // biome-ignore lint/suspicious/noArrayIndexKey: a piece is known by its place
          <span key={index} className="card-blank" title="one character that would not be seen">
            {piece}
          </span>
        ),
      )}
      {after && <Marked blanks={after.length} />}
    </>
  );
}

function Marked({ blanks }: { blanks: number }) {
  return (
    <span className="card-blank" title={counted(blanks, "blank")}>
      {"␣".repeat(blanks)}
    </span>
  );
}
