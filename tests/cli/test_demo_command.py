"""`byleave demo`: the whole story, with answers of every kind, and what is left of it afterwards."""

import asyncio
import json
import re
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from byleave.client.api import ServerApi
from byleave.protocol.approvals import ApproveBody, RejectBody
from byleave.protocol.events import ApprovalRequested, RunChanged

from .conftest import PROMPT, OnTerminal, Program

pytestmark = pytest.mark.promise("L9")

MENU = "expires in "
Environment = dict[str, str]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The directory for temporary files of the demo."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    return directory


@pytest.fixture
def here(base: Path, tmp_path: Path) -> Environment:
    """What a demo is started with: a place for its files, and settings of the person's own that are not for it."""
    return {
        "TMPDIR": str(base),
        "BYLEAVE_DATABASE_URL": "postgresql://nobody@nowhere.invalid/record",
        "BYLEAVE_MODEL": "openai:gpt-5",
        "BYLEAVE_SERVER_URL": "http://nowhere.invalid",
        "BYLEAVE_SECRET": "short",
        "BYLEAVE_USER_POLICY": str(tmp_path / "absent.toml"),
    }


@pytest.fixture
def nothing_left(base: Path, byleave: Program) -> Callable[[], None]:
    """Fails if a file or a process of the demo is still there, or anything was done to the person's own state."""

    def check() -> None:
        assert list(base.iterdir()) == []
        assert not byleave.home.exists()
        # Whatever ran in it had it as its directory or among its arguments.
        lines = [_command_line(process) for process in Path("/proc").iterdir() if process.name.isdigit()]
        assert [line for line in lines if str(base) in line] == []

    return check


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:  # it ended just now
        return ""


def test_story_is_seen_to_its_end_without_a_person(
    byleave: Program, here: Environment, nothing_left: Callable[[], None]
) -> None:
    done = byleave.run("demo", "--yes", "--quick", **here)
    assert done.returncode == 0, done.stderr
    story = done.stdout
    assert story.count("Next: ") == 9
    in_order = (
        "Reading runs at once",
        "is in 3 files",
        "it corrects file 3 of 3",
        "`shop/voucher.py` is corrected.",
        "The test passes.",
        "SHOP=Bookshop",
        "STRIPE_SECRET_KEY=[masked",
        "it wants to delete everything",
        "Refused before anything ran",
        "You denied it: pushing is for people",
        "what you allowed is exactly what runs",
        "whole   proj_",
    )
    places = [story.index(words) for words in in_order]
    assert places == sorted(places)
    assert "sk_live_" not in story + done.stderr
    assert done.stderr.count(MENU) == 7
    assert "refused: Command not allowed: rm" in done.stderr
    assert "drifted: 'release.py' changed after it was shown; nothing was run." in done.stderr
    assert "All files are as the agent found them." in done.stderr
    assert done.stderr.split("What you saw\n")[1].splitlines() == [
        "  free      5 calls that only read ran at once",
        "  asked     7 questions: 6 allowed, 1 denied",
        "  refused   1 call, before anything ran",
        "  bound     a script that changed after your yes did not run",
        "  recorded  13 calls, 3 changes taken back; the record is intact",
        "Now on a project of yours:  byleave up .",
    ]
    assert story.count("That was my part.") == 1, "no answer is shown twice"
    assert "Traceback" not in done.stderr
    assert "ERROR" not in done.stderr
    nothing_left()


def _answer(terminal: OnTerminal, about: str, key: str) -> None:
    """Answer the next question, which must be about this."""
    terminal.expect(f"\n{about}\n  ")
    terminal.expect_question()
    terminal.type(key)


def _deny(terminal: OnTerminal, about: str, reason: str) -> None:
    terminal.expect(f"\n{about}\n  ")
    terminal.deny(reason)


def test_every_no_is_answered_sensibly_and_the_story_goes_on(
    byleave: Program, here: Environment, nothing_left: Callable[[], None]
) -> None:
    terminal = byleave.on_terminal("demo", "--quick", **here)
    terminal.expect("throw-away project: ")
    project = Path(terminal.expect("\n").strip())
    secret = (project / ".env").read_text(encoding="utf-8").split("STRIPE_SECRET_KEY=")[1].split("\n")[0]
    _deny(terminal, "Write shop/cart.py", "the cart is mine")
    terminal.expect("Then `shop/cart.py` stays as it is. You denied it: the cart is mine")
    _answer(terminal, "Write shop/invoice.py", "y")
    terminal.expect("`shop/invoice.py` is corrected.")
    _answer(terminal, "Write shop/voucher.py", "y")
    _answer(terminal, "Run python3 test_shop.py", "y")
    terminal.expect("The test fails, and says why: `AssertionError: cart`.")
    _deny(terminal, "Read .env", "no need")
    terminal.expect("Then I do without it. You denied it: no need")
    terminal.expect("refused: Command not allowed: rm")
    _answer(terminal, "Run git push --force origin main", "y")
    terminal.expect("Type yes to allow it")
    terminal.type("yes\n")
    terminal.expect("You allowed it, and git failed: ")
    _deny(terminal, "Run python3 release.py", "nor this")
    terminal.expect("Then there is nothing to change behind your back. You denied it: nor this")
    terminal.expect("Take 2 changes back? y or n")
    terminal.expect(PROMPT)
    terminal.type("n\n")
    terminal.expect("They stay.")
    assert terminal.wait() == 0
    assert "asked     7 questions: 4 allowed, 3 denied" in terminal.seen
    assert "bound     no script changed after a yes" in terminal.seen
    assert "nothing taken back; the record is intact" in terminal.seen
    assert secret.startswith("sk_live_")
    assert secret not in terminal.seen
    nothing_left()


def test_changes_are_taken_back_only_at_a_yes(
    byleave: Program, here: Environment, nothing_left: Callable[[], None]
) -> None:
    terminal = byleave.on_terminal("demo", "--quick", **here)
    terminal.expect("throw-away project: ")
    project = Path(terminal.expect("\n").strip())
    _answer(terminal, "Write shop/cart.py", "a")
    terminal.expect("Type everything for 1 hour")
    terminal.type("everything\n")
    _answer(terminal, "Read .env", "y")
    terminal.expect("STRIPE_SECRET_KEY=[masked")
    _deny(terminal, "Run git push --force origin main", "")
    terminal.expect("drifted: 'release.py' changed after it was shown")
    terminal.expect("Take 3 changes back? y or n")
    terminal.expect(PROMPT)
    assert "// 100" in (project / "shop" / "cart.py").read_text(encoding="utf-8")
    terminal.type("y\n")
    assert terminal.wait() == 0
    assert "All files are as the agent found them." in terminal.seen
    nothing_left()


def test_rules_of_the_machine_hold_in_it(
    byleave: Program, here: Environment, tmp_path: Path, nothing_left: Callable[[], None]
) -> None:
    rules = tmp_path / "device.toml"
    rules.write_text(
        '[[rule]]\naction = "deny"\ncommand = ["python3"]\nbecause = "No Python here."\n'
        '[[rule]]\naction = "deny"\ntool = "read_file"\npaths = ["shop/cart.py"]\nbecause = "The cart is private."\n',
        encoding="utf-8",
    )
    rules.chmod(0o600)
    done = byleave.run("demo", "--yes", "--quick", **here, BYLEAVE_DEVICE_POLICY=str(rules))
    assert done.returncode == 0, done.stderr
    assert "I could not read shop/cart.py." in done.stdout
    assert "it corrects file 1 of 3" not in done.stdout, "what it has not read it cannot correct"
    assert "Then it stays untested." in done.stdout
    assert "2 changes taken back; the record is intact" in done.stderr
    nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_leaving_at_a_question_leaves_nothing_behind(
    byleave: Program, here: Environment, nothing_left: Callable[[], None], number: signal.Signals
) -> None:
    terminal = byleave.on_terminal("demo", "--quick", **here)
    _answer(terminal, "Write shop/cart.py", "y")
    terminal.expect("Write shop/invoice.py")
    terminal.expect(MENU)
    if number is signal.SIGINT:
        terminal.type("\x03")
    else:
        terminal.process.send_signal(number)
    assert terminal.wait() == 130
    assert "everything of the demo is removed" in terminal.seen
    assert "What you saw" not in terminal.seen
    assert "Traceback" not in terminal.seen
    nothing_left()


def test_leaving_as_it_begins_and_by_the_end_of_input(
    byleave: Program, here: Environment, nothing_left: Callable[[], None]
) -> None:
    terminal = byleave.on_terminal("demo", **here)
    terminal.expect("throw-away project: ")
    terminal.type("\x03")
    assert terminal.wait() == 130
    nothing_left()
    terminal = byleave.on_terminal("demo", "--quick", **here)
    terminal.expect("Write shop/cart.py")
    terminal.expect_question()
    terminal.type("\x04")
    assert terminal.wait() == 130
    nothing_left()


def test_closed_window_leaves_nothing_behind(
    byleave: Program, here: Environment, nothing_left: Callable[[], None]
) -> None:
    terminal = byleave.on_terminal("demo", "--quick", **here)
    terminal.expect("Write shop/cart.py")
    terminal.hang_up()
    nothing_left()


def test_without_a_terminal_it_says_what_to_do(byleave: Program, here: Environment) -> None:
    done = byleave.run("demo", **here)
    assert (done.returncode, "byleave demo --yes" in done.stderr) == (2, True)


def test_missing_program_is_named(byleave: Program, here: Environment) -> None:
    done = byleave.run("demo", "--yes", **{**here, "PATH": "/nowhere"})
    assert (done.returncode, "The demo needs git, which is not installed." in done.stderr) == (1, True)


def _sign_in(link: str) -> tuple[str, str]:
    """Use the link as a program: the server's address, and a token."""
    url, code = link.split("/signin?code=")
    request = urllib.request.Request(
        f"{url}/signin/exchange",
        data=json.dumps({"code": code}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return url, json.load(answer)["token"]


async def test_page_is_opened_and_asks_in_place_of_the_terminal(
    byleave: Program, here: Environment, tmp_path: Path, nothing_left: Callable[[], None]
) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.draft && mv {opened}.draft {opened}\n', encoding="utf-8")
    browser.chmod(0o700)
    running = byleave.start("demo", "--page", "--quick", **here, BROWSER=f"{browser} %s")
    link = running.line_with("chat page", of="stderr").split()[-1]
    running.line_with("begins when the page is open", of="stderr")
    answers = 0
    async with ServerApi(*_sign_in(link)) as api, asyncio.timeout(90):
        [project] = (await api.list_projects()).projects
        async with api.stream(project.project_id, None) as events:  # as a page that has opened
            async for _, event in events:
                if isinstance(event, ApprovalRequested):
                    answers += 1
                    place = (project.project_id, event.approval_id)
                    if event.tool_name == "write_file":
                        await api.approve(*place, ApproveBody(decision="approved", digest=event.digest))
                    else:
                        await api.reject(*place, RejectBody(reason="seen enough"))
                if answers == 7:
                    break
    running.line_with("What you saw", of="stderr")
    running.line_with("7 questions: 3 allowed, 4 denied", of="stderr")
    running.line_with("Look around on the page.", of="stderr")
    assert opened.read_text(encoding="utf-8") == link
    code_at_end, out, err = running.stop(signal.SIGINT)
    assert (code_at_end, "Traceback" in out + err) == (0, False)
    nothing_left()


async def test_story_that_is_stopped_on_the_page_is_no_success(
    byleave: Program, here: Environment, nothing_left: Callable[[], None]
) -> None:
    running = byleave.start("demo", "--page", "--quick", **here)
    link = running.line_with("chat page", of="stderr").split()[-1]
    async with ServerApi(*_sign_in(link)) as api, asyncio.timeout(90):
        [project] = (await api.list_projects()).projects
        async with api.stream(project.project_id, None) as events:
            run_id = ""
            async for _, event in events:
                if isinstance(event, RunChanged):
                    run_id = event.run_id
                if isinstance(event, ApprovalRequested):
                    break
        await api.cancel_run(project.project_id, run_id)
    assert "0 denied" in running.line_with("  asked  ", of="stderr")
    running.line_with("Look around on the page.", of="stderr")
    assert running.stop(signal.SIGINT)[0] == 1
    nothing_left()


def test_picture_in_the_readme_is_a_small_one_of_the_whole_demo() -> None:
    root = Path(__file__).resolve().parents[2]
    path = "docs/pictures/demo.svg"
    assert f"({path})" in "".join((root / "README.md").read_text(encoding="utf-8").splitlines(keepends=True)[:12])
    picture = (root / path).read_bytes()
    assert len(picture) <= 1_000_000
    words = " ".join(" ".join(re.findall(r"<text[^>]*>([^<]*)", picture.decode())).split())
    for shown in ("byleave demo --yes", "refused: Command not allowed: rm", "The record is whole.", "What you saw"):
        assert shown in words, f"{shown!r} is not in it: scripts/record_demo makes it anew"
