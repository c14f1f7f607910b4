// Does a name fit a pattern with stars? In time that grows with both, whatever they hold: no regular expression is made.

/** Whether a name fits: `*` is any text, everything else is itself. */
export function starFits(pattern: string, name: string): boolean {
  const [first = "", ...others] = pattern.split("*");
  const last = others.pop();
  if (last === undefined) {
    return first === name;
  }
  let at = first.length;
  const end = name.length - last.length;
  if (at > end || !name.startsWith(first) || !name.endsWith(last)) {
    return false;
  }
  for (const piece of others) {
    // Each as early as possible: what is left is then the most.
    at = name.indexOf(piece, at);
    if (at < 0 || at + piece.length > end) {
      return false;
    }
    at += piece.length;
  }
  return true;
}
