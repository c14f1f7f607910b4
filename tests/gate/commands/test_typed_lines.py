"""Command lines where there is no shell: read as a shell would read them, or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byleave.gate.commands.lines import NotPlain, plain_words, typed_line

pytestmark = pytest.mark.promise("I")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ls -la src", ["ls", "-la", "src"]),
        ("  git  status \n", ["git", "status"]),
        ("grep 'a|b' \"c;d\"", ["grep", "a|b", "c;d"]),
        ("find . -name '*.py'", ["find", ".", "-name", "*.py"]),
        (r"find . -name \*.py", ["find", ".", "-name", "*.py"]),
        (r'echo "\$HOME \"x\" \\ \n"', ["echo", r'$HOME "x" \ \n']),
        ("grep foo$ a", ["grep", "foo$", "a"]),
        ('grep "foo$" a', ["grep", "foo$", "a"]),
        ("git log a~1 b#2 c!d", ["git", "log", "a~1", "b#2", "c!d"]),
        ("git show HEAD@{1}", ["git", "show", "HEAD@{1}"]),
        ("echo '' \"\"", ["echo", "", ""]),
        ("a'b'\"c\"d", ["abcd"]),
        ("git commit -m 'one\ntwo'", ["git", "commit", "-m", "one\ntwo"]),
        ("x --flag=~/a", ["x", "--flag=~/a"]),
    ],
)
def test_plain_line_is_read_as_a_shell_reads_it(line: str, words: list[str]) -> None:
    assert plain_words(line) == words


@pytest.mark.parametrize(
    "line",
    [
        *("", " ", "'", '"', "a 'b", "a \\", "a\nb", "a \\\nb", "a | b", "a && b", "a; b", "a & ", "a > b", "a < b"),
        *("a `b`", 'a "`b`"', "a $(b)", 'a "$(b)"', "a $HOME", 'a "$HOME"', "a ${x}", "a $1", "a $?", "a $$", "a $@"),
        *("a $'x'", 'a $"x"', "ls *.py", "ls a?", "ls [ab]", "ls ~", "ls ~/x", "rm {a,b}", "rm x{1..3}", "FOO=1 cmd"),
        *("PATH+=x cmd", "( a )", "! a", "a # b", "{ a", "a 'b'*"),
    ],
)
def test_line_that_needs_a_shell_is_refused(line: str) -> None:
    with pytest.raises(NotPlain):
        plain_words(line)


@given(st.lists(st.text(min_size=1), min_size=1))
def test_quoted_words_come_back_as_they_were(words: list[str]) -> None:
    assert plain_words(typed_line(["run", *words])) == ["run", *words]
