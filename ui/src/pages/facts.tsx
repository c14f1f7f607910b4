// How single values look on a page: facts by name, moments, risk, ids to copy, words of a command one by one, texts that
// may be long. Whatever came from elsewhere passes `visible` here and is set apart from the direction of its surroundings.

import type { ReactNode } from "react";
import { useEffect, useRef, useState } from "react";
import { Ago } from "../text/Ago";
import { Lines } from "../text/Lines";
import { oneLine, visible } from "../text/visible";

/** A name and what it is; left out when there is nothing to say. */
export type Fact = readonly [name: string, value: ReactNode];

export function Facts({ facts }: { facts: Fact[] }) {
  return (
    <dl className="page-facts">
      {facts
        .filter(([, value]) => value !== null && value !== false && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

export function When({ at }: { at: string }) {
  return <Ago at={at} />;
}

export const LEVELS: Record<string, string> = { LOW: "Low", MEDIUM: "Medium", HIGH: "High", REFUSE: "Refused" };

export function Risk({ level }: { level: string }) {
  return <span className={`page-risk page-risk-${level.toLowerCase()}`}>{LEVELS[level] ?? level}</span>;
}

/** Text from elsewhere, in one line. */
export function Plain({ text }: { text: string }) {
  return <bdi>{oneLine(text)}</bdi>;
}

const SAID_MS = 1500;

/** An id, a digest, a command: shown, and copied by a press. Where the clipboard is closed it is selected instead. */
export function Copyable({ text, shown = text, name }: { text: string; shown?: string; name: string }) {
  const [said, setSaid] = useState<string | null>(null);
  const code = useRef<HTMLElement>(null);
  useEffect(() => {
    if (said === null) return;
    const timer = setTimeout(() => setSaid(null), SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setSaid("Copied");
    } catch {
      if (code.current) getSelection()?.selectAllChildren(code.current);
      setSaid("Selected: copy it");
    }
  };
  return (
    <span className="page-copyable">
      <code ref={code} title={shown === text ? undefined : visible(text)}>
        <bdi>{visible(shown)}</bdi>
      </code>
      <button type="button" className="page-small-button" aria-label={`Copy ${name}`} onClick={() => void copy()}>
        <span aria-live="polite">{said ?? "Copy"}</span>
      </button>
    </span>
  );
}

/** The words of a command, each in its own box: what is one argument is one box. */
export function Words({ words, label }: { words: string[]; label: string }) {
  return (
    <ol className="page-words" aria-label={label}>
      {words.map((word, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the place of a word is what it is
        <li key={index} className={word === "" ? "page-word page-word-empty" : "page-word"}>
          <bdi>{word === "" ? "(empty)" : oneLine(word)}</bdi>
        </li>
      ))}
    </ol>
  );
}

/** The parameters of a call or the details of a record, each by its name. */
export function Values({ values }: { values: Record<string, unknown> }) {
  const facts = Object.entries(values).filter(([, value]) => value !== null);
  if (facts.length === 0) return <p className="page-note">None.</p>;
  return (
    <Facts
      facts={facts.map(([name, value]): Fact => [visible(name), <Value key={name} name={name} value={value} />])}
    />
  );
}

function Value({ name, value }: { name: string; value: unknown }) {
  if (Array.isArray(value) && value.every((each) => typeof each === "string")) {
    return value.length === 0 ? <span className="page-note">none</span> : <Words words={value} label={visible(name)} />;
  }
  if (typeof value === "string" && !value.includes("\n") && value.length <= 200) {
    return <code>{value === "" ? "(empty)" : <Plain text={value} />}</code>;
  }
  if (typeof value === "string") return <Lines text={value} start={null} label={visible(name)} />;
  if (typeof value !== "object") return <code>{String(value)}</code>;
  return <Lines text={JSON.stringify(value, null, 2)} start={null} label={visible(name)} />;
}

/** The server's clock, told anew every so often: what counts down must not stand still. */
export function useServerNow(serverAhead: number, everyMs: number): number {
  const [mine, setMine] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setMine(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return mine + serverAhead;
}
