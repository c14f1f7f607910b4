// The gate's answer, in the order a person asks: what would happen, why, how the call was read. Everything in it came from
// a call somebody typed or a file somebody wrote, so it is only ever shown as text.

import type { CheckAnswer, CheckDecision } from "@protocol";
import { Lines } from "../text/Lines";
import { callSummary, span, verb } from "../text/words";
import type { Asked } from "./CheckForm";
import { type Fact, Facts, Plain, Risk, Words } from "./facts";

const DECISION: Record<CheckDecision, string> = {
  runs: "runs without asking",
  asks: "asks first",
  refused: "never runs",
};

export function CheckResult({ asked, answer }: { asked: Asked; answer: CheckAnswer }) {
  const time = answer.timeout_seconds === null ? "" : `, ${span(answer.timeout_seconds)} to answer`;
  return (
    <div className={`page-verdict page-verdict-${answer.decision}`}>
      <p className="page-verdict-word">
        <Risk level={answer.verdict} /> {DECISION[answer.decision]}
        {time}
      </p>
      <p>
        <span className="page-tool">{verb(asked.tool_name)}</span>{" "}
        <code>
          <bdi>{callSummary(asked.tool_name, asked.tool_params)}</bdi>
        </code>{" "}
        <span className="page-note">
          in mode {asked.mode}
          {asked.session_id ? ", with the open conversation’s grants" : ""}
        </span>
      </p>
      <p>
        <Plain text={answer.because} />
      </p>
      <h3>Found</h3>
      <ul className="page-reasons">
        {answer.findings.map((finding) => (
          <li key={`${finding.rule} ${finding.reason}`}>
            <Risk level={finding.level} /> <Plain text={finding.reason} />{" "}
            <span className="page-note">
              rule{" "}
              <code>
                <Plain text={finding.rule} />
              </code>
            </span>
            {finding.instead && (
              <p className="page-note">
                Safer: <Plain text={finding.instead} />
              </p>
            )}
          </li>
        ))}
      </ul>
      <Facts facts={factsOf(answer)} />
      {answer.understood !== null && (
        <>
          <h3>How it was read</h3>
          <Understood reading={answer.understood} />
        </>
      )}
      {answer.description !== null && (
        <details className="page-fold" open={answer.decision === "asks"}>
          <summary>What a person would be asked</summary>
          <Lines start={null} text={answer.description} label="What a person would be asked" />
        </details>
      )}
    </div>
  );
}

function factsOf(answer: CheckAnswer): Fact[] {
  return [
    [
      "Decided by",
      <code key="by">
        <Plain text={answer.decided_by} />
      </code>,
    ],
    ["Written in", answer.layer && <Plain text={answer.layer} />],
    [
      "Runs the content of",
      answer.runs.length > 0 && <Words words={answer.runs} label="Files whose content would run" />,
    ],
    ["Always asks", answer.always_asks && answer.decision !== "refused" && "in full mode too, and no grant covers it"],
    ["Network", answer.network ? "yes: allowing it lets it use the network" : "none"],
  ];
}

type Reading = Record<string, unknown>;

const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const isReading = (value: unknown): value is Reading =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** A command with its options and operands, and its subcommand below it. */
function Understood({ reading }: { reading: Reading }) {
  const inner = isReading(reading.subcommand) ? reading.subcommand : null;
  // With a subcommand the operands are its name and its own words, which are the branch below.
  const operands = inner ? [] : list(reading.operands).map(String);
  return (
    <ul className="page-tree">
      <li>
        <code>
          <Plain text={String(reading.command)} />
        </code>
        <ul>
          {list(reading.options).map((option, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: an option may be given twice; its place tells them apart
            <li key={index}>
              <Option option={list(option)} />
            </li>
          ))}
          {operands.map((operand, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: an operand may be given twice; its place tells them apart
            <li key={index}>
              operand{" "}
              <code>
                <Plain text={operand} />
              </code>
            </li>
          ))}
          {inner && (
            <li>
              then
              <Understood reading={inner} />
            </li>
          )}
        </ul>
      </li>
    </ul>
  );
}

function Option({ option: [name, value] }: { option: unknown[] }) {
  return (
    <>
      option{" "}
      <code>
        <Plain text={String(name)} />
      </code>
      {value !== null && value !== undefined && (
        <>
          {" "}
          with the value{" "}
          <code>
            <Plain text={String(value)} />
          </code>
        </>
      )}
    </>
  );
}
