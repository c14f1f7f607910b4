// Sentences of the server and of the page. What they set between backticks is to be typed or is a name: it is shown as
// such, without them. Anybody's words may pass: they become text, and nothing else.

import { Fragment } from "react";
import { visible } from "./visible";

const TYPED = /`([^`\n]+)`/;

export function Sentences({ text }: { text: string }) {
  // Every second piece stood between backticks.
  const pieces = visible(text).split(TYPED);
  return pieces.map((piece, index) => {
    const key = `${index} ${piece}`;
    return index % 2 === 1 ? <code key={key}>{piece}</code> : <Fragment key={key}>{piece}</Fragment>;
  });
}
