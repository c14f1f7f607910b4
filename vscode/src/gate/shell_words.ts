// Splits a line as a shell would split it into words, expanding nothing: for the examples that owners write with rules.

/** The words, or undefined when a quotation does not end. */
export function splitLine(line: string): string[] | undefined {
  const words: string[] = [];
  let word: string | undefined;
  let quote = "";
  for (let at = 0; at < line.length; at += 1) {
    const character = line.charAt(at);
    if (quote !== "" && character === quote) {
      quote = "";
    } else if (character === "\\" && quote !== "'") {
      at += 1;
      if (at >= line.length) {
        return undefined;
      }
      const next = line.charAt(at);
      const kept = quote === '"' && next !== '"' && next !== "\\" ? "\\" : "";
      word = (word ?? "") + kept + next;
    } else if (quote !== "") {
      word = (word ?? "") + character;
    } else if (character === "'" || character === '"') {
      quote = character;
      word ??= "";
    } else if (/[ \t\r\n]/.test(character)) {
      if (word !== undefined) {
        words.push(word);
      }
      word = undefined;
    } else {
      word = (word ?? "") + character;
    }
  }
  if (quote !== "") {
    return undefined;
  }
  return word === undefined ? words : [...words, word];
}
