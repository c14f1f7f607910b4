"""`assent undo`: what a call changed in a directory, shown as a difference and brought back.

Works on this machine alone, without a server. It shows first and asks, and looks again before it acts: where a file
changed since the call, it names the file and touches nothing. Contents of files that may hold secrets are not shown.
"""

import difflib
import sys
import termios
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.text import Text

from assent.gate import secret_name
from assent.protocol.errors import CallerError
from assent.settings import ClientSettings
from assent.workspace import Entry, PathValidator, Plan, State, Step, UndoHistory, UndoRecorder

from .exits import ExitCode
from .preferences import existing_directory, read_settings
from .screen import put, put_json, say, shortened, shown

MAX_FILE_LINES = 200
MAX_LINES = 2000
MAX_FILES = 100
MAX_DIFF_BYTES = 256 * 1024
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@contextmanager
def _history(directory: Path) -> Generator[UndoHistory]:
    settings = read_settings(ClientSettings)
    paths = PathValidator(existing_directory(directory))
    try:
        recorder = UndoRecorder(paths, settings.home, days=settings.undo_days, max_bytes=settings.undo_bytes)
        recorder.recover()  # what a client that was killed left open
        recorder.close()
        yield UndoHistory(paths, settings.home)
    finally:
        paths.close()


def list_changes(directory: Path, *, limit: int, as_json: bool) -> None:
    """What calls changed here, newest first."""
    with _history(directory) as history:
        entries = list(reversed(history.entries()))[:limit]
    if as_json:
        put_json({"entries": [_entry_json(entry) for entry in entries]})
        return
    for entry in entries:
        put(_entry_line(entry))
        for path, change in _file_changes(entry)[:MAX_FILES]:
            put(f"    {change:8} {shown(path)}")
        for note in entry.notes:
            put(Text(f"    {shown(note)}", style="dim"))
    if not entries:
        say("Nothing that calls changed here is known.")


def undo(tool_id: str | None, directory: Path, *, yes: bool, partial: bool, as_json: bool) -> ExitCode:
    """Show what would be brought back, ask, and do it."""
    with _history(directory) as history:
        entry = history.entry(tool_id)
        with history.alone():
            plan = history.plan(entry)
        if not as_json:
            _show(history, plan)
        _refuse(plan, partial=partial)
        if not plan.steps:
            say("Everything is already as it was.")
        elif not yes and not _agreed():
            say("Nothing was changed.")
            return ExitCode.FAILED
        with history.alone():
            again = history.plan(history.entry(entry.id))
            _refuse(again, partial=partial)
            if again.steps != plan.steps:
                raise CallerError("Something changed while you decided; nothing was undone.", hint="run it again")
            done = history.apply(again)
    if as_json:
        files = [{"path": step.path, "change": _change(step.now, step.target)} for step in again.steps]
        put_json({"tool_id": entry.id, "undo_id": done.id, "files": files, "not_kept": again.lost, "left": again.left})
    else:
        say(f"Undone. `assent undo {done.id}` takes it back.")
    return ExitCode.OK


def _refuse(plan: Plan, *, partial: bool) -> None:
    if plan.conflicts:
        raise CallerError(
            f"Changed since: {_named(plan.conflicts)}. Nothing was undone.",
            hint="look at what changed there; undo later calls first, or put these files back yourself",
        )
    if plan.lost and not partial:
        raise CallerError(
            f"This cannot be brought back: {_named([f'{path} ({why})' for path, why in plan.lost.items()])}.",
            hint="--partial undoes the rest",
        )


def _named(names: list[str]) -> str:
    listed = ", ".join(shown(name) for name in names[:10])
    return f"{listed} and {len(names) - 10} more" if len(names) > 10 else listed


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise CallerError("Nobody can be asked here; nothing was changed.", hint="--yes undoes without asking")
    sys.stderr.write("Undo this? [y/N] ")
    sys.stderr.flush()
    with suppress(termios.error):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before the question is no answer to it
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# What is shown


def _show(history: UndoHistory, plan: Plan) -> None:
    put(_entry_line(plan.entry))
    if plan.entry.together:
        say("Other calls ran at the same time; some of this may be their doing: " + ", ".join(plan.entry.together))
    for note in plan.entry.notes:
        say(shown(note))
    if plan.left:
        say(f"Left where it is: {_named(plan.left)}.")
    lines = 0
    for step in plan.steps[:MAX_FILES]:
        for line in _difference(history, step):
            if lines >= MAX_LINES:
                break
            put(Text(shown(line), style=_STYLES.get(line[:1], "")))
            lines += 1
    if len(plan.steps) > MAX_FILES or lines >= MAX_LINES:
        say(f"More is not shown; {len(plan.steps)} paths in all.")
    if any(path == ".git" or path.endswith("/.git") for path in plan.entry.changes) or "git " in plan.entry.summary:
        say("git's own state (commits, branches, what is staged) is left as it is.")


def _difference(history: UndoHistory, step: Step) -> Iterator[str]:
    yield f"{_change(step.now, step.target)} {step.path}{_mode_words(step)}"
    states = [state for state in (step.now, step.target) if state is not None]
    if any(state.kind != "file" for state in states):
        yield from (f"{sign}link to {state.target}" for sign, state in _signed(step) if state.kind == "link")
        return
    if len(states) == 2 and states[0].digest == states[1].digest:
        return
    if secret_name(step.path):
        yield "(not shown: it may hold secrets)"
        return
    contents = [b"" if state is None else history.content(state) for state in (step.now, step.target)]
    texts = [_text(content) for content in contents]
    if texts[0] is None or texts[1] is None:
        yield "(not shown: large, or no text)"
        return
    names = ("now" if step.now else "/dev/null", "after" if step.target else "/dev/null")
    found = list(difflib.unified_diff(texts[0], texts[1], *names, lineterm=""))
    yield from found[:MAX_FILE_LINES]
    if len(found) > MAX_FILE_LINES:
        yield f"… {len(found) - MAX_FILE_LINES} more lines"


def _signed(step: Step) -> list[tuple[str, State]]:
    return [(sign, state) for sign, state in (("-", step.now), ("+", step.target)) if state is not None]


def _text(content: bytes | None) -> list[str] | None:
    if content is None or len(content) > MAX_DIFF_BYTES or b"\0" in content:
        return None
    try:
        return content.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        return None


def _mode_words(step: Step) -> str:
    if step.now is None or step.target is None or step.now.mode == step.target.mode or step.target.kind == "link":
        return ""
    return f" (mode {step.now.mode:o} becomes {step.target.mode:o})"


def _change(before: State | None, after: State | None) -> str:
    return "create" if before is None else "delete" if after is None else "change"


def _file_changes(entry: Entry) -> list[tuple[str, str]]:
    words = {"create": "created", "delete": "deleted", "change": "changed"}
    return [(path, words[_change(*pair)]) for path, pair in sorted(entry.changes.items())]


def _entry_line(entry: Entry) -> Text:
    state = "undone" if entry.undone_by else "" if entry.done else "not finished"
    when = entry.at[:19].replace("T", " ")
    line = Text.assemble(f"{shown(when)}  ", (shown(entry.id), "bold"), f"  {shortened(entry.summary)}")
    return line.append(f"  ({state})", style="dim") if state else line


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "tool_id": entry.id,
        "tool_name": entry.tool_name,
        "summary": entry.summary,
        "at": entry.at,
        "files": [{"path": path, "change": change} for path, change in _file_changes(entry)],
        "notes": entry.notes,
        "together": entry.together,
        "undoes": entry.undoes,
        "undone_by": entry.undone_by,
        "finished": entry.done,
    }
