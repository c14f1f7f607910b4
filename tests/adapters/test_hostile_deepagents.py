"""deepagents' file tools on files that are not what they seem: bytes are kept, or nothing is written."""

from collections.abc import AsyncIterator

import pytest

from byleave.adapters.deepagents import ByleaveBackend
from harness.household import Household

pytestmark = pytest.mark.promise("I")

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.fixture
async def backend(household: Household) -> AsyncIterator[ByleaveBackend]:
    household.person.decide = lambda question: True
    async with household.agent(name="deep") as caller:
        yield ByleaveBackend(caller)


async def test_edit_keeps_line_ends_and_byte_order_marks(backend: ByleaveBackend, household: Household) -> None:
    cases = {
        "crlf": (b"one\r\ntwo\r\nthree", "one\ntwo", "1\n2", b"1\r\n2\r\nthree"),
        "mixed": (b"one\r\ntwo\nthree\n", "two\n", "2\n", b"one\r\n2\nthree\n"),
        "mark": (b"\xef\xbb\xbfone\ntwo", "one", "1", b"\xef\xbb\xbf1\ntwo"),
        "bare": ("ä one".encode(), "one", "1", "ä 1".encode()),
    }
    for name, (before, old, new, after) in cases.items():
        file = household.workspace / name
        file.write_bytes(before)
        result = await backend.aedit(f"/{name}", old, new)
        assert result.error is None, name
        assert file.read_bytes() == after


@pytest.mark.parametrize("data", [PICTURE, "one two".encode("utf-16"), b"caf\xe9 one"], ids=["png", "utf-16", "latin"])
async def test_edit_of_what_is_no_utf8_text_is_refused(
    backend: ByleaveBackend, household: Household, data: bytes
) -> None:
    file = household.workspace / "odd"
    file.write_bytes(data)
    result = await backend.aedit("/odd", "o", "0", replace_all=True)
    assert "cannot be edited" in (result.error or "")
    assert file.read_bytes() == data


async def test_directory_too_long_to_list_says_so(backend: ByleaveBackend, household: Household) -> None:
    many = household.workspace / "many"
    many.mkdir()
    for number in range(1001):
        (many / f"{number}").touch()
    assert "more than 1,000 entries" in ((await backend.als("/many")).error or "")
    assert (await backend.aglob("*", "/many")).truncated


async def test_command_with_a_glob_is_refused_and_says_why(backend: ByleaveBackend, household: Household) -> None:
    done = await backend.aexecute("ls *.py")
    assert done.exit_code == 126
    assert "no globs" in done.output
    assert not await household.person.record()
