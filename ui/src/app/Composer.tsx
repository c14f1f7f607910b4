// Where the person writes. A draft is kept for each session; what could not be sent comes back with the reason. Enter
// sends, Shift+Enter begins a line, and keys of an input method never send.

import type { FileOffers } from "@protocol";
import { SendHorizontal, Square, X } from "lucide-react";
import { type KeyboardEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { Problem, passing } from "../api";
import type { Host } from "../host";
import { draftKey, withReturned } from "../state/drafts";
import type { Returned } from "../state/model";
import { Sentences } from "../text/Sentences";
import { MentionList, useMentions } from "./Mentions";

interface Props {
  host: Host;
  projectId: string;
  sessionId: string | null;
  /** Whether it is known which conversation this is: before that there is nowhere to write to. */
  ready: boolean;
  /** The session that the last message sent without one has begun. */
  begun: string | null;
  /** What did not go out by itself, for the field of its conversation. */
  returned?: Returned | null;
  working: boolean;
  send: (content: string) => Promise<void>;
  stop: () => void;
  /** Files of the workspace that a message could name. */
  files?: (query: string) => Promise<FileOffers>;
  /** What stands below the field: agent, mode, usage. */
  children?: ReactNode;
  /** Put into the field, as when an example was chosen; counts up so that the same one can be chosen twice. */
  offered: { text: string; count: number };
  /** One line, while something else has the room. */
  slim?: boolean;
  /** Before the field. */
  lead?: ReactNode;
}

const LONGEST = 100_000;

export function Composer(props: Props) {
  const { host, projectId, sessionId, ready, begun, returned = null, working, send, stop, children, offered } = props;
  const { slim = false, lead } = props;
  const key = draftKey(projectId, sessionId);
  const [text, setText] = useState(() => host.recall(key) ?? "");
  // What is in the field of this tab. What is kept may be another tab's: they share it.
  const own = useRef(text);
  const [error, setError] = useState<Problem | null>(null);
  /** The fields whose message has no answer yet: only there one must wait for it. */
  const [unanswered, setUnanswered] = useState<readonly string[]>([]);
  const sending = unanswered.includes(key);
  const field = useRef<HTMLTextAreaElement>(null);
  const shownKey = useRef(key);
  const beginning = useRef(false);
  const example = useRef<string | null>(null);
  const taken = useRef<Returned | null>(null);
  const errorId = useId();
  const mentions = useMentions(field, (next) => writes.current(next), props.files);

  const put = (next: string) => {
    own.current = next;
    setText(next);
  };

  const write = (next: string) => {
    const kept = host.recall(shownKey.current);
    const others = next === "" && kept !== null && kept !== own.current;
    put(next);
    if (!others) host.remember(shownKey.current, next === "" ? null : next);
  };
  const writes = useRef(write);
  writes.current = write;

  useEffect(() => {
    if (shownKey.current === key) return;
    const before = shownKey.current;
    shownKey.current = key;
    setError(null);
    const goesOn = beginning.current && sessionId !== null && sessionId === begun;
    beginning.current = false;
    if (goesOn) {
      // The first message gave the session its name: what was typed since goes on in it.
      const typed = own.current || null;
      if (host.recall(before) === typed) host.remember(before, null);
      if (typed !== null) host.remember(key, typed);
      return;
    }
    own.current = host.recall(key) ?? "";
    setText(own.current);
  }, [key, host, sessionId, begun]);

  useEffect(() => {
    if (offered.count === 0) return;
    // One example takes the place of another, and never of what somebody typed.
    const typed = own.current.trim() === "" || own.current === example.current ? "" : own.current;
    example.current = offered.text;
    writes.current(typed === "" ? offered.text : withReturned(typed, offered.text));
    field.current?.focus();
  }, [offered]);

  useEffect(() => {
    if (returned === null || returned === taken.current) return;
    taken.current = returned;
    if (draftKey(returned.projectId, returned.sessionId) !== shownKey.current) return;
    writes.current(withReturned(returned.text, own.current));
  }, [returned]);

  const submit = async () => {
    const content = text.trim();
    if (content === "" || sending || !ready) return;
    const sentFrom = key;
    beginning.current = sessionId === null;
    setError(null);
    setUnanswered((fields) => [...fields, sentFrom]);
    write(""); // at once: what is typed from now on is the next message
    try {
      await send(content);
    } catch (failure) {
      beginning.current = false;
      giveBack(sentFrom, content);
      const problem = failure instanceof Problem ? failure : new Problem(String(failure), 0);
      setError(shownKey.current === sentFrom ? problem : elsewhere(problem));
    } finally {
      setUnanswered((fields) => fields.filter((each) => each !== sentFrom));
    }
  };

  const giveBack = (to: string, content: string) => {
    if (shownKey.current === to) write(withReturned(content, own.current));
    else host.remember(to, withReturned(content, host.recall(to)));
  };

  const pressed = (event: KeyboardEvent) => {
    if (mentions.pressed(event)) return;
    // 229: browsers that end a composition with the key that sends.
    const composing = event.nativeEvent.isComposing || event.keyCode === 229;
    if (event.key !== "Enter" || event.shiftKey || composing) return;
    event.preventDefault();
    if (!event.repeat) void submit();
  };

  return (
    <form
      className={slim ? "app-composer app-composer-slim" : "app-composer"}
      aria-label="Message to the agent"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      {error && (
        <div className="app-composer-error" role="alert" id={errorId}>
          <p>
            {passing(error) ? "No answer came: " : "Not sent: "}
            <Sentences text={error.message} />
            {error.hint !== null && (
              <span className="app-hint">
                <Sentences text={error.hint} />
              </span>
            )}
          </p>
          <button type="button" className="app-close" aria-label="Dismiss" onClick={() => setError(null)}>
            <X size={16} aria-hidden="true" />
          </button>
        </div>
      )}
      {mentions.list && <MentionList {...mentions.list} />}
      <div className="app-composer-field">
        {lead}
        <textarea
          ref={field}
          value={text}
          rows={slim ? 1 : 2}
          maxLength={LONGEST}
          dir="auto"
          aria-label="Message"
          disabled={!ready}
          aria-describedby={error ? errorId : undefined}
          placeholder="Message the agent"
          {...mentions.field}
          onChange={(event) => {
            write(event.target.value);
            mentions.moved();
          }}
          onSelect={mentions.moved}
          onBlur={mentions.close}
          onKeyDown={pressed}
        />
        <div className="app-composer-buttons">
          {working && (
            <button type="button" className="app-button app-stop" aria-label="Stop the agent" onClick={stop}>
              <Square size={13} fill="currentColor" aria-hidden="true" />
              <span>Stop</span>
            </button>
          )}
          <button
            type="submit"
            className="app-button app-button-main"
            disabled={text.trim() === "" || sending || !ready}
          >
            <SendHorizontal size={15} aria-hidden="true" />
            <span>{sending ? "Sending…" : "Send"}</span>
          </button>
        </div>
      </div>
      {!slim && (
        <div className="app-composer-foot">
          {children}
          <span className="app-composer-keys app-muted">
            Enter to send · Shift+Enter for a new line{props.files && " · @ to name a file"}
          </span>
        </div>
      )}
    </form>
  );
}

/** The person went to another conversation meanwhile: what came back is not in this field. */
function elsewhere({ message, status, state }: Problem): Problem {
  return new Problem(message, status, "What you wrote is kept in the conversation you wrote it in.", state);
}
