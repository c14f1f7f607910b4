"""Texts for the shared vectors: what is shown, what is masked, what comes in pieces, and what gets a digest.

All of it is the same for the same seed. Secrets are made up here, piece by piece, so that no scanner takes this for a
leak; the shapes around them are in `vector_data`.
"""

import itertools
import string
from typing import Any

from vector_inputs import HALF, PIECES, Call, data, maker, run

from byleave.gate import secret_formats

_LENGTHS = (4, 6, 8, 12, 16, 20, 22, 24, 30, 32, 36, 40, 43, 48, 53, 64, 93)
_MIXED = string.ascii_letters + string.digits
_ALPHABETS = (_MIXED, _MIXED, "0123456789abcdef", string.ascii_uppercase + string.digits, f"{_MIXED}_-",
              string.ascii_lowercase)  # fmt: skip


def made_texts(seed: int, count: int) -> list[str]:
    """Texts with what nobody sees, paddings and quotes."""
    rng = maker(seed)
    pieces: list[str] = [*PIECES["hidden"], HALF, *PIECES["letters"], *PIECES["texts"]]
    pieces += [piece * times for piece, times in PIECES["repeated"]]
    return ["".join(rng.choice(pieces) for _ in range(rng.randint(1, 7))) for _ in range(count)]


def _prefixes() -> list[str]:
    prefixed: Any = secret_formats._PREFIXED  # pyright: ignore[reportPrivateUsage] - what keys begin with
    bare: Any = secret_formats._BARE  # pyright: ignore[reportPrivateUsage]
    return [prefix for _, listed, _ in (*prefixed, *bare) for prefix in listed.split()]


def made_secrets(seed: int, count: int) -> list[str]:
    """Texts that hold what looks like a secret, nearly looks like one, or only talks about one."""
    rng = maker(seed)
    prefixes = _prefixes()
    shapes = data("secrets")
    found: list[str] = []
    while len(found) < count:
        alphabet = rng.choice(_ALPHABETS)
        value = "".join(rng.choice(alphabet) for _ in range(rng.choice(_LENGTHS)))
        value = rng.choice((value, value, rng.choice(shapes["values"]), rng.choice(prefixes) + value))
        text: str = rng.choice(shapes["templates"])
        text = text.replace("NAME", rng.choice(shapes["names"])).replace("VALUE", value)
        if rng.random() < 0.2:
            text = rng.choice((f"\x1b[31m{text}\x1b[0m", f"{text}\n{text}", f"é {text} 😀", text.replace(" ", "  ")))
        found.append(text)
    return found


def made_streams(seed: int, count: int) -> list[list[str]]:
    """Texts that come in pieces, cut anywhere: also in the middle of a secret."""
    rng = maker(seed)
    found: list[list[str]] = []
    for _ in range(count):
        text = rng.choice(("\n", " ", "")).join(made_secrets(rng.randrange(10**6), rng.randint(1, 4)))
        cuts = sorted(rng.randint(0, len(text)) for _ in range(rng.randint(0, 4)))
        found.append([text[one:other] for one, other in itertools.pairwise([0, *cuts, len(text)])])
    return found


def quoted_lines() -> list[str]:
    """Lines to be split as a shell would."""
    return PIECES["quoted"]


def secret_lines() -> list[list[str]]:
    """Command lines with a secret among the arguments."""
    value = "hunter2" + "x9Q" * 5
    shapes: list[str] = data("secrets")["lines"]
    return [shape.replace("VALUE", value).split(" ") for shape in shapes] + [[], ["x", ""], ["curl", "-u", ""]]


def shown_calls() -> list[Call]:
    long = "line of text\n" * 1300
    return [
        run("ls", "-la", "a b"),
        run("mysql", "-psecretword9"),
        ("execute_command", {"command": "ls", "args": ["-l"], "timeout": 30}),
        ("read_file", {"path": "a\u202eb", "start_line": None, "end_line": 3}),
        ("write_file", {"path": "a.txt", "content": "one\ntwo\n", "mode": "write"}),
        ("write_file", {"path": "a.txt", "content": long, "mode": "write"}),
        ("write_file", {"path": "a.txt", "content": "😀\x1b" * 8200, "mode": "append"}),
        ("search_files", {"pattern": "x", "path": ".", "regex": False, "glob": None, "password": "abc"}),
    ]


def digested_values() -> list[dict[str, Any]]:
    texts = ["", "a", '"\\/', "\x00\x1f\x7f\x80", "é日😀", f"\u2028{HALF}", "\n\r\t\b\f"]
    keys: dict[str, Any] = dict.fromkeys(("b", "a", "B", "é", "\ue000", "😀", "a.b", "10", "9", ""), 1)
    params: list[dict[str, Any]] = [{"path": text} for text in texts]
    params.append(keys)
    params.append({"nested": [None, True, False, 0, -5, 2**53 - 1, [], {}, [keys]]})
    params.append({"command": "ls", "args": texts})
    return [
        {"tool": "read_file", "params": one, "project": "prj_1", "bound": bound}
        for one in params
        for bound in ({}, {"src/a.py": "0" * 64, "é.py": "missing"})
    ]
