// The list of files that opens above the field while a name is typed after an @. The field keeps the focus: arrows move in
// the list, Enter or Tab chooses, Escape closes it until another @ is typed.

import type { FileOffers, OfferedFile } from "@protocol";
import { File, Folder } from "lucide-react";
import { type KeyboardEvent, type RefObject, useEffect, useId, useRef, useState } from "react";
import { Problem } from "../api";
import { visible } from "../text/visible";
import { chosen, type Token, tokenAt } from "./mention";

const PAUSE_MS = 120;
const MOST_SHOWN = 8;

interface Offered {
  query: string;
  files: OfferedFile[];
  complete: boolean;
  problem: string | null;
}

export interface Mentions {
  /** For the field: what it is told to be while the list is open. */
  field: {
    "aria-autocomplete": "list";
    "aria-haspopup": "listbox";
    "aria-controls"?: string;
    "aria-activedescendant"?: string;
  };
  /** The field's text or caret changed. */
  moved: () => void;
  /** True if the key was for the list. */
  pressed: (event: KeyboardEvent) => boolean;
  close: () => void;
  list: ListProps | null;
}

interface ListProps {
  id: string;
  offered: Offered;
  at: number;
  point: (at: number) => void;
  choose: (file: OfferedFile) => void;
}

export function useMentions(
  field: RefObject<HTMLTextAreaElement | null>,
  write: (text: string) => void,
  files: ((query: string) => Promise<FileOffers>) | undefined,
): Mentions {
  const id = useId();
  const [token, setToken] = useState<Token | null>(null);
  const [offered, setOffered] = useState<Offered | null>(null);
  const [at, setAt] = useState(0);
  /** Where the @ stands whose list was closed. */
  const closed = useRef<number | null>(null);
  const ask = useRef(files);
  ask.current = files;
  const query = token?.query ?? null;
  useEffect(() => {
    if (query === null) return setOffered(null);
    let wanted = true;
    const timer = setTimeout(() => {
      ask.current?.(query).then(
        ({ files, complete }) =>
          wanted && setOffered({ query, files: files.slice(0, MOST_SHOWN), complete, problem: null }),
        (error: unknown) => {
          const problem = error instanceof Problem ? error.message : "The files could not be listed.";
          if (wanted) setOffered({ query, files: [], complete: true, problem });
        },
      );
    }, PAUSE_MS);
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [query]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another list begins at its first file.
  useEffect(() => setAt(0), [offered]);

  const close = () => {
    closed.current = token?.start ?? null;
    setToken(null);
  };
  const moved = () => {
    const element = field.current;
    const found =
      files && element && element.selectionStart === element.selectionEnd
        ? tokenAt(element.value, element.selectionStart)
        : null;
    if (found === null) closed.current = null;
    setToken(found !== null && found.start === closed.current ? null : found);
  };
  const choose = (file: OfferedFile) => {
    const element = field.current;
    if (!token || !element) return;
    const next = chosen(element.value, token, file);
    write(next.text);
    // After the field has its new text.
    requestAnimationFrame(() => {
      element.focus();
      element.setSelectionRange(next.caret, next.caret);
      moved();
    });
  };
  const shown = token !== null && offered !== null ? offered : null;
  const pressed = (event: KeyboardEvent): boolean => {
    if (shown === null || event.nativeEvent.isComposing) return false;
    const count = shown.files.length;
    const file = shown.files[at];
    if (event.key === "Escape") close();
    else if (count > 0 && event.key === "ArrowDown") setAt((at + 1) % count);
    else if (count > 0 && event.key === "ArrowUp") setAt((at + count - 1) % count);
    else if (file && (event.key === "Tab" || event.key === "Enter") && !event.shiftKey) choose(file);
    else return false;
    event.preventDefault();
    return true;
  };
  const open = shown !== null && shown.files.length > 0;
  return {
    field: {
      "aria-autocomplete": "list",
      "aria-haspopup": "listbox",
      ...(open && { "aria-controls": id, "aria-activedescendant": `${id}-${at}` }),
    },
    moved,
    pressed,
    close,
    list: shown && { id, offered: shown, at, point: setAt, choose },
  };
}

export function MentionList({ id, offered, at, point, choose }: ListProps) {
  const { files, complete, problem } = offered;
  const active = useRef<HTMLDivElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the one that is pointed at is another element each time.
  useEffect(() => {
    active.current?.scrollIntoView?.({ block: "nearest" });
  }, [at]);
  const told =
    problem ??
    (files.length === 0
      ? "No file fits. What is secret by its name is not offered."
      : `${files.length} ${files.length === 1 ? "file" : "files"}${complete ? "" : ", more as you type"}`);
  return (
    <div className="app-mentions">
      {files.length > 0 && (
        <div id={id} role="listbox" aria-label="Files">
          {files.map((file, index) => {
            const cut = file.path.lastIndexOf("/") + 1;
            const Icon = file.type === "directory" ? Folder : File;
            return (
              // biome-ignore lint/a11y/useFocusableInteractive: the field keeps the focus, and names the one pointed at.
              // biome-ignore lint/a11y/useKeyWithClickEvents: keys are the field's.
              <div
                key={file.path}
                id={`${id}-${index}`}
                ref={index === at ? active : null}
                role="option"
                aria-selected={index === at}
                onPointerMove={() => index !== at && point(index)}
                // The field keeps the focus.
                onPointerDown={(event) => event.preventDefault()}
                onClick={() => choose(file)}
              >
                <Icon size={15} aria-hidden="true" />
                <bdi className="app-mention-name">{visible(file.path.slice(cut))}</bdi>
                <bdi className="app-mention-where">{visible(file.path.slice(0, cut))}</bdi>
              </div>
            );
          })}
        </div>
      )}
      <p className="app-mentions-told" role="status">
        {told}
      </p>
    </div>
  );
}
