// Which of the questions that wait are looked at together, and which come after. Pure: what is looked at changes only when
// the person goes elsewhere, when all of it is answered, or in its first moments.

import type { Question } from "../state/model";

/** Writes that come so soon after the first one were asked with it; a later one waits its turn, so that an answer never
 * counts for what came while the person was about to press. */
export const JOIN_MS = 800;

export interface Held {
  /** The questions as they were, also those that are answered by now. */
  questions: readonly Question[];
  since: number;
  /** Nothing joins what the person chose to see alone. */
  closed?: boolean;
}

export const NONE: Held = { questions: [], since: 0 };

const together = (one: Question, other: Question): boolean =>
  one.id === other.id ||
  (one.tool_name === "write_file" &&
    other.tool_name === "write_file" &&
    one.session_id !== null &&
    one.session_id === other.session_id);

/** What waits, each once, in order: a question, or the writes of one conversation. */
export function groups(questions: readonly Question[]): Question[][] {
  const found: Question[][] = [];
  for (const question of questions) {
    const group = found.find(([first]) => first && together(first, question));
    if (group) group.push(question);
    else found.push([question]);
  }
  return found;
}

/** What is looked at now, the same value as before where nothing changed. A call that the person changed stays where it
 * was: the question about the changed one takes its place, and until that is there (`changed`) nothing else does. */
export function hold(
  held: Held,
  questions: readonly Question[],
  now: number,
  changed: ReadonlySet<string> = new Set(),
): Held {
  const waiting = new Map(questions.map((question) => [question.id, question]));
  const heir = ({ tool_ids }: Question) =>
    questions.find((each) => each.edit && each.tool_ids.some((id) => tool_ids.includes(id)));
  const fresh = held.questions.map((each) => waiting.get(each.id) ?? heir(each) ?? each);
  if (!fresh.some(({ id }) => waiting.has(id))) {
    if (held.questions.some(({ id }) => changed.has(id))) return held;
    const [first] = groups(questions);
    return first ? { questions: first, since: now } : held;
  }
  const known = new Set(fresh.map(({ id }) => id));
  const [lead] = fresh;
  const joins = !held.closed && now - held.since < JOIN_MS;
  const joined = joins && lead ? questions.filter((each) => !known.has(each.id) && together(lead, each)) : [];
  const same = joined.length === 0 && fresh.every((each, index) => each === held.questions[index]);
  return same ? held : { ...held, questions: [...fresh, ...joined] };
}

/** What the person wants to see now: with what belongs to it, or by itself. */
export function turnTo(id: string, questions: readonly Question[], now: number, alone = false): Held | null {
  const found = groups(questions).find((group) => group.some((each) => each.id === id));
  if (!found) return null;
  return { questions: alone ? found.filter((each) => each.id === id) : found, since: now, closed: alone };
}
