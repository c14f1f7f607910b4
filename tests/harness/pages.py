"""The fenced blocks of our pages, and a shell that types them one after the other as a reader would.

A page is one bash session: what a block exports, starts or writes is there for the next. A comment above a block says
what is special about it, and is not seen by readers:

    <!-- not run: REASON -->     the reader's to run: a test counts these, by reason
    <!-- stays: WORDS -->        its last line keeps running; the next block comes when it has said WORDS
    <!-- exits: N -->            it ends with that code, as when the gate refuses
    <!-- first: COMMANDS -->     what the page takes for granted there, run before it
    <!-- chat -->                each line is a message to the agent, up to two spaces

A block with `title="NAME"` is that file. `sh` and `console` run; `python` runs, with `await` at the top level;
`toml` is read by what would read it; `json` must be right. Anything else is a picture, and must not
look like a command.
"""

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").glob("*.md")])
SHELL = ("sh", "console")
PICTURES = ("", "text")
MARK = re.compile(r"<!-- (?P<name>not run|stays|exits|first|chat)(?:: (?P<value>.*?))? -->", re.S)
COMMAND = re.compile(r"^\s*(\$ |(?:byleave|make|pip|pipx|uv|uvx|curl|docker|python|npm|export) )", re.M)
READS_AGENTS = "import sys, pathlib; from byleave.agents.roles import load_roles; load_roles(pathlib.Path(sys.argv[1]))"
RUNNER = """
import ast, asyncio, inspect, sys
source = open(sys.argv[1], encoding="utf-8").read()
made = eval(compile(source, sys.argv[2], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {"__name__": "__main__"})
if inspect.iscoroutine(made):
    asyncio.run(made)
"""
# An answer of 400 or more fails, as `curl -s` alone would not say.
PRELUDE = """
set -eEuo pipefail
trap 'echo "@@ failed with $? at block $BLOCK: $BASH_COMMAND" >&2' ERR
curl() { command curl --fail-with-body "$@"; }
said() { timeout 200 grep -q -m1 -F -- "$1" <(tail -n +1 -F "$2" 2>/dev/null); }
"""


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: str
    line: int
    language: str
    title: str | None
    text: str
    marks: Mapping[str, str]

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def reason(self) -> str | None:
        """Why it is not run."""
        return self.marks.get("not run")

    def problem(self) -> str | None:
        """What is wrong with it as it stands, without running anything."""
        try:
            if self.reason is None and self.language == "json":
                json.loads(self.text)
            if self.reason is None and self.language == "toml":
                tomllib.loads(self.text)
        except ValueError as error:
            return f"{self.where}: {error}"
        if self.language in PICTURES and "chat" not in self.marks and self.reason is None and COMMAND.search(self.text):
            return f"{self.where}: a command in a block without a language is never run; call it `sh`"
        if self.language not in (*SHELL, *PICTURES, "python", "toml", "json") and self.reason is None:
            return f"{self.where}: {self.language!r} is not run by anything, and says no reason"
        return None


def blocks(path: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    marks: dict[str, str] = {}
    for token in MarkdownIt().enable("table").parse(path.read_text(encoding="utf-8")):
        if token.type == "html_block":
            marks |= {found["name"]: found["value"] or "" for found in MARK.finditer(token.content)}
        elif token.type == "fence":
            language, _, more = token.info.strip().partition(" ")
            title = re.search(r'title="([^"]+)"', more)
            line = (token.map or [0])[0] + 1
            name = str(path.relative_to(ROOT))
            yield Block(name, line, language, title[1] if title else None, token.content, marks)
            marks = {}
        elif token.type == "code_block":
            # An indented block has no language and no mark: it would be left out in silence.
            yield Block(str(path.relative_to(ROOT)), (token.map or [0])[0] + 1, "indented", None, token.content, {})
        elif token.type == "paragraph_open":
            marks = {}


def runs(block: Block) -> bool:
    """True if running the page runs this block."""
    if block.reason is not None:
        return False
    return block.title is not None or "chat" in block.marks or block.language in (*SHELL, "python", "toml")


def script(page: list[Block], replacing: Mapping[str, str], place: Path) -> str:
    """The whole page for bash. `place` is for our own files."""
    runner = place / "runner.py"
    runner.write_text(RUNNER, encoding="utf-8")
    parts = [PRELUDE]
    for number, block in enumerate(page):
        if not runs(block):
            continue
        text, first = block.text, block.marks.get("first", "")
        for old, new in replacing.items():
            text, first = text.replace(old, new), first.replace(old, new)
        parts += [f"BLOCK={shlex.quote(block.where)}", first]
        parts.append(_lines(block, text, place / f"block{number}", runner))
    return "\n".join(parts)


def _lines(block: Block, text: str, file: Path, runner: Path) -> str:
    if block.title is not None:
        file.write_text(text, encoding="utf-8")
        name = shlex.quote(block.title)
        return f"mkdir -p -- $(dirname {name}); cp {file} {name}"
    if "chat" in block.marks:
        messages = (re.split(r"\s{2,}", line.strip())[0] for line in text.splitlines() if line.strip())
        return "\n".join(f"byleave chat {shlex.quote(message)} </dev/null || [ $? = 1 ]" for message in messages)
    if block.language == "toml":
        file.write_text(text, encoding="utf-8")
        if "[agents." in text:
            return f"{shlex.quote(sys.executable)} -c {shlex.quote(READS_AGENTS)} {file}"
        return f"byleave policy check {file}"
    if block.language == "python":
        file.write_text(text, encoding="utf-8")
        return f"{shlex.quote(sys.executable)} {runner} {file} {shlex.quote(block.where)}"
    if block.language == "console":
        text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
    if "exits" in block.marks:
        return f"set +e\n({text})\nCODE=$?\nset -e\n[ $CODE = {block.marks['exits']} ]"
    if "stays" in block.marks:
        *before, last = text.strip().splitlines()
        last = re.sub(r"\s+#.*$", "", last)
        started = f"{last} </dev/null >{file} 2>&1 &"
        return "\n".join([*before, started, f"said {shlex.quote(block.marks['stays'])} {file}"])
    return text
