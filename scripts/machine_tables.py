"""What the VS Code client shares with the workspace package: `vscode/src/tools/tables.json`, made from its constants.

The words of the sandbox (names it protects, files of /etc it shows, limits, filters of system calls, the environment of
a command) and of the tools. Nothing is decided here. `--check` says whether the file is what it would be made now.
"""

import argparse
import base64
import json
import sys
from pathlib import Path
from typing import Any

from byleave.client import journal, outbox
from byleave.protocol.tools import MAX_CHANGES, MAX_FILE_BYTES, MAX_LISTING, TOOLS
from byleave.workspace import (
    bubblewrap,
    commands,
    disguises,
    effects,
    git_words,
    limits,
    operands,
    programs,
    protection,
    sandbox,
    seatbelt,
    seccomp,
    snapshots,
)

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "vscode" / "src" / "tools" / "tables.json"
WORKSPACE, HOME, SEARCH_PATH = "{workspace}", "{home}", "{path}"


def _filters() -> dict[str, dict[str, str]]:
    """The filter of system calls for each machine, without and with the network."""
    return {
        machine: {
            key: base64.b64encode(seccomp.filter_for(machine, network=network) or b"").decode("ascii")
            for key, network in (("none", False), ("host", True))
        }
        for machine in seccomp.ARCHITECTURES
    }


def _environment() -> dict[str, str]:
    made = programs.clean_environment(Path("/workspace-parent/workspace"), HOME)
    made["PATH"], made["GIT_CEILING_DIRECTORIES"] = SEARCH_PATH, WORKSPACE
    return made


def tables() -> dict[str, Any]:
    """All of it."""
    return {
        "tools": {
            name: {"timeout_seconds": spec.timeout_seconds, "changes_things": spec.changes_things}
            for name, spec in TOOLS.items()
        },
        "max_file_bytes": MAX_FILE_BYTES,
        "max_listing": MAX_LISTING,
        "max_changes": MAX_CHANGES,
        "closed": sorted(snapshots.CLOSED),
        "runs_later": [list(pair) for pair in effects.RUNS_LATER],
        "interrupted": journal.INTERRUPTED,
        "try_again_seconds": outbox.TRY_AGAIN_SECONDS,
        "limits": limits.LIMITS,
        "limits_without_sandbox": list(sandbox.NoSandbox._LIMITS),  # pyright: ignore[reportPrivateUsage]
        "etc_files": list(sandbox.ETC_FILES),
        "etc_directories": list(sandbox.ETC_DIRECTORIES),
        "etc_for_network": list(sandbox.ETC_FOR_NETWORK),
        "protected": list(protection.PROTECTED),
        "git_protected": list(protection.GIT_PROTECTED),
        "readers": sorted(protection._READERS),  # pyright: ignore[reportPrivateUsage]
        "find_writes": list(protection._FIND_WRITES),  # pyright: ignore[reportPrivateUsage]
        "git_value_options": sorted(git_words._VALUE_OPTIONS),  # pyright: ignore[reportPrivateUsage]
        "git_reads": sorted(git_words._READS),  # pyright: ignore[reportPrivateUsage]
        "git_makes": sorted(git_words._MAKES_A_REPOSITORY),  # pyright: ignore[reportPrivateUsage]
        "git_safety": list(commands._GIT_SAFETY),  # pyright: ignore[reportPrivateUsage]
        "never_written": sorted(disguises._PROTECTED),  # pyright: ignore[reportPrivateUsage]
        "forbidden_endings": list(disguises._FORBIDDEN_ENDINGS),  # pyright: ignore[reportPrivateUsage]
        "show_content": sorted(operands._SHOW_CONTENT),  # pyright: ignore[reportPrivateUsage]
        "list_names": sorted(operands._LIST_NAMES),  # pyright: ignore[reportPrivateUsage]
        "not_names": sorted(kind.value for kind in operands._NOT_NAMES),  # pyright: ignore[reportPrivateUsage]
        "words_without": {str(k): v for k, v in bubblewrap._WORDS.items()},  # pyright: ignore[reportPrivateUsage]
        "packages": programs._PACKAGES,  # pyright: ignore[reportPrivateUsage]
        "environment": _environment(),
        "filters": _filters(),
        "seatbelt": {
            "base": seatbelt._BASE,  # pyright: ignore[reportPrivateUsage]
            "network": seatbelt._NETWORK,  # pyright: ignore[reportPrivateUsage]
            "system": [*seatbelt._SYSTEM, *seatbelt._DEVICES],  # pyright: ignore[reportPrivateUsage]
            "degraded": [
                seatbelt._UNTESTED,  # pyright: ignore[reportPrivateUsage]
                seatbelt._TREE,  # pyright: ignore[reportPrivateUsage]
                seatbelt._UNLIMITED,  # pyright: ignore[reportPrivateUsage]
                seatbelt._LINKS,  # pyright: ignore[reportPrivateUsage]
            ],
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the file is up to date")
    made = tables()
    if parser.parse_args().check:
        if TARGET.exists() and json.loads(TARGET.read_text("utf-8")) == made:
            return 0
        print(f"{TARGET.relative_to(ROOT)} is out of date: run scripts/machine_tables.py", file=sys.stderr)
        return 1
    TARGET.write_text(json.dumps(made, indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
