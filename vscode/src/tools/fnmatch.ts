// Globs on names as Python's fnmatch reads them, as an expression that does not try in vain: what stands between two stars
// is taken where it first fits, for good, so that no pattern of an agent can take long.

/** Whether a whole name fits. */
export function fnmatch(pattern: string): (name: string) => boolean {
  const expression = new RegExp(`^(?:${translated(pattern)})$`, "su");
  return (name) => expression.test(name);
}

function translated(pattern: string): string {
  const pieces: string[] = [""];
  const letters = Array.from(pattern);
  for (let at = 0; at < letters.length; at += 1) {
    const letter = letters[at] as string;
    if (letter === "*") {
      if (letters[at - 1] !== "*") {
        pieces.push("");
      }
      continue;
    }
    let piece = letter === "?" ? "." : escaped(letter);
    if (letter === "[") {
      const end = classEnd(letters, at);
      piece = end < 0 ? "\\[" : classOf(letters.slice(at + 1, end));
      at = end < 0 ? at : end;
    }
    pieces[pieces.length - 1] += piece;
  }
  const last = pieces.length - 1;
  return pieces
    .map((piece, index) => {
      if (index === 0) {
        return piece;
      }
      return index === last ? `.*${piece}` : `(?=(.*?${piece}))\\${index}`;
    })
    .join("");
}

/** Where a class that begins at `at` ends; -1 where it does not. */
function classEnd(letters: readonly string[], at: number): number {
  let end = at + 1;
  if (letters[end] === "!") {
    end += 1;
  }
  if (letters[end] === "]") {
    end += 1;
  }
  return letters.indexOf("]", end);
}

function classOf(inside: readonly string[]): string {
  const negated = inside[0] === "!";
  const letters = negated ? inside.slice(1) : inside;
  const ranges: string[] = [];
  for (let at = 0; at < letters.length; at += 1) {
    const [first, dash, last] = letters.slice(at, at + 3) as [string, string?, string?];
    if (dash === "-" && last !== undefined) {
      if (first <= last) {
        ranges.push(`${escaped(first)}-${escaped(last)}`); // one that goes backwards holds nothing
      }
      at += 2;
    } else {
      ranges.push(escaped(first));
    }
  }
  if (ranges.length === 0) {
    return negated ? "." : "(?!)";
  }
  return `[${negated ? "^" : ""}${ranges.join("")}]`;
}

function escaped(letter: string): string {
  return `\\u{${(letter.codePointAt(0) as number).toString(16)}}`;
}
