// The conversation: only what is near the screen is in the page, older entries come when the person scrolls up to them,
// and the newest stays in sight unless the person went up to read.

import { ArrowDown } from "lucide-react";
import { memo, type ReactNode, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import { Virtualizer } from "virtua";
import type { Entry } from "../state/model";
import { Sentences } from "../text/Sentences";

interface Props {
  /** Another one is another list: nothing of the place in it is kept. */
  sessionId: string | null;
  entries: Entry[];
  loading: boolean;
  older: boolean;
  loadingOlder: boolean;
  /** Why older ones could not be loaded. */
  olderTrouble: string | null;
  /** `asked`: because the person pressed for it. */
  loadOlder: (asked?: boolean) => void;
  row: (entry: Entry) => ReactNode;
  empty: ReactNode;
}

/** So near to the end is at the end. */
const NEAR_PX = 48;
/** Older entries are fetched before the person gets there. */
const AHEAD_PX = 800;

export function Conversation(props: Props) {
  const { sessionId, entries, loading, empty } = props;
  if (entries.length > 0) return <List key={sessionId} {...props} />;
  return (
    <div className="app-conversation">
      <div className="app-scroll">{loading ? <Skeleton /> : empty}</div>
    </div>
  );
}

function List({ entries, older, loadingOlder, olderTrouble, loadOlder, row }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  const lastTop = useRef(0);
  const [away, setAway] = useState(false);
  const [news, setNews] = useState(false);
  const shift = usePrepended(entries);

  const toEnd = useCallback(() => {
    const element = scroller.current;
    if (!element) return;
    following.current = true;
    element.scrollTop = element.scrollHeight;
    setAway(false);
    setNews(false);
  }, []);
  const follow = useCallback(() => {
    if (following.current) toEnd();
  }, [toEnd]);

  const last = entries.at(-1);
  // What the person just sent is what they want to see.
  const sent = entries.findLast((entry) => entry.kind === "message" && entry.role === "user" && entry.pending)?.id;
  useLayoutEffect(() => {
    if (sent !== undefined) toEnd();
  }, [sent, toEnd]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: every change of the entries is a reason to follow.
  useLayoutEffect(follow, [entries, follow]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a last entry that is new or grew is the news.
  useEffect(() => setNews(!following.current), [last]);

  const scrolled = () => {
    const element = scroller.current;
    if (!element) return;
    const { scrollHeight, scrollTop, clientHeight } = element;
    if (scrollHeight - scrollTop - clientHeight < NEAR_PX) {
      following.current = true;
      setAway(false);
      setNews(false);
    } else if (scrollTop < lastTop.current) {
      following.current = false; // only a person goes up
      setAway(true);
    }
    lastTop.current = scrollTop;
    if (scrollTop < AHEAD_PX && older) loadOlder();
  };
  // A first page that does not fill the screen cannot be scrolled.
  useEffect(() => {
    const element = scroller.current;
    if (element && older && !loadingOlder && element.scrollHeight <= element.clientHeight + AHEAD_PX / 2) loadOlder();
  }, [older, loadingOlder, loadOlder]);

  return (
    <div className="app-conversation">
      {loadingOlder && (
        <p className="app-older" role="status">
          Loading older entries…
        </p>
      )}
      {olderTrouble !== null && !loadingOlder && (
        <div className="app-older app-older-trouble" role="status">
          <span>
            Older entries could not be loaded: <Sentences text={olderTrouble} />
          </span>
          <button type="button" className="app-button" onClick={() => loadOlder(true)}>
            Try again
          </button>
        </div>
      )}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached with the keyboard. */}
      <section className="app-scroll" ref={scroller} onScroll={scrolled} tabIndex={0} aria-label="Conversation">
        <Virtualizer
          scrollRef={scroller}
          data={entries}
          shift={shift}
          onResize={follow}
          bufferSize={600}
          as="ol"
          item="li"
        >
          {(entry) => <Row key={`${entry.kind} ${entry.id}`} entry={entry} row={row} />}
        </Virtualizer>
      </section>
      {away && (
        <button type="button" className={news ? "app-newest app-newest-news" : "app-newest"} onClick={toEnd}>
          {news ? "New messages" : "Latest"}
          <ArrowDown size={14} aria-hidden="true" />
        </button>
      )}
    </div>
  );
}

const Row = memo(function Row({ entry, row }: { entry: Entry; row: (entry: Entry) => ReactNode }) {
  return <div className={`app-row app-row-${entry.kind}`}>{row(entry)}</div>;
});

/** Whether entries came in front of those that were there: then the place is kept from the end. */
function usePrepended(entries: Entry[]): boolean {
  const first = useRef<string | null>(null);
  const now = entries[0]?.id ?? null;
  const shift = first.current !== null && now !== first.current && entries.some((entry) => entry.id === first.current);
  useLayoutEffect(() => {
    first.current = now;
  }, [now]);
  return shift;
}

function Skeleton() {
  return (
    <div className="app-skeleton" role="status">
      <span className="app-hidden">Loading the conversation…</span>
      {[70, 45, 85, 60].map((width) => (
        <div key={width} className={`app-bone app-bone-${width}`} aria-hidden="true" />
      ))}
    </div>
  );
}
