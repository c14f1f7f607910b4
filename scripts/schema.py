"""Write every generated file from the models, or check that the committed ones are fresh.

    python scripts/schema.py            write schema/, docs/settings.md and docs/cli.md
    python scripts/schema.py --check    write nothing; exit 1 and name what is stale

Generated: schema/byleave.schema.json, schema/openapi.json, schema/types.ts, docs/settings.md, docs/cli.md and, for the
SDK in JavaScript, sdk-js/src/protocol.ts and sdk-js/src/catalogue.ts. The types are also compiled, strictly, with
schema/check.ts. Nothing here is imported by Byleave itself.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from command_page import command_page
from settings_page import settings_page

from byleave.protocol.engine import NOTIFICATIONS, REQUESTS
from byleave.protocol.schema import wire_schema
from byleave.protocol.tools import TOOLS
from byleave.server import openapi_document

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "schema"
SDK = ROOT / "sdk-js" / "src"
PROGRAMS = SCHEMA / "node_modules" / ".bin"
# They start `node` by its name; the pinned one is beside our Python.
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}

# What an agent in JavaScript sees.
SDK_TYPES = ("Execution", "ToolCatalogue", "ToolResponse", *(spec.result.__name__ for spec in TOOLS.values()))

BANNER = "/* Generated from byleave.schema.json by `make schema`. Do not edit. */"

# What the generator says of every type, and the type it makes of the document itself.
NOISE = re.compile(
    r"/\*\*\n \* This interface was referenced by .*\n \* via the .*\n \*/\n"
    r"|( \*\n)? \* This interface was referenced by .*\n \* via the .*\n"
    r"|/\*\*\n \* Every word that travels .*\n \*/\nexport interface Byleave \{\n.*\n\}\n"
)


def as_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def typescript(schema_text: str) -> str:
    """Types for TypeScript, from the JSON Schema alone."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "byleave.schema.json"
        source.write_text(schema_text, encoding="utf-8")
        done = subprocess.run(
            [
                PROGRAMS / "json2ts",
                "--input", source,
                "--unreachableDefinitions",
                "--no-additionalProperties",
                "--bannerComment", BANNER,
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=ENVIRONMENT,
        )  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"json-schema-to-typescript failed:\n{done.stderr}")
    return NOISE.sub("", done.stdout)


def part(document: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The schema of these types, with what they refer to."""
    kept: dict[str, Any] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in kept:
            kept[name] = document["$defs"][name]
            waiting += re.findall(r'"#/\$defs/(\w+)"', json.dumps(kept[name]))
    return document | {"$defs": dict(sorted(kept.items()))}


def catalogue() -> str:
    """The six tools for an agent in JavaScript."""
    tools = {
        spec.script_name: {
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.params.model_json_schema(),
        }
        for spec in TOOLS.values()
    }
    return f"{CATALOGUE_HEAD}export const CATALOGUE = {json.dumps(tools, indent=2, ensure_ascii=False)} as const;\n"


CATALOGUE_HEAD = """/* Generated from protocol/tools.py by `make schema`. Do not edit. */

/** The six tools: name on the wire, description and JSON Schema of the parameters, by their names in JavaScript. */
"""


def engine_methods() -> str:
    """What an editor may ask its engine, and what it hears: each method with its types."""
    asked = [f'  "{name}": [{takes.__name__}, {gives.__name__}];' for name, (takes, gives) in REQUESTS.items()]
    told = [f'  "{name}": {word.__name__};' for name, word in NOTIFICATIONS.items()]
    return "\n".join(
        [
            "/** Requests to an editor's engine: what each takes and answers. */",
            "export interface EngineRequests {",
            *asked,
            "}",
            "/** Notifications of an editor's engine. */",
            "export interface EngineNotifications {",
            *told,
            "}",
            "",
        ]
    )


def compiles(types: str) -> bool:
    """Whether the types compile together with check.ts, which switches over every kind of event."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "types.ts").write_text(types, encoding="utf-8")
        (Path(directory) / "check.ts").write_text((SCHEMA / "check.ts").read_text(encoding="utf-8"), encoding="utf-8")
        done = subprocess.run(
            [PROGRAMS / "tsc", "--noEmit", "--strict", "--target", "es2022", "--module", "esnext",
             "--moduleResolution", "bundler", Path(directory) / "check.ts"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=ENVIRONMENT,
        )  # fmt: skip
    sys.stderr.write(done.stdout)
    return done.returncode == 0


def generated() -> dict[Path, str]:
    """Every generated file with the content it should have."""
    schema_text = as_json(wire_schema())
    return {
        SCHEMA / "byleave.schema.json": schema_text,
        SCHEMA / "openapi.json": as_json(openapi_document()),
        SCHEMA / "types.ts": typescript(schema_text) + engine_methods(),
        SDK / "protocol.ts": typescript(as_json(part(wire_schema(), SDK_TYPES))),
        SDK / "catalogue.ts": catalogue(),
        ROOT / "docs" / "settings.md": settings_page(),
        ROOT / "docs" / "cli.md": command_page(),
    }


def stale(files: dict[Path, str]) -> list[Path]:
    """The files that differ from what the models say; the first lines of each difference are printed."""
    found: list[Path] = []
    for path, content in files.items():
        committed = path.read_text(encoding="utf-8") if path.exists() else ""
        if committed != content:
            found.append(path)
            difference = difflib.unified_diff(committed.splitlines(), content.splitlines(), "committed", "models", n=1)
            sys.stderr.write("\n".join([str(path.relative_to(ROOT)), *list(difference)[:20], ""]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
    check = parser.parse_args().check
    files = generated()
    if check:
        found = stale(files)
        if found:
            sys.stderr.write(f"{len(found)} generated file(s) are stale.\nhint: make schema\n")
            return 1
    else:
        for path, content in files.items():
            path.write_text(content, encoding="utf-8")
    if not compiles(files[SCHEMA / "types.ts"]):
        sys.stderr.write("schema/types.ts does not compile with schema/check.ts.\nhint: does it miss a new event?\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
