import { cleanup, fireEvent, render } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { OutputPiece } from "../src/state/model";
import { restyled, Screen } from "../src/text/ansi";
import { ends } from "../src/text/ends";
import { Output } from "../src/text/Output";
import { button } from "./cards_samples";

// What is large takes its time on a busy machine; that it is bounded is counted, not timed.
vi.setConfig({ testTimeout: 30_000 });

afterEach(cleanup);

const ESC = "\u001b";
const out = (text: string): OutputPiece => ({ stream: "stdout", text });

function shown(...pieces: string[]): string {
  const made = new Screen();
  for (const piece of pieces) made.feed(piece, false);
  return made
    .end()
    .map((line) => line.map((run) => run.text).join(""))
    .join("\n");
}

function looks(text: string) {
  const made = new Screen();
  made.feed(text, false);
  return made
    .end()
    .flatMap((line) => line.map(({ text: words, look }) => [words, look.front, look.back, look.bold, look.underline]));
}

const PLAIN = { front: 0, back: 0, bold: false, underline: false, err: false };

describe("what a terminal would show", () => {
  it("obeys colours, bold and underline", () => {
    expect(looks(`a${ESC}[1;31mb${ESC}[0;4mc${ESC}[mz`)).toEqual([
      ["a", 0, 0, false, false],
      ["b", 2, 0, true, false],
      ["c", 0, 0, false, true],
      ["z", 0, 0, false, false],
    ]);
    expect(restyled(PLAIN, "97;104")).toMatchObject({ front: 16, back: 13 });
    expect(restyled({ ...PLAIN, front: 3, back: 4, bold: true, underline: true }, "39;49;22;24")).toEqual(PLAIN);
    expect(restyled(PLAIN, "45")).toMatchObject({ back: 6 });
  });
  it("takes 256 and true colours for the nearest of sixteen", () => {
    expect(restyled(PLAIN, "38;5;9").front).toBe(10);
    expect(restyled(PLAIN, "38;5;196").front).toBe(10);
    expect(restyled(PLAIN, "48;5;255").back).toBe(8);
    expect(restyled(PLAIN, "38;5;16").front).toBe(1);
    expect(restyled(PLAIN, "38;2;0;250;0").front).toBe(11);
    expect(restyled(PLAIN, "48:2:0:0:230").back).toBe(5);
    expect(restyled(PLAIN, "38;7").front).toBe(0);
    expect(restyled(PLAIN, "38;5").front).toBe(1);
    expect(restyled(PLAIN, "38;2").front).toBe(1);
  });
  it("overwrites a line after a carriage return and a backspace", () => {
    expect(shown("10%\r100%\nend")).toBe("100%\nend");
    expect(shown("abcdef\rXY")).toBe("XYcdef");
    expect(shown(`long line\r${ESC}[Kok`)).toBe("ok");
    expect(shown(`long line\r${ESC}[2Kok`)).toBe("ok");
    expect(shown(`line\rab${ESC}[1K`)).toBe("abne");
    expect(shown("ab\b\bXY\b!")).toBe("X!");
    expect(shown("\b\bok")).toBe("ok");
    expect(shown("dos\r\nend\r\r\n")).toBe("dos\nend\n");
    expect(shown("half\r", "\nline\r")).toBe("half\nline");
    expect(shown("half\r", "XY")).toBe("XYlf");
    expect(shown(`${ESC}[31mred${ESC}[0m plain\rR`)).toBe("Red plain");
  });
  it("drops links, titles, cursor moves, clears, charsets and bells", () => {
    expect(shown(`${ESC}]8;;https://evil.example${ESC}\\click${ESC}]8;;\u0007`)).toBe("click");
    expect(
      shown(`${ESC}]0;title\u0007a${ESC}[2J${ESC}[10;10Hb${ESC}[?25lc${ESC}(Bd${ESC}7e\u0007f${ESC}Pq#0${ESC}\\g`),
    ).toBe("abcdefg");
    expect(shown(`${ESC}[K kept`)).toBe(" kept");
  });
  it("makes visible what is no sequence, and never swallows text after an open one", () => {
    expect(shown(`${ESC}]0;never closed\nnext line`)).toBe("\\u{1b}]0;never closed\nnext line");
    expect(shown(`a\u009b31mb\u202Ec`)).toBe("a\\u{9b}31mb\\u{202e}c");
    expect(shown(`end${ESC}[3`)).toBe("end\\u{1b}[3");
    expect(shown(`a${ESC}\u00e9`)).toBe("a\\u{1b}é");
  });
  it("puts a sequence together that came in two pieces", () => {
    expect(shown(`a${ESC}`, "[3", "1mb")).toBe("ab");
  });
  it("hides nothing by a colour code it does not know", () => {
    expect(looks(`${ESC}[8mhidden${ESC}[>4;1mstill`)).toEqual([["hiddenstill", 0, 0, false, false]]);
  });
});

describe("output of a command", () => {
  it("stays text when it looks like HTML", () => {
    const { container } = render(<Output pieces={[out("<script>alert(1)</script><img src=x>")]} />);
    expect(container.querySelector("script, img")).toBeNull();
    expect(container.textContent).toContain("<script>alert(1)</script>");
  });
  it("has looks as classes and never as styles", () => {
    const { container } = render(
      <Output pieces={[out(`${ESC}[1;4;31;42mx${ESC}[0m${ESC}[31;41my`), { stream: "stderr", text: "oops" }]} />,
    );
    expect(container.querySelector(".ansi-2.ansi-on-3.ansi-bold.ansi-underline")?.textContent).toBe("x");
    expect(container.querySelector(".ansi-err")?.textContent).toBe("oops");
    // Words in the colour of their ground would be hidden.
    expect(container.querySelector(".ansi-on-2")).toBeNull();
    expect(container.querySelector("[style]")).toBeNull();
  });
  it("keeps few nodes for a bomb of colours, of lines and of one long line", () => {
    const colours = Array.from({ length: 40_000 }, (_, index) => `${ESC}[3${index % 8}mx`).join("");
    const first = render(<Output pieces={[out(colours)]} />);
    expect(first.container.querySelectorAll("*").length).toBeLessThan(1000);
    first.unmount();
    const many = render(<Output pieces={[out(`${ESC}[31mx${ESC}[0my\n`.repeat(20_000))]} />);
    expect(many.container.querySelectorAll("*").length).toBeLessThan(3000);
    many.unmount();
    const long = render(<Output pieces={[out("x".repeat(1_000_000))]} />);
    expect(long.container.textContent?.length).toBeLessThan(3000);
    expect(button(/characters/)).toBeTruthy();
    long.unmount();
    const overwriting = render(<Output pieces={[out("\rx\b".repeat(40_000))]} />);
    expect(overwriting.container.textContent).toBe("x\n");
  });
  it("shows the first and last of many lines, and the others in pages", () => {
    const text = Array.from({ length: 2500 }, (_, index) => `line ${index}\n`).join("");
    const { container } = render(<Output pieces={[out(text)]} />);
    expect(container.textContent).toContain("line 19\n");
    expect(container.textContent).toContain("line 2499\n");
    expect(container.textContent).not.toContain("line 1000\n");
    fireEvent.click(button(/2,420 lines between: show/));
    expect(container.textContent).toContain("line 999\n");
    fireEvent.click(button("Show those after"));
    expect(container.textContent).toContain("line 1000\n");
    expect(container.querySelectorAll(".text-line").length).toBe(1000);
  });
  it("looks only at both ends while it grows, and says so", () => {
    const { container, rerender } = render(<Output live pieces={[out("a\n".repeat(500_000))]} />);
    expect(container.textContent).toContain("characters are not shown");
    expect(container.querySelectorAll("*").length).toBeLessThan(2500);
    const pre = container.querySelector("pre") as HTMLPreElement;
    Object.defineProperty(pre, "scrollHeight", { value: 1000, configurable: true });
    rerender(<Output live pieces={[out("b\n")]} />);
    expect(pre.scrollTop).toBe(1000);
    pre.scrollTop = 0;
    fireEvent.scroll(pre);
    rerender(<Output live pieces={[out("c\n")]} />);
    expect(pre.scrollTop).toBe(0);
  });
});

describe("what is looked at of output", () => {
  it("keeps the head and the tail and counts what lies between", () => {
    const { head, left, tail } = ends([out("abcdef"), out("ghij"), out("klmnop")], 4, 4);
    expect([head.map((each) => each.text).join(""), left, tail.map((each) => each.text).join("")]).toEqual([
      "abcd",
      8,
      "mnop",
    ]);
    expect(ends([out("ab"), out("cd"), out("ef"), out("gh")], 3, 3)).toEqual({
      head: [out("ab"), out("c")],
      left: 2,
      tail: [out("f"), out("gh")],
    });
  });
});
