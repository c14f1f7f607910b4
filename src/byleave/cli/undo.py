r"""`byleave undo`: shows what a call changed in a directory as a diff, and restores it.

Works on this machine alone, without a server. It shows the plan, asks, and checks again before it acts: if a file
changed since the call, it names the file and touches nothing. Contents of files that may hold secrets are not shown.
A diff is bounded in lines and in time, whatever the files hold.
"""

import re
import shlex
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from byleave.gate import secret_name
from byleave.gate.text.differences import unified
from byleave.protocol.changes import ChangeKind
from byleave.protocol.errors import CallerError, NotFound
from byleave.protocol.executions import Execution
from byleave.settings import ClientSettings
from byleave.workspace.paths import PathValidator, visible
from byleave.workspace.undo.desk import (
    CHANGED,
    NO_TEXT,
    SECRET,
    change_kind,
    holds_texts,
    mode_words,
    plan_many,
    plan_notes,
    readable,
    texts_of,
    why_not,
)
from byleave.workspace.undo.recorder import UndoRecorder
from byleave.workspace.undo.restoring import Plan, Step, UndoHistory, path_of
from byleave.workspace.undo.snapshots import State
from byleave.workspace.undo.store import Entry

from .options import ExitCode, Server, new_app
from .places import find_server
from .process import existing_directory, on_terminal, read_settings, run_short
from .screen import agreed, counted, put, put_json, say, shortened, shown, wall_time

app = new_app()


MAX_FILE_LINES = 200
MAX_LINES = 2000
MAX_FILES = 100
MAX_DIFF_BYTES = 256 * 1024
MAX_COMPARED = 1_000_000
MAX_SAMPLE = 50
_HUNK = re.compile(r"@@ -(\d+).*")
_NO_KEYS = ("n", "N", "enter", "escape", "c-d")
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@contextmanager
def _history(directory: Path) -> Generator[UndoHistory]:
    settings = read_settings(ClientSettings)
    with ExitStack() as ends:
        paths = PathValidator(existing_directory(directory))
        ends.callback(paths.close)
        with readable(settings.home):
            history = UndoHistory(paths, settings.home)
        ends.callback(history.close)
        _recover(UndoRecorder(paths, settings.home, days=settings.undo_days, max_bytes=settings.undo_bytes))
        yield history


def _recover(recorder: UndoRecorder) -> None:
    """Close the entries that a killed client left open, and delete expired ones."""
    try:
        recorder.recover()
    except OSError as error:  # such as a full disk: the known entries can still be shown
        say(f"What a stopped client left open could not be looked at: {error.strerror}.")
    finally:
        recorder.close()


def list_changes(directory: Path, *, limit: int, as_json: bool) -> None:
    """List the changes of calls here, newest first."""
    with _history(directory) as history:
        entries = list(reversed(history.entries()))[:limit]
        above = None if entries else history.above()
    if as_json:
        put_json({"entries": [_entry_json(entry) for entry in entries]})
        return
    for entry in entries:
        put(_entry_line(entry))
        changes = _file_changes(entry)
        for path, change in changes[:MAX_FILES]:
            put(f"    {change:8} {visible(path)}")
        if len(changes) > MAX_FILES:
            put(Text(f"    and {len(changes) - MAX_FILES} more", style="dim"))
        for note in entry.notes:
            put(Text(f"    {shown(note)}", style="dim"))
    if not entries:
        say("No call has changed a file in this directory, or it was too long ago.")
    if above is not None:
        say(Text(shown(f"An agent worked in one above it: byleave undo --workspace {shlex.quote(str(above))} --list")))


def undo_call(tool_id: str | None, directory: Path, *, yes: bool, partial: bool, as_json: bool) -> ExitCode:
    """Show the plan, ask, and carry it out."""
    if as_json and not yes:
        raise CallerError("With --json nobody is asked, so nothing was changed.", hint="add --yes")
    with _history(directory) as history:
        entry = history.entry(tool_id)
        with history.alone():
            plan = history.plan(entry)
        if not as_json:
            _show(history, plan)
        _refuse(plan, partial=partial)
        if plan.steps and not yes and not _agreed():
            say("Nothing was changed.")
            return ExitCode.FAILED
        with history.alone():
            again = history.plan(history.entry(entry.id))
            _refuse(again, partial=partial)
            if again.steps != plan.steps:
                raise CallerError(CHANGED, hint="run it again")
            done = history.apply(again)
    undo_id = done.id if done.changes else None
    if as_json:
        files = [{"path": visible(step.path), "change": change_kind(step.now, step.target)} for step in again.steps]
        kept = {
            "not_kept": {visible(path): why for path, why in again.lost.items()},
            "left": [visible(path) for path in again.left],
        }
        put_json({"tool_id": entry.id, "undo_id": undo_id, "files": files, **kept})
    elif undo_id is None:
        say("Nothing to do: everything is already as it was before this call.")
    else:
        count = len(again.steps)
        say(f"Undone: {count} {'path is' if count == 1 else 'paths are'} as before the call.")
        say(f"To take that back: byleave undo {undo_id}")
    return ExitCode.OK


def undo_calls(
    tool_ids: list[str], session_id: str, directory: Path, *, yes: bool, partial: bool, as_json: bool
) -> ExitCode:
    """Show what undoing several calls would do, newest first, ask, and carry it out."""
    if as_json and not yes:
        raise CallerError("With --json nobody is asked, so nothing was changed.", hint="add --yes")
    undone: list[Entry] = []
    with _history(directory) as history:
        with history.alone():
            many = plan_many(history, tool_ids)
        if len(many.unknown) == len(tool_ids):
            raise NotFound(
                "Nothing that this conversation changed is known in this workspace.",
                hint="name the directory that the agent works in: `--workspace DIR`",
            )
        plan = many.merged(session_id)
        if not as_json:
            say(f"{counted(len(many.plans), 'call', 'calls')} of this conversation can be undone here.")
            _show_plan(history, plan)
        _refuse(plan, partial=partial, what="these calls")
        if plan.steps and not yes and not _agreed():
            say("Nothing was changed.")
            return ExitCode.FAILED
        with history.alone():
            again = plan_many(history, tool_ids)
            if again.digest() != many.digest():
                raise CallerError(CHANGED, hint="run it again")
            for _, entry in history.apply_all(again.plans):
                undone.append(entry)
    if as_json:
        files = [{"path": visible(step.path), "change": change_kind(step.now, step.target)} for step in plan.steps]
        ids = [{"tool_id": one.undoes, "undo_id": one.id} for one in undone]
        put_json({"session_id": session_id, "undone": ids, "files": files})
    elif not undone:
        say("Nothing to do: everything is already as it was.")
    else:
        count = len(plan.steps)
        say(f"Undone: {count} {'path is' if count == 1 else 'paths are'} as before this conversation.")
        say("To take a call's undo back: byleave undo --list names it")
    return ExitCode.OK


async def _calls_of(session_id: str, server: str | None) -> list[str]:
    """The calls of a conversation that may have changed a file, newest first, as the server knows them."""
    found: list[Execution] = []
    async with find_server(server).api() as api:
        for tool in ("write_file", "execute_command"):
            cursor: str | None = None
            while True:
                filters: dict[str, str | int] = {"session_id": session_id, "tool_name": tool, "limit": 200}
                page = await api.history(filters | ({"cursor": cursor} if cursor else {}))
                found += page.executions
                cursor = page.next_cursor
                if cursor is None:
                    break
    if not found:
        hint = "`byleave conversations` lists yours"
        raise NotFound(f"No call of the conversation {session_id!r} could have changed a file.", hint=hint)
    return [call.tool_id for call in sorted(found, key=lambda call: call.created_at, reverse=True)]


def _refuse(plan: Plan, *, partial: bool, what: str = "this call") -> None:
    why = why_not(plan, partial=partial, what=what)
    if why is None:
        return
    if plan.conflicts:
        hint = "undo later calls that changed it first (`byleave undo --list`); what you changed is yours to merge"
    else:
        hint = "--partial undoes the rest, and leaves these as they are"
    raise CallerError(why, hint=hint)


def _agreed() -> bool:
    question = "Undo this, as shown above?"
    try:
        if on_terminal():
            return run_short(_key_agrees(f"{question} [y/N] "))
        refusal = "Nobody can be asked here; nothing was changed."
        return agreed(question, refusal=refusal, hint="--yes undoes without asking")
    except KeyboardInterrupt:
        say("\nNothing was changed.")
        raise


async def _key_agrees(question: str) -> bool:
    """Ask for a single key, as the chat does: only a `y` alone agrees; a key typed before the question is no answer."""
    from byleave.client.terminal.prompt import TerminalPrompt  # loaded only when somebody is asked

    terminal = TerminalPrompt.here()
    keyboard = terminal.keyboard
    with keyboard.keys():
        while True:
            await keyboard.settle()
            terminal.screen.print(Text(question), end="")
            key = await keyboard.key()
            say("")
            if keyboard.has_more:  # pasted, or the beginning of a word
                continue
            if key is None or key in _NO_KEYS or key in ("y", "Y"):
                return key in ("y", "Y")


# Display


def _show(history: UndoHistory, plan: Plan) -> None:
    put(_entry_line(plan.entry))
    _show_plan(history, plan)


def _show_plan(history: UndoHistory, plan: Plan) -> None:
    if plan.entry.together:
        say("Other calls ran at the same time; some of this may be their doing: " + ", ".join(plan.entry.together))
    for note in plan_notes(plan):
        say(shown(note))
    if plan.steps:
        say("Preview of the undo:")
    lines = 0
    for step in sorted(plan.steps, key=path_of)[:MAX_FILES]:
        for line in _difference(history, step):
            if lines >= MAX_LINES:
                break
            put(Text(shown(line), style=_STYLES.get(line[:1], "")))
            lines += 1
    if len(plan.steps) > MAX_FILES or lines >= MAX_LINES:
        say(f"More is not shown; {len(plan.steps)} paths in all.")


def _difference(history: UndoHistory, step: Step) -> Iterator[str]:
    mode = mode_words(step)
    yield f"{change_kind(step.now, step.target)} {visible(step.path)}{f' ({mode})' if mode else ''}"
    if not holds_texts(step):
        yield from (
            f"{sign}link to {visible(state.target or '')}" for sign, state in _signed(step) if state.kind == "link"
        )
        return
    if secret_name(step.path):
        yield f"({SECRET})"
        return
    texts = texts_of(history, step, MAX_DIFF_BYTES)
    if texts is None:
        yield f"({NO_TEXT})"
        return
    found = list(_diff(*(_lines(text or "") for text in texts)))
    yield from found[:MAX_FILE_LINES]
    if len(found) > MAX_FILE_LINES:
        yield f"… {len(found) - MAX_FILE_LINES} more lines"


def _diff(now: list[str], then: list[str]) -> Iterator[str]:
    """Yield the lines of a diff; only a sample if both texts are long, since the time grows with their product."""
    start = _alike(now, then)
    end = _alike(now[start:][::-1], then[start:][::-1])
    changed = [lines[start : len(lines) - end] for lines in (now, then)]
    if len(changed[0]) * len(changed[1]) > MAX_COMPARED:
        yield f"@@ from line {start + 1}: {len(changed[0])} lines go, {len(changed[1])} come @@"
        yield from (f"{sign}{line}" for sign, lines in zip("-+", changed, strict=True) for line in lines[:MAX_SAMPLE])
        return
    for line in unified(now, then):
        yield _HUNK.sub(r"@@ line \1 @@", line) if line[0] == "@" else line


def _alike(one: list[str], other: list[str]) -> int:
    """Number of equal lines at the beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def _signed(step: Step) -> list[tuple[str, State]]:
    return [(sign, state) for sign, state in (("-", step.now), ("+", step.target)) if state is not None]


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    # Line ends are content too: show `\r`, and a missing newline at the end.
    lines = [f"{line[:-1]}␍" if line.endswith("\r") else line for line in lines]
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], f"{lines[-1]}  (no newline at the end)"]


def _file_changes(entry: Entry) -> list[tuple[str, str]]:
    words = {ChangeKind.CREATE: "created", ChangeKind.DELETE: "deleted", ChangeKind.CHANGE: "changed"}
    return [(path, words[change_kind(*pair)]) for path, pair in sorted(entry.changes.items())]


def _entry_line(entry: Entry) -> Text:
    state = "undone" if entry.undone_by else "" if entry.done else "was interrupted, or still runs"
    line = Text.assemble(f"{wall_time(entry.at)}  ", (shown(entry.id), "bold"), f"  {shortened(entry.summary)}")
    return line.append(f"  ({state})", style="dim") if state else line


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "tool_id": entry.id,
        "tool_name": entry.tool_name,
        "summary": entry.summary,
        "at": entry.at,
        "files": [{"path": visible(path), "change": change} for path, change in _file_changes(entry)],
        "notes": entry.notes,
        "together": entry.together,
        "undoes": entry.undoes,
        "undone_by": entry.undone_by,
        "finished": entry.done,
    }


@app.command()
def undo(
    tool_id: Annotated[
        str | None,
        typer.Argument(
            metavar="TOOL_ID", help="Which call, as --list names it; left out: the last one that is not undone."
        ),
    ] = None,
    conversation: Annotated[
        str | None, typer.Option(metavar="ID", help="All calls of this conversation; asks the server which they are.")
    ] = None,
    workspace: Annotated[Path, typer.Option(metavar="DIR", help="The directory the call worked in.")] = Path(),
    server: Server = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="Only list the calls that changed files here, newest first.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many calls --list shows.")] = 50,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Undo what can be undone, where something was too large to be kept.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON on stdout; asks nothing, so give --yes.")] = False,
) -> None:
    """Put files back to what they were before an agent's call changed them.

    Shows the difference, then asks. A file that was changed again since the call is named, and then nothing is
    touched. A file the call made is removed only if it is still exactly what the call left, and its content is kept:
    an undo can itself be undone. Commits, branches and the rest of git's state stay as they are. Needs no server; it
    is asked only for the calls of a --conversation.
    Exit code 0: done, or already as it was. 1: refused, or you said no.

    \b
    Example:
      byleave undo
      byleave undo --list
      byleave undo exec_1 --workspace ~/code/app
      byleave undo --conversation sess_1
    """
    if conversation is not None:
        if tool_id is not None or show_list:
            raise typer.BadParameter("give it without TOOL_ID and --list", param_hint="--conversation")
        calls = run_short(_calls_of(conversation, server))
        raise typer.Exit(undo_calls(calls, conversation, workspace, yes=yes, partial=partial, as_json=as_json))
    if show_list:
        list_changes(workspace, limit=limit, as_json=as_json)
    else:
        raise typer.Exit(undo_call(tool_id, workspace, yes=yes, partial=partial, as_json=as_json))
