// A message as Markdown. No HTML, no image is ever loaded, a link leads only where it says and says where it leads, and
// limits hold before anything is parsed. What is too long or too deep is shown as plain text.

import { memo, type ReactNode, useDeferredValue, useState } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import "../styles/cards.css";
import { blocks } from "./blocks";
import { flat } from "./flat";
import { Lines, scrollable } from "./Lines";
import { beginning, FIRST_CHARACTERS, isHeavy, MOST_CHARACTERS } from "./markup";
import { SafeLink } from "./SafeLink";
import { oneLine, prose, shortened, visible } from "./visible";
import { counted } from "./words";

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const [most, setMost] = useState(FIRST_CHARACTERS);
  // While a message streams, what is on the screen may lag behind what came, but never blocks typing.
  const settled = useDeferredValue(text);
  const shown = beginning(settled, most);
  const left = settled.length - shown.length;
  const plain = most > MOST_CHARACTERS;
  return (
    <div className="text-prose">
      {plain ? <Lines text={shown} start={null} label="Message" /> : <Blocks text={prose(shown)} />}
      {left > 0 && (
        <p className="text-rest">
          <span>{counted(left, "character")} more.</span>
          <button
            type="button"
            onClick={() => setMost(most < MOST_CHARACTERS ? MOST_CHARACTERS : Number.POSITIVE_INFINITY)}
          >
            {most < MOST_CHARACTERS ? "Show more" : "Show all as plain text"}
          </button>
        </p>
      )}
    </div>
  );
});

const MOST_BLOCKS = 1000;

function Blocks({ text }: { text: string }) {
  const all = blocks(text);
  // A block for each of very many short lines would cost as much as one long one.
  if (all.length > MOST_BLOCKS) return <Lines text={text} start={null} label="Message" />;
  return all.map((block, index) => {
    // biome-ignore-start lint/suspicious/noArrayIndexKey: a block is known by its place
    if (block.kind === "code") return <CodeBlock key={index} code={block.text} />;
    if (isHeavy(block.text)) return <Lines key={index} text={block.text} start={null} label="Plain text" />;
    return <Parsed key={index} text={block.text} />;
    // biome-ignore-end lint/suspicious/noArrayIndexKey: as above
  });
}

const PLUGINS = [remarkGfm];

const Parsed = memo(function Parsed({ text }: { text: string }) {
  return (
    <ReactMarkdown remarkPlugins={PLUGINS} components={COMPONENTS} urlTransform={address}>
      {text}
    </ReactMarkdown>
  );
});

// The address as written is kept for showing; whether it may be followed is decided where it is shown.
const address = (url: string) => url;

const COMPONENTS: Components = {
  a: ({ href, children }) => <SafeLink href={href ?? ""}>{children}</SafeLink>,
  img: ({ src, alt }) => (
    <span className="text-image">
      [image not loaded{alt ? `: ${oneLine(alt)}` : ""}] <bdi>{shortened(oneLine(String(src ?? "")), 200)}</bdi>
    </span>
  ),
  pre: ({ children }) => <CodeBlock code={flat(children).replace(/\n$/, "")} />,
  code: ({ children }) => <code dir="ltr">{visible(flat(children))}</code>,
  // Each paragraph is a world of its own for the direction of text.
  p: ({ children }) => <p dir="auto">{children}</p>,
  li: ({ children, className }) => (
    <li dir="auto" className={className}>
      {children}
    </li>
  ),
  h1: Heading,
  h2: Heading,
  h3: Heading,
  h4: Heading,
  h5: Heading,
  h6: Heading,
  input: ({ checked }) => <input type="checkbox" checked={checked === true} disabled readOnly aria-label="task" />,
  table: ({ children }) => (
    <div className="text-table" {...scrollable("Table")}>
      <table>{children}</table>
    </div>
  ),
  // Alignment would come as a style; the page has none that came from elsewhere.
  th: ({ children }) => <th>{children}</th>,
  td: ({ children }) => <td>{children}</td>,
  // Footnotes are marked by attributes of their own; the message brings none.
  section: ({ children }) => <div className="text-notes">{children}</div>,
};

// A message's headings are just below the page's own, whatever it calls them: none is left out on the way.
function Heading({ children }: { children?: ReactNode }) {
  return (
    <h2 dir="auto" className="text-heading">
      {children}
    </h2>
  );
}

const CodeBlock = memo(function CodeBlock({ code }: { code: string }) {
  return (
    <div className="text-code">
      <Copy text={code} />
      <Lines text={code} start={null} label="Code" />
    </div>
  );
});

/** Copies what is seen: a hidden character goes along as its escape, never as itself. */
export function Copy({ text }: { text: string }) {
  const [said, setSaid] = useState("Copy");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(visible(text));
      setSaid("Copied");
    } catch {
      setSaid("Select it and copy it by hand");
    }
    setTimeout(() => setSaid("Copy"), 3000);
  };
  return (
    <button type="button" className="text-copy" onClick={copy} aria-live="polite">
      {said}
    </button>
  );
}
