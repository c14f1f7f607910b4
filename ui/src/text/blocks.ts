// A message in blocks that can be parsed one by one: what is parsed at once stays short, so that no message takes long,
// and while one streams only its last block is parsed again. It only cuts where Markdown itself ends a block.

export interface Block {
  kind: "code" | "text";
  text: string;
}

/** A text block is ended at a blank line once it is this long, even inside a list. */
const LONG = 1500;

const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})/;
const LIST = /^ {0,3}(?:[-+*]|\d{1,9}[.)])(?:[ \t]|$)/;

/** The blocks of a message, in order: fenced code by itself, the rest cut at blank lines. */
export function blocks(text: string): Block[] {
  const made: Block[] = [];
  let open: string[] = [];
  let size = 0;
  let blank = false;
  const close = () => {
    if (open.some((line) => line.trim() !== "")) made.push({ kind: "text", text: open.join("\n") });
    open = [];
    size = 0;
    blank = false;
  };
  const all = text.split("\n");
  for (let at = 0; at < all.length; at += 1) {
    const line = all[at] as string;
    const fence = FENCE.exec(line)?.[1];
    // Inside a list an indented fence belongs to its item.
    if (fence && (open.length === 0 || !/^ /.test(line))) {
      close();
      const end = closing(all, at + 1, fence);
      made.push({ kind: "code", text: all.slice(at + 1, end).join("\n") });
      at = end;
      continue;
    }
    if (blank && endsBlock(open, line, size)) close();
    blank = line.trim() === "" && open.length > 0;
    open.push(line);
    size += line.length + 1;
  }
  close();
  return made;
}

// After a blank line: what is indented goes on with what was there, and so does a list with its next item.
function endsBlock(open: string[], line: string, size: number): boolean {
  if (line.trim() === "") return false;
  if (size > LONG) return true;
  return !/^[ \t]/.test(line) && !(LIST.test(line) && LIST.test(open[0] ?? ""));
}

function closing(all: string[], from: number, fence: string): number {
  for (let at = from; at < all.length; at += 1) {
    const line = (all[at] as string).trim();
    if (line.length >= fence.length && line === fence[0]?.repeat(line.length)) return at;
  }
  return all.length;
}
