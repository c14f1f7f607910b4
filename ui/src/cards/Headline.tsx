// What is asked, in one sentence with the exact words of a command. Where there is no room for all of it, it scrolls in
// its place and says that it goes on: a person must never take a part for the whole.

import { useEffect, useRef, useState } from "react";

/** From so many characters on it may need more room than it gets: then it can be reached with the keyboard. */
const MAY_SCROLL = 60;

export function Headline({ text }: { text: string }) {
  const box = useRef<HTMLDivElement>(null);
  const [cut, setCut] = useState(false);
  useEffect(() => {
    const element = box.current;
    if (!element || typeof ResizeObserver === "undefined") return;
    const look = () => setCut(element.scrollHeight > element.clientHeight + 1);
    const watching = new ResizeObserver(look);
    watching.observe(element);
    for (const inside of element.children) watching.observe(inside);
    return () => watching.disconnect();
  }, []);
  const scrolls = text.length > MAY_SCROLL ? { role: "group", "aria-label": "What is asked", tabIndex: 0 } : {};
  return (
    <>
      <div className="card-asked" data-cut={cut ? "" : undefined} ref={box} {...scrolls}>
        <h2>
          <bdi>{text}</bdi>
        </h2>
      </div>
      {cut && <p className="card-cut">It goes on: scroll it, or make room.</p>}
    </>
  );
}
