"""Previews for the feed: short, honest about it, and the whole when it fits."""

import json

from byleave.store.transitions import LIST_ITEMS, PREVIEW_CHARACTERS, TEXT_CHARACTERS, preview


def test_nothing_stays_nothing() -> None:
    assert preview(None) == (None, False)


def test_what_fits_is_whole() -> None:
    result = {"success": True, "content": "x" * TEXT_CHARACTERS, "files": list(range(LIST_ITEMS * 2))}
    assert preview(json.dumps(result)) == (result, False)


def test_long_text_keeps_its_head_and_tail_and_says_what_is_missing() -> None:
    text = "head" + "x" * PREVIEW_CHARACTERS + "tail"
    shown, shortened = preview(json.dumps({"success": True, "nested": {"content": text}, "size": 7}))
    assert shortened
    assert shown is not None
    assert shown["size"] == 7
    content = shown["nested"]["content"]
    assert content.startswith("head")
    assert content.endswith("tail")
    assert f"{len(text) - TEXT_CHARACTERS} characters left out" in content
    assert len(content) < TEXT_CHARACTERS + 100


def test_long_list_is_cut() -> None:
    files = [{"name": f"file-{number}", "path": "p" * 100} for number in range(1000)]
    shown, shortened = preview(json.dumps({"files": files, "total_count": 1000}))
    assert shortened
    assert shown == {"files": files[:LIST_ITEMS], "total_count": 1000}
