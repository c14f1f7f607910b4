// Text for the editor's own surfaces, which make something of it: a notification makes a link of `[words](address)`, also
// of one to a command, which a click would run; a list makes a picture of `$(name)`. Words from elsewhere must be shown and
// be nothing else.

import { oneLine } from "../../../ui/src/text/visible.js";

/** The same words without a link in them. */
export function notice(text: string): string {
  return text.replaceAll("](", "] (");
}

/** The same words in a list: every `$(name)` in them is text. */
export function listed(text: string): string {
  return text.replaceAll("$(", "\\$(");
}

/** A few paths, and how many more. */
export function named(paths: readonly string[]): string {
  const few = paths.slice(0, 3).map(oneLine).join(", ");
  return paths.length > 3 ? `${few} and ${paths.length - 3} more` : few;
}
