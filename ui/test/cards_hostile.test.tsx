import { cleanup, render } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import { DiffView } from "../src/cards/DiffView";
import { difference } from "../src/cards/difference";
import { Parameters } from "../src/cards/Parameters";
import { oneLine, visible } from "../src/text/visible";
import { host } from "./cards_samples";

afterEach(cleanup);

describe("a change in a line that is too long to be shown whole", () => {
  const [head, tail] = ["a".repeat(6000), "b".repeat(6000)];

  it("is in sight, with what stands around it", () => {
    const change = {
      path: "min.js",
      kind: "change",
      before: `${head}SAFE${tail}\n`,
      after: `${head}EVIL${tail}\n`,
    } as const;
    const { container } = render(<DiffView change={change} host={host()} />);
    expect([...container.querySelectorAll("mark")].map((each) => each.textContent)).toEqual(["SAFE", "EVIL"]);
  });

  it("is whole characters, and everything is still there", () => {
    const old = `${head}\u{1f600}${tail}\n`;
    const young = `${head}\u{1f601}${tail}\n`;
    const row = difference(old, young).runs[0]?.rows[0];
    if (row?.kind !== "changed") throw new Error("They are partners.");
    expect(row.before.parts.find((part) => part.changed)?.text).toBe("\u{1f600}");
    expect(row.after.parts.map((part) => part.text).join("")).toBe(young.trimEnd());
    // One that is only longer has nothing of the other's to mark.
    const longer = difference(`${head}\n`, `${head}x\n`).runs[0]?.rows[0];
    expect(longer).toMatchObject({ before: { parts: [{ text: head }] }, after: { parts: [{}, { text: "x" }] } });
    // The second half of a character may be alike where the first is not.
    const halves = difference(`${head}\u{1f600}\n`, `${head}\u{20600}\n`).runs[0]?.rows[0];
    expect(halves).toMatchObject({ after: { parts: [{ text: head }, { text: "\u{20600}" }] } });
  });
});

describe("words of a command line", () => {
  const marks = (word: string) => {
    const { container } = render(
      <Parameters toolName="execute_command" params={{ command: "sh", args: ["-c", word] }} />,
    );
    return [...container.querySelectorAll(".card-blank")].map((each) => each.textContent);
  };

  it("tell a newline from a backslash and an n, also in a long word", () => {
    expect(marks("echo ok # \nrm -rf build")).toEqual(["\\n"]);
    cleanup();
    expect(marks("echo ok # \\nrm -rf build")).toEqual([]);
    cleanup();
    expect(marks(` ${"x".repeat(500)}\n\t\u202e${"y".repeat(500)}  `)).toEqual(["␣", "\\n", "\\t", "\\u{202e}", "␣␣"]);
  });
});

describe("what looks like something else", () => {
  it("a blank that is none of the keyboard's is an escape in names and words", () => {
    expect(oneLine("my\u00a0file\u3000x\u2003y\u2800z")).toBe("my\\u{a0}file\\u{3000}x\\u{2003}y\\u{2800}z");
  });

  it("a tower of marks that would paint over its neighbours is written out", () => {
    expect(visible(`e\u0301${"\u0336".repeat(40)}`)).toContain("\\u{336}\\u{336}");
    expect(visible("e\u0301\u0323 שָׁלוֹם")).toBe("e\u0301\u0323 שָׁלוֹם");
  });
});
