"""Check that the lock files agree with pyproject.toml: offline, so that CI cannot fail for the network's reasons.

requirements.lock pins everything, requirements-client.lock the client alone, at the same versions;
requirements-release.lock pins the tools that look at a release.

Every direct requirement must be pinned to a version that fits it, every pin must carry hashes, and no address of a
registry may stand in the files. Writes nothing.
"""

import re
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*])?==(?P<version>[^ ;\\]+)")


CLIENT, EVERYTHING, RELEASE = "requirements-client.lock", "requirements.lock", "requirements-release.lock"


def wanted(file: str) -> list[Requirement]:
    """Requirements of pyproject.toml that a lock file pins; everything is extras and the groups of developers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    lines: list[str] = groups["release"] if file == RELEASE else list(project["project"]["dependencies"])
    if file == EVERYTHING:
        for extra in project["project"]["optional-dependencies"].values():
            lines += extra
        lines += groups["dev"] + groups["docs"]
    return [requirement for line in lines if (requirement := Requirement(line)).name != project["project"]["name"]]


def pinned(text: str) -> dict[str, str]:
    """Version by name. A pin is a line that starts without a space; its hashes follow, indented."""
    pins: dict[str, str] = {}
    for line in text.splitlines():
        found = PIN.match(line)
        if found:
            pins[canonicalize_name(found["name"])] = found["version"]
    return pins


def complaints() -> list[str]:
    everything = pinned((ROOT / EVERYTHING).read_text(encoding="utf-8"))
    client = pinned((ROOT / CLIENT).read_text(encoding="utf-8"))
    said = [f"{name!r} is {version} for the client alone." for name, version in client.items() - everything.items()]
    return said + [one for file in (EVERYTHING, CLIENT, RELEASE) for one in _complaints(file)]


def _complaints(file: str) -> list[str]:
    text = (ROOT / file).read_text(encoding="utf-8")
    pins = pinned(text)
    said: list[str] = []
    for requirement in wanted(file):
        version = pins.get(canonicalize_name(requirement.name))
        if version is None:
            said.append(f"{requirement.name!r} is required but not pinned in {file}.")
        elif not requirement.specifier.contains(version, prereleases=True):
            said.append(f"{requirement.name!r} is pinned to {version}, but pyproject.toml asks for {requirement}.")
    blocks = re.split(r"\n(?=\S)", text.strip())
    said += [f"{block.split()[0]!r} has no hash." for block in blocks if "--hash=" not in block]
    if re.search(r"https?://|--(?:extra-)?index-url|--find-links", text):
        said.append(f"An address stands in {file}.")
    return said


def main() -> int:
    said = complaints()
    if said:
        sys.stderr.write("\n".join([*said, "hint: make lock", ""]))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
