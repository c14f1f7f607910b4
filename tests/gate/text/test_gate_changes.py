"""A write as a difference: whole texts or none, nothing that hides, no secret on either side."""

import hashlib

import pytest

from byleave.gate import cover_inert
from byleave.gate.text.render import Write, write_change
from byleave.protocol.approvals import SeenFile, SeenRole
from byleave.protocol.changes import MAX_SHOWN_TEXT, ChangeKind, ShownChange

pytestmark = pytest.mark.promise("A")


def change(content: str | None, text: str | None = None, *, append: bool = False, **seen: object) -> ShownChange:
    known: dict[str, object] = {"path": "a.txt", "role": SeenRole.REPLACES, "sha256": "a" * 64, "size": 9}
    return write_change(Write("a.txt", append, content, SeenFile.model_validate(known | seen), text, cover_inert))


def test_both_sides_are_whole() -> None:
    shown = change("b\n", "a\n")
    assert (shown.kind, shown.before, shown.after, shown.note) == (ChangeKind.CHANGE, "a\n", "b\n", None)


def test_an_empty_file_is_known_without_its_text() -> None:
    shown = change("b\n", None, size=0)
    assert (shown.before, shown.after, shown.note) == ("", "b\n", None)


def test_controls_and_direction_marks_are_visible_on_both_sides() -> None:
    shown = change("b\x1b[2J\u202e", "a\x1b[31m")
    assert (shown.before, shown.after) == ("a\\x1b[31m", "b\\x1b[2J\\u{202e}")


def test_an_append_to_what_is_not_shown_has_no_after_and_says_so() -> None:
    shown = change("b\n", None, append=True, note="It is not text.")
    assert (shown.before, shown.after) == (None, None)
    assert shown.note == (
        "What it holds now: It is not text. "
        "The whole file as it would be cannot be shown; what would be added is shown apart."
    )


def test_a_secret_that_an_append_completes_is_masked() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    shown = change(secret[10:] + "\n", f"token {secret[:10]}", append=True)
    assert secret not in (shown.after or "")
    assert "[masked:" in (shown.after or "")


def test_a_change_beside_masked_secrets_says_what_does_not_show() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    shown = change(f"{secret}\nnew\n", "[masked:token]\nold\n")
    assert "a change inside one does not show" in (shown.note or "")


def test_the_same_content_again_is_no_masked_change() -> None:
    digest = hashlib.sha256(b"a\n").hexdigest()
    assert change("a\n", "a\n", sha256=digest).note is None


def test_what_nobody_looked_at_has_no_text_before() -> None:
    shown = write_change(Write("a.txt", append=False, content="x", seen=None, text=None))
    assert (shown.kind, shown.before, shown.after, shown.note) == (ChangeKind.CHANGE, None, "x", None)


def test_too_much_is_left_out_whole() -> None:
    assert change("x" * (MAX_SHOWN_TEXT + 1), "a").after is None
    assert change("x" * MAX_SHOWN_TEXT, "a" * 10, append=True).after is None
    hidden = change("\x1b\x1a" * (MAX_SHOWN_TEXT // 2), "a")
    assert (hidden.after, "nobody sees" in (hidden.note or "")) == (None, True)
