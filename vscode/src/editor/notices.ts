// Text for the editor's own surfaces, which make something of it: a notification makes a link of `[words](address)`, also
// of one to a command, which a click would run; a list makes a picture of `$(name)`. Words from elsewhere must be shown and
// be nothing else. None of these surfaces makes code of what stands between backticks: it would show the marks.

import { oneLine } from "../../../ui/src/text/visible.js";

/** The same words without a link in them. */
export function notice(text: string): string {
  return text.replaceAll("](", "] (");
}

/** A sentence of Byleave's own: what it marks as code stands in quotes. Never for a call, where every character counts. */
export function plain(text: string): string {
  return text.replace(/(?<![^\s(])`([^`\n]+)`(?![^\s,.;:?!)…])/g, '"$1"');
}

/** What happened and what to do, on one line. */
export function sentence({ hint, message }: { readonly message: string; readonly hint: string | null }): string {
  return plain(oneLine(withWhatToDo(message, hint)));
}

function withWhatToDo(message: string, hint: string | null): string {
  if (!hint) return message;
  return `${message} ${hint[0]?.toUpperCase()}${hint.slice(1)}${/[.?!…]$/.test(hint) ? "" : "."}`;
}

/** The same words in a list: every `$(name)` in them is text. */
export function listed(text: string): string {
  return text.replaceAll("$(", "\\$(");
}

/** That somebody changed a few paths. */
export function changedSince(paths: readonly string[], when: string): string {
  return `${named(paths)} ${paths.length === 1 ? "was" : "were"} changed ${when}`;
}

/** A few paths, and how many more. */
export function named(paths: readonly string[]): string {
  const few = paths.slice(0, 3).map(oneLine).join(", ");
  return paths.length > 3 ? `${few} and ${paths.length - 3} more` : few;
}
