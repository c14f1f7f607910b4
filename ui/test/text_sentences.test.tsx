import { render } from "@testing-library/react";
import { expect, test } from "vitest";
import { Sentences } from "../src/text/Sentences";

const shown = (text: string) => render(<Sentences text={text} />).container.innerHTML;

test("what is to be typed is shown as such, without the marks around it", () => {
  expect(shown("Run `byleave link`, or `byleave up`.")).toBe(
    "Run <code>byleave link</code>, or <code>byleave up</code>.",
  );
  expect(shown("No marks.")).toBe("No marks.");
});

test("anybody's words are text: marks without their other stay, nothing hidden stays hidden", () => {
  expect(shown("a ` b")).toBe("a ` b");
  expect(shown("``")).toBe("``");
  expect(shown("`<b>`\u202e")).toBe("<code>&lt;b&gt;</code>\\u{202e}");
});
