import { act, cleanup, fireEvent, render, waitFor } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { blocks } from "../src/text/blocks";
import { countLines, Line, Lines, long, Pager, someLines } from "../src/text/Lines";
import { Markdown } from "../src/text/Markdown";
import { beginning, isHeavy } from "../src/text/markup";
import { SafeLink, safeAddress } from "../src/text/SafeLink";
import { button, buttons } from "./cards_samples";

// What is large takes its time on a busy machine; that it is bounded is counted, not timed.
vi.setConfig({ testTimeout: 30_000 });

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

const shown = (text: string) => render(<Markdown text={text} />).container;
const nodes = (container: Element) => container.querySelectorAll("*").length;

describe("a message as Markdown", () => {
  it("has headings, lists, tables, tasks, code and emphasis", () => {
    const page = shown(
      "# Big\n\n###### small\n\n```js\nx\n```\n\n- a\n- [x] b\n\n| h |\n|--:|\n| c |\n\n**bold** `code` ~~gone~~\n\n> q\n\n1. one\n\n2. two\n\n    indented code\n",
    );
    expect(page.querySelectorAll("h2").length).toBe(2);
    expect(page.querySelector("table td")?.textContent).toBe("c");
    expect(page.querySelector("td")?.hasAttribute("style")).toBe(false);
    expect(page.querySelector<HTMLInputElement>("input")?.checked).toBe(true);
    expect(page.querySelector("strong")?.textContent).toBe("bold");
    expect(page.querySelector("blockquote")?.textContent?.trim()).toBe("q");
    expect(page.querySelectorAll("ol li").length).toBe(2);
  });
  it("shows code by its indentation too, and a list that goes on deeper", () => {
    const page = shown("words\n\n    let x = 1;\n\n- a\n  - b\n    1. c");
    expect(page.querySelector(".text-code pre")?.textContent).toBe("let x = 1;\n");
    expect(page.querySelectorAll("li").length).toBe(3);
  });
  it("never makes an element out of HTML", () => {
    const page = shown(
      "<script>alert(1)</script>\n\nhi <img src=x onerror=alert(1)> <b>b</b>\n\n<iframe src=x></iframe>",
    );
    expect(page.querySelector("script, img, iframe, b")).toBeNull();
    expect(page.textContent).toContain("<script>alert(1)</script>");
    expect(page.textContent).toContain("<img src=x onerror=alert(1)>");
  });
  it("never loads an image and shows its address as text", () => {
    const page = shown("![a beacon](https://evil.example/p.png?u=1) ![](data:image/png;base64,xx)");
    expect(page.querySelector("img, [src], link")).toBeNull();
    expect(page.textContent).toContain("[image not loaded: a beacon] https://evil.example/p.png?u=1");
    expect(page.textContent).toContain("[image not loaded] data:image/png");
  });
  it("makes no link of javascript:, data: or relative addresses", () => {
    const page = shown("[x](javascript:alert(1)) [y](data:text/html,x) [z](src/a.ts) [w](//evil.example) [e]()");
    expect(page.querySelector("a")).toBeNull();
    expect(page.textContent).toContain("x (javascript:alert(1))");
    expect(page.textContent).toContain("z (src/a.ts)");
  });
  it("says where a link leads unless its words do", () => {
    const page = shown("[https://good.example](https://evil.example/a) https://plain.example/ [mail](mailto:a%40b.c)");
    const [first, second, third] = [...page.querySelectorAll("a")];
    expect(first?.getAttribute("rel")).toBe("noopener noreferrer nofollow");
    expect(first?.getAttribute("target")).toBe("_blank");
    expect(first?.nextElementSibling?.textContent).toBe(" (evil.example/a)");
    expect(second?.nextElementSibling?.textContent ?? "").not.toContain("plain.example");
    expect(third?.nextElementSibling?.textContent).toBe(" (a@b.c)");
  });
  it("shows bidi tricks in code and isolates them in prose", () => {
    const page = shown("`a\u202Eb\u200B`\n\n```\nx\u2066y\n```\n\nsome \u202Eevil prose");
    expect(page.querySelector("code")?.textContent).toBe("a\\u{202e}b\\u{200b}");
    expect(page.querySelector("pre")?.textContent).toContain("x\\u{2066}y");
    expect(page.textContent).not.toMatch(/[\u202e\u2066]/);
    expect([...page.querySelectorAll("p")].every((each) => each.getAttribute("dir") === "auto")).toBe(true);
  });
  it("copies code as it is seen, and says when it cannot", async () => {
    vi.useFakeTimers({ shouldAdvanceTime: true });
    const writeText = vi.fn(async () => {});
    vi.stubGlobal("navigator", { clipboard: { writeText } });
    const page = shown("```sh\nls \u202E\n```");
    fireEvent.click(button("Copy", page));
    await waitFor(() => expect(button("Copied", page)).toBeTruthy());
    expect(writeText).toHaveBeenCalledWith("ls \\u{202e}");
    await act(() => vi.advanceTimersByTimeAsync(3100));
    vi.stubGlobal("navigator", {});
    fireEvent.click(button("Copy", page));
    await waitFor(() => expect(button(/by hand/, page)).toBeTruthy());
  });
  it("has no ids or footnote targets of the message's choosing", () => {
    const page = shown("- a[^1]\n\n  b\n\n  [^1]: note\n\n      code in a list");
    expect(page.querySelector("a, [id]")).toBeNull();
    expect(page.querySelector(".text-notes")?.textContent).toContain("note");
  });
});

describe("limits of a message", () => {
  it("shows a megabyte shortened at first, then more, then plainly all of it in pages", () => {
    const text = `\`\`\`\n${"word ".repeat(2000)}\n\`\`\`\n\n`.repeat(110);
    const page = shown(text);
    expect(page.textContent?.length).toBeLessThan(22_000);
    fireEvent.click(button("Show more", page));
    expect(page.querySelectorAll("pre").length).toBe(10);
    fireEvent.click(button("Show all as plain text", page));
    expect(nodes(page)).toBeLessThan(500);
    expect(buttons(/Show all/, page).length).toBe(0);
  });
  it("shows ten thousand nested quotes, lists or brackets as plain text", () => {
    for (const text of [
      `${">".repeat(10_000)} deep`,
      "- ".repeat(5000),
      "[".repeat(10_000),
      "*a ".repeat(3000),
      `${" ".repeat(200)}- a\n`.repeat(50),
    ]) {
      const page = shown(text);
      expect(page.querySelector("blockquote, ul, em")).toBeNull();
      expect(nodes(page)).toBeLessThan(200);
      cleanup();
    }
  });
  it("keeps few nodes for a line of a megabyte and for very many blocks", () => {
    const page = shown("x".repeat(1_000_000));
    expect(nodes(page)).toBeLessThan(50);
    cleanup();
    expect(nodes(shown("a\n\n".repeat(5000)))).toBeLessThan(700);
  });
  it("knows what is heavy", () => {
    expect(isHeavy("A usual paragraph with `code` and **bold** words.\n- and\n  - a list")).toBe(false);
    expect(isHeavy("x".repeat(5000))).toBe(true);
    expect(isHeavy("[".repeat(400))).toBe(true);
    expect(isHeavy("| a | b |\n".repeat(100))).toBe(false);
    expect(isHeavy("a\n".repeat(200))).toBe(true);
  });
  it("cuts at the end of a line where there is one near", () => {
    expect(beginning("aaa\nbbb\nccc", 9)).toBe("aaa\nbbb");
    expect(beginning("a\nbbbbbbbbb", 9)).toBe("a\nbbbbbbb");
    expect(beginning("short", 9)).toBe("short");
  });
});

describe("blocks of a message", () => {
  it("takes fenced code by itself, also while its end has not come", () => {
    expect(blocks("a\n```js\nx\n\ny\n```\nb")).toEqual([
      { kind: "text", text: "a" },
      { kind: "code", text: "x\n\ny" },
      { kind: "text", text: "b" },
    ]);
    expect(blocks("~~~~\nx\n~~~\ny")).toEqual([{ kind: "code", text: "x\n~~~\ny" }]);
  });
  it("keeps a list together over blank lines, and what is indented below it", () => {
    expect(blocks("- a\n\n- b\n\n  more\n\n  ```\n  code\n  ```\n\nafter").length).toBe(2);
    expect(blocks("\n\na\n\n\nb\n").map((each) => each.text.trim())).toEqual(["a", "b"]);
  });
  it("ends a block that grows long at the next blank line", () => {
    expect(blocks(`- ${"x".repeat(2000)}\n\n- b`).length).toBe(2);
  });
});

describe("addresses", () => {
  it("are safe to follow only to the web or a mailbox, without a name before the host", () => {
    expect(safeAddress("https://a.example")).toEqual({ href: "https://a.example/", shown: "a.example" });
    expect(safeAddress("https://good.example@evil.example/")).toBeNull();
    expect(safeAddress("https://x:y@evil.example/")).toBeNull();
    expect(safeAddress("ftp://a.example")).toBeNull();
    expect(safeAddress("JaVaScRiPt:alert(1)")).toBeNull();
    expect(safeAddress("")).toBeNull();
    expect(safeAddress("mailto:%zz")?.shown).toBe("%zz");
    expect(safeAddress("https://xn--pple-43d.com/?q=1#h")?.shown).toBe("xn--pple-43d.com/?q=1#h");
    expect(safeAddress(`https://a.example/${"x".repeat(500)}`)?.shown.length).toBeLessThanOrEqual(90);
  });
  it("are written out where they are not followed", () => {
    const { container } = render(
      <SafeLink href={["javascript", "x"].join(":")}>
        <b>{7}</b>
        {null}
      </SafeLink>,
    );
    expect(container.textContent).toBe("7 (javascript:x)");
    expect(render(<SafeLink href="same">same</SafeLink>).container.textContent).toBe("same");
  });
});

describe("lines of text", () => {
  it("are numbered from where they begin, and numbers are no text", () => {
    const { container } = render(<Lines text={"a\nb\u202E\n"} start={10} label="x" />);
    expect([...container.querySelectorAll(".text-line")].map((each) => each.getAttribute("data-number"))).toEqual([
      "10",
      "11",
    ]);
    expect(container.querySelector("pre")?.textContent).toBe("a\nb\\u{202e}\n");
    expect(container.querySelector("pre")?.tabIndex).toBe(-1);
  });
  it("are shown in pages of bounded size", () => {
    const text = Array.from({ length: 1501 }, (_, index) => `l${index}`).join("\n");
    const { container } = render(<Lines text={text} label="x" />);
    const count = () => container.querySelectorAll(".text-line").length;
    expect(count()).toBe(200);
    fireEvent.click(button("Show more", container));
    expect(count()).toBe(1000);
    fireEvent.click(button("Show those after", container));
    expect(count()).toBe(501);
    expect(container.textContent).toContain("1,001–1,501 of 1,501 lines");
    expect(buttons("Show those after", container).length).toBe(0);
    fireEvent.click(button("Show those before", container));
    expect(container.textContent).toContain("1–1,000 of");
  });
  it("are shown by head and tail where they are long, more on asking", () => {
    const { container } = render(<div>{long("x".repeat(30_000))}</div>);
    expect(container.textContent?.length).toBeLessThan(2500);
    fireEvent.click(button(/27,600 characters/, container));
    expect(container.textContent?.length).toBeGreaterThan(20_000);
    fireEvent.click(button(/characters/, container));
    expect(container.textContent).toBe("x".repeat(30_000));
  });
  it("count a text without splitting all of it", () => {
    expect([countLines(""), countLines("a"), countLines("a\n"), countLines("a\nb")]).toEqual([1, 1, 1, 2]);
    expect([someLines("", 0, 5), someLines("a\nb\nc\n", 1, 1), someLines("a\nb", 1, 5), someLines("a", 3, 1)]).toEqual([
      [""],
      ["b"],
      ["b"],
      [],
    ]);
  });
  it("have no pager where everything is shown", () => {
    const { container } = render(<Pager total={3} from={0} size={5} move={() => {}} />);
    expect(container.textContent).toBe("");
    expect(render(<Line number={undefined}>x</Line>).container.textContent).toBe("x\n");
  });
});
