// What a call left behind: the files it changed, what a person should know of them, and what held it while it ran.
// All of it is told by the machine that ran it: it goes in by textContent alone, with nothing hidden in it.

import { element, visible } from "/page/words.js";

const NAMED = 5;
const SHORT = 120;
const LINE_ENDS = { "\n": "\\n", "\t": "\\t" };

const listed = (value) => (Array.isArray(value) ? value : []);
const line = (text) => visible(text).replace(/[\n\t]/g, (found) => LINE_ENDS[found]);
const short = (text) => (text.length <= SHORT ? text : `${text.slice(0, SHORT - 1)}…`);

function files(result) {
  return listed(result.changed).filter((each) => each && typeof each.path === "string");
}

// Between quotes where it is no plain word, so that one name cannot pass for two.
const quoted = (path) => (/^[\w@%+=:./-]+$/.test(path) ? path : `'${line(path).replace(/'/g, "\\'")}'`);
const name = ({ path, change }) => short(quoted(path)) + (change === "changed" ? "" : ` (${line(change)})`);

export function changedLine(result) {
  const known = files(result);
  const count = Math.max(known.length, Number(result.changed_count) || 0);
  if (count === 0) return "";
  const names = known.slice(0, NAMED).map(name);
  if (count > names.length) names.push(`${count - names.length} more`);
  return `changed ${count} file${count === 1 ? "" : "s"}: ${names.join(", ")}`;
}

// Everything that is weaker than full isolation, in sentences; nothing where nothing is.
function weaknesses(isolation) {
  if (!isolation || typeof isolation !== "object" || Object.keys(isolation).length === 0) return [];
  const told = listed(isolation.degraded).map(line);
  if (isolation.isolated === false || isolation.backend === "none") return ["It ran without isolation.", ...told];
  if (isolation.backend !== "bwrap") return [`It was held by ${line(isolation.backend)} alone.`, ...told];
  return told;
}

// Its first words only: the opened card has all of them.
function isolationLine(isolation) {
  const told = weaknesses(isolation);
  if (told.length === 0) return "";
  const first = short(told[0].split(/: |\. |\.$/)[0]);
  const more = told.length > 1 ? ` (${told.length - 1} more)` : "";
  return isolation.isolated === false ? `${first}${more}` : `Isolation is weaker than it should be: ${first}${more}`;
}

// The lines that stay in sight while the card is closed.
export function drawEffects(place, result) {
  const lines = [];
  const changed = changedLine(result);
  if (changed) lines.push(element("div", "changed", changed));
  for (const warning of listed(result.warnings)) lines.push(element("div", "caution", line(warning)));
  const isolation = isolationLine(result.isolation);
  if (isolation) lines.push(element("div", result.isolation.isolated === false ? "caution" : "weaker", isolation));
  place.replaceChildren(...lines);
}

// All of it, for the opened card.
export function drawDetails(place, result) {
  const known = files(result);
  const told = weaknesses(result.isolation);
  const parts = [];
  if (known.length > 0) {
    const lines = known.map(({ path, change }) => `${line(change).padEnd(8)} ${quoted(path)}`);
    const left = (Number(result.changed_count) || 0) - known.length;
    if (left > 0) lines.push(`… and ${left} more`);
    parts.push(element("div", "label", "Changed files"), element("pre", "", lines.join("\n")));
  }
  if (told.length > 0) parts.push(element("div", "label", "Isolation"), element("pre", "", told.join("\n")));
  place.replaceChildren(...parts);
}
