"""File names: the protected, trusted and secret ones, and the risk of a write.

The lists of files that someone else executes, trusts or keeps secrets in are data (`names.toml`). A write to a
protected or program file is refused. A file that something executes or trusts is HIGH with a plain warning, text of
the named extensions is MEDIUM, everything else HIGH.

Nothing here touches the disk: the workspace follows links and asks again with the real name.
"""

import fnmatch
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any

from byleave.protocol.verdicts import Finding, VerdictLevel
from byleave.protocol.wire import JsonObject

from .paths import names_of
from .text.render import quoted
from .text.secrets import MASK_PREFIX, Cover, cover_inert, cover_key


class NameGroup:
    """Names that share a reason."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.because: str = entry.get("because", "")
        self._directories = frozenset[str](entry.get("directories", ()))
        self._files = frozenset[str](entry.get("files", ()))
        self._globs: list[str] = entry.get("patterns", [])
        self._paths = [f"/{path}/" for path in entry.get("paths", ())]

    @cached_property
    def _patterns(self) -> re.Pattern[str]:
        # Compiled on first use: compiling all of them takes longer than reading the lists.
        return re.compile("|".join(f"(?:{fnmatch.translate(glob)})" for glob in self._globs))

    def holds(self, names: tuple[str, ...]) -> bool:
        last = names[-1]
        if last in self._files or not self._directories.isdisjoint(names):
            return True
        if self._globs and self._patterns.fullmatch(last):
            return True
        whole = f"/{'/'.join(names)}/"
        return any(path in whole for path in self._paths)


_DATA: dict[str, Any] = tomllib.loads(
    resources.files(__name__.rpartition(".")[0]).joinpath("names.toml").read_text("utf-8")
)
_PROTECTED = tuple(NameGroup(entry) for entry in _DATA["protected"])
_TRUSTED = tuple(NameGroup(entry) for entry in _DATA["trusted"])
_SECRET = NameGroup(_DATA["secrets"])
_HOLDING: frozenset[str] = frozenset(_DATA["secrets"]["holding"])
_WORDS: frozenset[str] = frozenset(word.replace(" ", "") for word in _DATA["secrets"]["words"])
_MARKS: frozenset[str] = frozenset(_DATA["secrets"]["marks"])
_SECRET_ENDINGS: frozenset[str] = frozenset(_DATA["secrets"]["data_endings"])
_NEVER_SECRET: frozenset[str] = frozenset(_DATA["secrets"]["never"])
_CODE_ENDINGS: frozenset[str] = frozenset(_DATA["secrets"]["code_endings"])
_CODE_DIRECTORIES: frozenset[str] = frozenset(_DATA["secrets"]["code_directories"])
_NEVER_ENDINGS: tuple[str, ...] = tuple(_DATA["secrets"]["never_endings"])
_AMBIGUOUS: frozenset[str] = frozenset(_DATA["secrets"]["ambiguous"])
_UNLESS_WITHIN: frozenset[str] = frozenset(_DATA["secrets"]["unless_within"])
_UNLESS = _UNLESS_WITHIN.union(_DATA["secrets"]["unless_words"])
_UNLESS_BELOW = [(frozenset(entry["words"]), frozenset(entry["below"])) for entry in _DATA["secrets"]["unless"]]
_COPIES: tuple[str, ...] = tuple(_DATA["secrets"]["copies"])
_MOST_COPIES = 6
_PUT_ASIDE = re.compile(f"{re.escape(_DATA['secrets']['aside'])}[0-9a-f]{{8}}$")
_DESKTOP_COPY = re.compile(
    r"(?: \((?:[\w ]{0,20}copy|kopie|[0-9]{1,3})\)|(?: -)? (?:copy|kopie)(?: \(?[0-9]{1,3}\)?)?)(?=\.|$)"
)
"""What browsers and desktops put between a name and its ending."""
_SMALL_BEFORE_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN_WORDS = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class NameGlobs:
    """Globs of one category of names, for directory walks; each fits at any depth."""

    directories: tuple[str, ...]
    """Everything below one belongs to the category."""
    files: tuple[str, ...]
    holding: tuple[str, ...] = ()
    """Below one of these directories any file may belong to it."""


def secret_globs() -> NameGlobs:
    """Globs of files that may hold secrets or copies of them; `secret_name` decides."""
    entry = _DATA["secrets"]
    globs = _globs([entry])
    words = (f"*{word.replace(' ', '*')}*" for word in entry["words"])
    names = (*globs.files, *entry["ambiguous"])
    copies = (
        *(f"*{ending}" for ending in entry["copies"]),
        f"*{entry['aside']}*",
        "#*#",
        "* (*",
        "* copy*",
        "* kopie*",
    )
    more = (f"{name}.*" for name in names if "/" not in name)
    return NameGlobs(globs.directories, (*names, *words, *copies, *more), tuple(entry["holding"]))


def trusted_globs(*, installed: bool = False) -> NameGlobs:
    """Globs of names that someone executes or obeys: those of installed code, or all others."""
    return _globs([entry for entry in _DATA["trusted"] if entry.get("installed", False) is installed])


def _globs(entries: Iterable[dict[str, Any]]) -> NameGlobs:
    directories: list[str] = []
    files: list[str] = []
    for entry in entries:
        paths = [f"**/{path}" for path in entry.get("paths", ())]
        directories += [*entry.get("directories", ()), *paths]
        files += [*entry.get("files", ()), *entry.get("patterns", ()), *paths]
    return NameGlobs(tuple(directories), tuple(files))


@lru_cache(maxsize=4096)
def protected_name(path: str) -> str | None:
    """The reason why only its owner may write here, or None."""
    return _reason(_PROTECTED, path)


@lru_cache(maxsize=4096)
def trusted_name(path: str) -> str | None:
    """A sentence saying who executes or obeys this file, or None."""
    return _reason(_TRUSTED, path)


@lru_cache(maxsize=4096)
def secret_name(path: str) -> bool:
    """True if a file of this name usually holds secrets."""
    above, slash, last = path.rpartition("/")
    spelled = {path, f"{above}{slash}{_SMALL_BEFORE_CAPITAL.sub('-', last)}"}
    readings = (names for each in spelled for names in _readings(each))
    return any(_holds_secrets((*names[:-1], name)) for names in readings for name in _originals(names[-1]))


def asks_for_secrets(path: str, glob: str | None = None) -> bool:
    """True if a path, or a glob of names below it, names files that usually hold secrets."""
    if glob is None or glob.startswith("!"):  # it would leave them out, and no search takes such a glob
        return secret_name(path)
    return secret_name(path) or secret_name(glob) or secret_name(glob.strip("*"))


def _reason(groups: Iterable[NameGroup], path: str) -> str | None:
    readings = tuple(_readings(path))
    return next((group.because for group in groups if any(group.holds(names) for names in readings)), None)


def _readings(path: str) -> Iterator[tuple[str, ...]]:
    """The names of a path as written, and as they are once each `..` has taken away the name before it."""
    names = names_of(path)
    yield names
    if ".." in names:
        left: list[str] = []
        for name in names:
            if name == ".." and left and left[-1] != "..":
                left.pop()
            else:
                left.append(name)
        yield tuple(left) or (".",)


def _originals(name: str) -> Iterator[str]:
    """The name, and those it may be a copy of: `a.key.bak`, `a (1).key`, and editors' own `#a.key#`, `.a.key.swp`."""
    yield name
    bare = _PUT_ASIDE.sub("", name).strip("#")
    for _ in range(_MOST_COPIES):
        if bare != name:
            yield from (bare, bare.removeprefix(".") or bare)
        shorter = bare if _never_secret(bare) else _original(bare)
        if shorter in (bare, ""):
            break
        bare = shorter


def _original(name: str) -> str:
    """The name without the outermost sign that it is a copy."""
    shorter = _DESKTOP_COPY.sub("", name, count=1)
    ending = next((ending for ending in _COPIES if shorter.endswith(ending)), "") if shorter == name else ""
    if ending or shorter != name:
        return shorter.removesuffix(ending)
    stem, _, ending = name.rpartition(".")
    return stem if "." in stem and ending not in _CODE_ENDINGS and ending not in _UNLESS_WITHIN else name


def _never_secret(name: str) -> bool:
    return name in _NEVER_SECRET or name.endswith(_NEVER_ENDINGS)


def _holds_secrets(names: tuple[str, ...]) -> bool:
    last, above = names[-1], names[:-1]
    if _never_secret(last):
        return False
    stem, dot, ending = last.lstrip(".").rpartition(".")
    if not dot or _singular(ending) in _WORDS:
        stem, ending = last, ""
    if ending in _CODE_ENDINGS and not last.startswith(".env") and not _SECRET.holds((*above, "")):
        return False
    if _SECRET.holds(names) or not _HOLDING.isdisjoint(above):
        return True
    words = [word for word in _BETWEEN_WORDS.split(stem) if word]
    if last in _CODE_DIRECTORIES or ending not in _SECRET_ENDINGS or not _UNLESS.isdisjoint(words):
        return False
    while len(words) > 1 and (words[-1] in _MARKS or words[-1].isdigit()):
        words.pop()
    word = words.pop().rstrip("0123456789") if words else ""
    around = {*above, *words}
    if any(word in meant and not elsewhere.isdisjoint(around) for meant, elsewhere in _UNLESS_BELOW):
        return False
    tells = {_singular(word), _singular("".join((*words[-1:], word)))}
    return last in _AMBIGUOUS or not _WORDS.isdisjoint(tells)


def _singular(word: str) -> str:
    return word.removesuffix("s")


MEDIUM_EXTENSIONS = frozenset({".txt", ".md", ".json", ".py", ".js", ".ts", ".jsx", ".tsx"})
_PROGRAM = re.compile(
    r".*\.(?:exe|bin|so(?:\.[0-9.]+)?|dll|dylib|sys|com|scr|pif|msi|msp|drv|ocx|cpl|ko|o|a|obj|lib|class|jar|war|ear|"
    r"pyc|pyo|pyd|node|wasm|elf|efi|lnk|apk|deb|rpm|dmg|appimage|xpi|vsix|crx|gadget|mui|tlb)",
    re.DOTALL,
)

_SCRIPTS = frozenset(
    {"sh", "bash", "zsh", "fish", "ksh", "csh", "ps1", "psm1", "bat", "cmd", "vbs", "wsf", "hta", "command", "tool"}
    | {"pl", "rb", "php", "lua", "tcl", "awk", "exp", "applescript", "scpt", "reg", "jse", "mjs", "cjs", "mts", "cts"}
)
SOURCE_EXTENSIONS = frozenset(
    f".{ending}"
    for ending in (
        *("go", "rs", "java", "kt", "scala", "groovy", "c", "h", "cc", "cpp", "cxx", "hpp", "hh", "hxx", "cs", "fs"),
        *("swift", "m", "mm", "zig", "d", "nim", "dart", "ex", "exs", "erl", "hrl", "hs", "ml", "mli", "clj", "cljs"),
        *("elm", "jl", "r", "rb", "php", "lua", "mjs", "cjs", "mts", "cts", "pyi", "vue", "svelte", "astro", "sol"),
        *("html", "htm", "css", "scss", "sass", "less", "svg", "xml", "xsd", "xsl", "sql", "graphql", "gql", "proto"),
        *("toml", "yml", "yaml", "jsonc", "json5", "csv", "tsv", "rst", "adoc", "tex", "po", "hbs", "ejs", "erb", "j2"),
        *("mdx", "ipynb", "rmd", "qmd", "bib", "puml", "properties", "strings", "arb", "xlf", "ftl", "srt", "vtt"),
        *("pyx", "pxd", "f", "f90", "f95", "sv", "svh", "v", "vhd", "vhdl", "s", "asm", "cu", "cuh", "cl", "pas", "vb"),
        *("glsl", "vert", "frag", "comp", "wgsl", "hlsl", "metal", "gd", "fsi", "razor", "cshtml", "xaml", "resx"),
        *("lean", "agda", "idr", "purs", "gleam", "odin", "adb", "ads", "move", "cairo", "vy", "thrift", "fbs", "cr"),
        *("pug", "haml", "slim", "liquid", "njk", "mustache", "handlebars", "twig", "jinja", "jinja2", "styl", "mjml"),
        *("geojson", "jsonl", "ndjson", "webmanifest", "avsc", "snap"),
    )
)
"""Source code and data. A write is HIGH, but a grant of that kind may cover it: nobody runs it by its name."""


def source_kind(path: str) -> str | None:
    """The extension of a path whose write is HIGH only because of its kind; else None."""
    stem, dot, ending = names_of(path)[-1].rpartition(".")
    is_source = bool(stem and dot) and f".{ending}" in SOURCE_EXTENSIONS and trusted_name(path) is None
    return f".{ending}" if is_source else None


_OTHER_DATA = frozenset({"tfvars", "tfstate", "pem", "key", "ovpn"})
_OBEYED_SETTINGS = frozenset({".env", ".netrc", ".npmrc", ".pypirc"})


def question_cover(params: JsonObject, real: str | None = None) -> Cover:
    """Return the cover of a question: in content that may run, of keys only. `real`: the file behind all links."""
    path, content = params.get("path"), params.get("content")
    if not isinstance(path, str) or not isinstance(content, str):
        return cover_inert
    are_settings = _secret_settings(path) and _secret_settings(real or path) and not content.startswith("#!")
    return cover_inert if are_settings else cover_key


def _secret_settings(path: str) -> bool:
    """True for a file of secrets that nothing runs; of those that something obeys, where names say what is secret."""
    last = names_of(path)[-1]
    base, _, mark = last.rpartition(".")
    is_obeyed = last in _OBEYED_SETTINGS or (base.startswith(".env") and mark in _MARKS)
    holds_data = mark in _SECRET_ENDINGS or mark in _OTHER_DATA or not base or is_obeyed
    return secret_name(path) and (is_obeyed or trusted_name(path) is None) and holds_data


def assess_write(path: str, content: str) -> list[Finding]:
    """Findings for a write to a path that is known to stay inside the workspace; never empty."""
    protected = protected_name(path)
    if protected is not None:
        return [_finding(VerdictLevel.REFUSE, f"{quoted(path)} may not be written. {protected}", "protected")]
    last = names_of(path)[-1]
    if _PROGRAM.fullmatch(last):
        reason = f"{quoted(path)} would be a program or binary file; only text is written."
        return [_finding(VerdictLevel.REFUSE, reason, "program")]
    findings = [_by_name(path, last)]
    if MASK_PREFIX in content:
        reason = "The content holds a mask in place of a secret; writing it would replace the real secret."
        instead = "edit the file without its secret lines"
        findings.append(_finding(VerdictLevel.HIGH, reason, "masked", instead, always_asks=True))
    if content.startswith("#!") and source_kind(path) is not None:
        reason = "It begins with `#!`: whoever runs it next runs what is written here."
        findings.append(_finding(VerdictLevel.HIGH, reason, "script", always_asks=True))
    if "\0" in content:
        reason = "The content holds NUL bytes: it is not text."
        findings.append(_finding(VerdictLevel.HIGH, reason, "binary", always_asks=True))
    return findings


def _by_name(path: str, last: str) -> Finding:
    trusted = trusted_name(path)
    if trusted is not None:
        reason = f"{quoted(path)} is more than text. {trusted}"
        return _finding(VerdictLevel.HIGH, reason, "trusted", always_asks=True)
    stem, dot, ending = last.rpartition(".")
    if dot and stem and f".{ending}" in MEDIUM_EXTENSIONS:
        return _finding(VerdictLevel.MEDIUM, "Writes a text file.", "text")
    if dot and stem and ending in _SCRIPTS:
        reason = f"Writes a .{ending} script: whoever runs it next runs what is written here."
        return _finding(VerdictLevel.HIGH, reason, "script")
    what = f".{ending} file" if dot and stem else "file without an extension"
    return _finding(VerdictLevel.HIGH, f"Writes a {what}, which is none of the kinds known to be plain text.", "other")


def _finding(
    level: VerdictLevel, reason: str, rule: str, instead: str | None = None, *, always_asks: bool = False
) -> Finding:
    return Finding(level=level, reason=reason, rule=f"write.{rule}", instead=instead, always_asks=always_asks)
