"""Write the shared vectors: calls and texts, with what the Python gate makes of them, for the TypeScript client.

    python scripts/vectors.py                       write vscode/test/vectors/
    python scripts/vectors.py --check               write nothing; exit 1 and name what is stale
    python scripts/vectors.py --random SEED FILE    write that many other calls and texts, for a comparison at large

A verdict is kept as its level, flags and a digest of all that was found, so that reasons, rules and the reading of the
arguments are compared too. The inputs are made by `vector_inputs` and `vector_texts`. Nothing here is imported by
Byleave itself.
"""

import argparse
import hashlib
import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import vector_inputs as inputs
import vector_texts

from byleave.gate import (
    Gate,
    GateRules,
    MaskedStream,
    Policy,
    PolicyError,
    check_path,
    full_text,
    mask_text,
    mask_value,
    parse_policy,
    protected_name,
    safe_text,
    secret_name,
    shown_params,
    trusted_name,
)
from byleave.gate.gate import Judgement
from byleave.gate.globs import directory_of, path_above, path_fits
from byleave.gate.render import quote
from byleave.gate.secrets import mask_arguments
from byleave.protocol.digests import call_digest, canonical_json
from byleave.protocol.policies import Layer

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "vscode" / "test" / "vectors"
WORKSPACE = "/home/user/ws"
MOST_BYTES = 1_500_000
LONG = 2000
CHUNK = 5
"""Texts with made-up secrets are kept in pieces of this many characters, so that no scanner takes them for real."""

Row = list[Any]


def outcome(judgement: Judgement) -> Row:
    """What is kept of a verdict: `M an 0f3c…`, and the files that would run where there are any."""
    verdict = judgement.verdict
    findings = [
        # Which words a wrong form is described with is the business of each side.
        [f.level.value, f.rule, "" if f.rule == "tools.params" else f.reason, f.instead, f.always_asks]
        for f in verdict.findings
    ]
    seen = [judgement.tool_name, judgement.params, findings, verdict.understood, verdict.waived_by]
    digest = hashlib.sha256(canonical_json(seen).encode("ascii")).hexdigest()[:8]
    flags = "".join(
        [
            "a" if verdict.always_asks else "",
            "n" if verdict.network else "",
            "w" if verdict.waived_by else "",
            {"invalid": "i", "refused": "r"}.get(verdict.error_type or "", ""),
        ]
    )
    kept = f"{verdict.level.value[0]} {flags} {digest}"
    return [kept, list(verdict.runs)] if verdict.runs else [kept]


def judged(gate: Gate, call: inputs.Call, *, isolated: bool = True) -> Row:
    """One line of a file: the call, then its outcome. A command line is kept as its argv alone."""
    name, params = call
    row = outcome(gate.judge(name, params, workspace=WORKSPACE, isolated=isolated))
    command, args = params.get("command"), params.get("args")
    if name != "execute_command" or params.keys() != {"command", "args"} or not isinstance(args, list):
        return [[name, params], *row]
    line: list[Any] = [command, *args]
    return [line if all(isinstance(word, str) for word in line) else [name, params], *row]


def calls(rows: Iterable[inputs.Call], allowed: Iterable[str] | None, *, isolated: bool = True) -> dict[str, Any]:
    gate = Gate() if allowed is None else Gate(GateRules(allowed_commands=frozenset(allowed)))
    return {
        "workspace": WORKSPACE,
        "allowed": None if allowed is None else sorted(allowed),
        "isolated": isolated,
        "rows": [judged(gate, call, isolated=isolated) for call in rows],
    }


def policies(cases: Iterable[inputs.PolicyCase]) -> list[dict[str, Any]]:
    """Owners' rules with the calls they are held against, or what is said to be wrong with them."""
    found: list[dict[str, Any]] = []
    for case in cases:
        entry: dict[str, Any] = {"layers": [list(layer) for layer in case.layers]}
        try:
            policy = Policy(
                parse_policy(text, Layer(layer), source="policy.toml", trusted=trusted)
                for layer, text, trusted in case.layers
            )
        except PolicyError as error:
            toml = "It is not TOML" in error.message
            found.append(entry | {"error": "TOML" if toml else error.message, "hint": None if toml else error.hint})
            continue
        gate = Gate().with_policy(policy)
        entry |= {"mode": policy.widest_mode.value, "commands": sorted(policy.commands)}
        found.append(entry | {"rows": [judged(gate, call) for call in case.calls]})
    return found


def texts(
    plain: Iterable[str], secret: Iterable[str], lines: Iterable[list[str]], streams: Iterable[list[str]]
) -> dict[str, Any]:
    return {
        "safe": [[text, safe_text(text), safe_text(text, lines=True), quote(text)] for text in plain],
        "masked": [[chunks(text), chunks(mask_text(text))] for text in secret],
        "arguments": [[in_chunks(line), in_chunks(mask_arguments(line))] for line in lines],
        "words": [[line, _split(line)] for line in vector_texts.quoted_lines()],
        "streams": [[in_chunks(pieces), in_chunks(streamed(pieces))] for pieces in streams],
    }


def _split(line: str) -> list[str] | None:
    try:
        return shlex.split(line)
    except ValueError:
        return None


def streamed(pieces: Iterable[str]) -> list[str]:
    stream = MaskedStream()
    return [*(stream.feed(piece) for piece in pieces), stream.end()]


def shown(values: Iterable[tuple[str, dict[str, Any]]]) -> list[Row]:
    """Whole calls as they are logged and shown."""
    return [
        [name, params, kept(shown_params(name, params)), kept(full_text(name, params)), kept(mask_value(params))]
        for name, params in values
    ]


def kept(value: Any) -> Any:
    """The value, or its digest when it is long."""
    text = canonical_json(value)
    return value if len(text) < LONG else f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


def chunks(text: str) -> list[str]:
    return [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]


def in_chunks(texts_: Iterable[str]) -> list[list[str]]:
    return [chunks(text) for text in texts_]


def paths(spellings: Iterable[str], globs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    return {
        "workspace": WORKSPACE,
        "paths": [[path, _path(path), _path(path, writes=True), _names(path)] for path in spellings],
        "globs": [
            [glob, path, _bits(path_fits(glob, path), path_fits(glob, path, careless=True), path_above(path, glob),
                               directory_of(path, glob))]
            for glob, path in globs
        ],
    }  # fmt: skip


def _path(path: str, *, writes: bool = False) -> str:
    relative, refusal = check_path(path, workspace=WORKSPACE, writes=writes)
    return f"={relative}" if refusal is None else refusal.rule


def _names(path: str) -> str:
    return _bits(protected_name(path) is not None, trusted_name(path) is not None, secret_name(path))


def _bits(*answers: bool) -> str:
    return "".join("1" if answer else "0" for answer in answers)


def digests(values: Iterable[Mapping[str, Any]]) -> list[Row]:
    return [
        [value, canonical_json(value), call_digest(value["tool"], value["params"], value["project"], value["bound"])]
        for value in values
    ]


def generated() -> dict[str, Any]:
    """Every file with the value it should hold."""
    everything = inputs.every_command()
    return {
        "lines.json": calls(inputs.labelled_lines(), None),
        "generated.json": calls(inputs.made_lines(seed=7, count=2600), everything),
        "odd.json": calls(inputs.odd_lines(), [*everything, "frobnicate", "mkfs.ext4", "sudo.x"]),
        "calls.json": calls([*inputs.odd_calls(), *inputs.made_calls(seed=7, count=700)], None),
        "unisolated.json": calls(inputs.labelled_lines()[:150], None, isolated=False),
        "policies.json": policies([*inputs.written_policies(), *inputs.made_policies(seed=7, count=60)]),
        "texts.json": texts(
            vector_texts.made_texts(seed=7, count=160),
            vector_texts.made_secrets(seed=7, count=700),
            vector_texts.secret_lines(),
            vector_texts.made_streams(seed=7, count=120),
        ),
        "stricter.json": calls(inputs.stricter_calls(), everything),
        "shown.json": shown(vector_texts.shown_calls()),
        "paths.json": paths(inputs.made_paths(seed=7, count=600), inputs.made_globs(seed=7, count=700)),
        "digests.json": digests(vector_texts.digested_values()),
    }


def at_random(seed: int) -> dict[str, Any]:
    """Other inputs than the committed ones, and more of them."""
    return {
        "generated": calls(inputs.made_lines(seed=seed, count=5000), inputs.every_command()),
        "calls": calls(inputs.made_calls(seed=seed, count=3000), None),
        "policies": policies(inputs.made_policies(seed=seed, count=300)),
        "texts": texts(
            vector_texts.made_texts(seed=seed, count=1500),
            vector_texts.made_secrets(seed=seed, count=6000),
            vector_texts.secret_lines(),
            vector_texts.made_streams(seed=seed, count=1000),
        ),
        "paths": paths(inputs.made_paths(seed=seed, count=4000), inputs.made_globs(seed=seed, count=4000)),
    }


def written(value: Any) -> str:
    """One row to a line, so that a change shows which."""
    if not isinstance(value, dict):
        return f"[\n{_lines(value)}\n]\n"
    parts: list[str] = []
    for key, part in cast("dict[str, Any]", value).items():
        long = isinstance(part, list) and key != "allowed"
        parts.append(f"{_json(key)}: [\n{_lines(part)}\n]" if long else f"{_json(key)}: {_json(part)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines(rows: Any) -> str:
    return ",\n".join(_json(row) for row in rows)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
    parser.add_argument("--random", nargs=2, metavar=("SEED", "FILE"), help="other inputs, into one file")
    options = parser.parse_args()
    if options.random:
        seed, file = options.random
        Path(file).write_text(_json(at_random(int(seed))), encoding="utf-8")
        return 0
    files = {TARGET / name: written(value) for name, value in generated().items()}
    if sum(map(len, files.values())) > MOST_BYTES:
        sys.exit(f"The vectors take {sum(map(len, files.values()))} bytes; at most {MOST_BYTES} belong here.")
    if not options.check:
        TARGET.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            path.write_text(content, encoding="utf-8")
        return 0
    stale = [p for p, content in files.items() if not p.exists() or p.read_text(encoding="utf-8") != content]
    for path in stale:
        sys.stderr.write(f"{path.relative_to(ROOT)} is stale.\n")
    if stale:
        sys.stderr.write("hint: make schema\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
