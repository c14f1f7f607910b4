"""The sandbox on macOS: Seatbelt, by `sandbox-exec`. Written from documentation and never run by its authors.

The profile denies everything, then allows reading the system, reading and writing the workspace and a private HOME, and
the network if granted. Protected names and denied paths are denied after that: the last matching rule counts. Paths are
parameters and never part of the profile's text, so no file name can inject a rule.
"""

import os
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from byleave.gate import UNKNOWN_COMMAND, UnderstoodCommand, understand

from .environment import clean_environment, usable_toolchains
from .protected_names import GIT_PROTECTED, PROTECTED
from .sandbox import NO_FILES, NOTHING_WITHHELD, BoundFile, Isolation, Launch, Withheld, tried_out

_PROGRAM = "/usr/bin/sandbox-exec"
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/opt/homebrew", "/System", "/Library", "/private/var/db/timezone"),
    *("/private/etc/hosts", "/private/etc/passwd", "/private/etc/group", "/private/etc/localtime"),
    "/private/etc/ssl/cert.pem",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_BASE = """(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-write-data (literal "/dev/null"))
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
"""
_NETWORK = """(allow network-outbound network-inbound network-bind (remote ip) (local ip))
(allow network-outbound (literal "/private/var/run/mDNSResponder"))
(allow mach-lookup (global-name "com.apple.trustd.agent") (global-name "com.apple.SystemConfiguration.configd"))
(allow file-read* (literal "/private/etc/resolv.conf") (literal "/private/var/run/resolv.conf"))
"""

_UNTESTED = "Seatbelt was never tested by its authors: do not rely on it."
_TREE = "There is no process namespace: what leaves the command's process group may outlive it."
_UNLIMITED = "Memory, processes and CPU time are not limited."
_LINKS = (
    "A protected name that is a link is protected as a name, and what it leads to only where that is protected too."
)


@dataclass(slots=True)
class Profile:
    """The text of a profile, and its parameters."""

    text: str = _BASE
    parameters: dict[str, str] = field(default_factory=dict[str, str])

    def allow(self, operations: str, paths: Sequence[str], name: str) -> None:
        self._rule("allow", operations, paths, name)

    def deny(self, operations: str, paths: Sequence[str], name: str) -> None:
        self._rule("deny", operations, paths, name)

    def _rule(self, verb: str, operations: str, paths: Sequence[str], name: str) -> None:
        """Add one rule for `paths` and everything in them. Without paths add none: it would match everything."""
        if paths:
            keys = {f"{name}_{number}": path for number, path in enumerate(paths)}
            self.parameters.update(keys)
            named = " ".join(f'(subpath (param "{key}"))' for key in keys)
            self.text += f"({verb} {operations} {named})\n"

    def arguments(self) -> list[str]:
        given = [argument for key, value in self.parameters.items() for argument in ("-D", f"{key}={value}")]
        return ["-p", self.text, *given]


def profile_for(
    root: Path, private: Path, command: UnderstoodCommand, *, network: bool, masked: Sequence[str] = ()
) -> tuple[Profile, list[str]]:
    """The profile for one command, and the names it protects."""
    profile = Profile()
    toolchains = [path for chain in usable_toolchains(root) for path in chain.parts]
    profile.allow("file-read*", [*_SYSTEM, *_DEVICES, *toolchains], "SYSTEM")
    profile.allow("file-read*", [str(root), str(private)], "OWN")
    profile.allow("file-write*", [str(private)], "PRIVATE")
    protected = ["."]
    if not command.only_reads:
        profile.allow("file-write*", [str(root)], "WORKSPACE")
        is_git = command.is_git
        protected = [*(GIT_PROTECTED if is_git else ()), *(n for n in PROTECTED if not (is_git and n == ".git"))]
        profile.deny("file-write*", [str(root / name) for name in protected], "PROTECTED")
    profile.deny("file-read* file-write*", [str(root / path) for path in masked], "MASKED")
    if network:
        profile.text += _NETWORK
    return profile, protected


class SeatbeltSandbox:
    """Commands of one workspace in Seatbelt. Untested."""

    def __init__(self, root: Path, *, files: Mapping[str, str] = NO_FILES) -> None:
        self._root = root
        self._files = files

    def isolation(self, *, network: bool = False) -> Isolation:
        is_root = os.geteuid() == 0
        return Isolation(
            isolated=True,
            backend="seatbelt",
            fs="allowlist",
            net="host" if network else "none",
            pidns=False,
            runs_as="root" if is_root else "user",
            degraded=(_UNTESTED, _TREE, _UNLIMITED, _LINKS, *(["Commands run as root."] if is_root else [])),
        )

    def probe(self) -> str | None:
        """Run /bin/true as a command would be run; None if it worked, else the reason."""
        return tried_out(self.launch(["/bin/true"], understood=understand("true", ())), "Seatbelt")

    @contextmanager
    def launch(
        self,
        argv: list[str],
        *,
        understood: UnderstoodCommand = UNKNOWN_COMMAND,
        network: bool = False,
        bound_files: Sequence[BoundFile] = (),
        masked: Sequence[str] = (),
        withheld: Withheld = NOTHING_WITHHELD,
    ) -> Generator[Launch]:
        private = Path(tempfile.mkdtemp(prefix="byleave-")).resolve()
        try:
            for name, content in self._files.items():
                (private / name).write_text(content, encoding="utf-8")
            profile, protected = profile_for(
                self._root, private, understood, network=network, masked=[*masked, *withheld.secrets]
            )
            base = self.isolation(network=network)
            watched = [f"{file.path} was checked and watched, not covered." for file in bound_files]
            yield Launch(
                argv=[_PROGRAM, *profile.arguments(), *argv],
                env=clean_environment(self._root, str(private)) | {"TMPDIR": str(private)},
                cwd=str(self._root),
                isolation=base.model_copy(
                    update={
                        "protected": tuple(protected),
                        "masked": tuple(masked),
                        "left_out": withheld.secrets,
                        "degraded": (*base.degraded, *watched),
                    }
                ),
            )
        finally:
            shutil.rmtree(private, ignore_errors=True)


def working_seatbelt(root: Path, *, files: Mapping[str, str] = NO_FILES) -> SeatbeltSandbox | str:
    """A Seatbelt sandbox that works here, or the reason why none does."""
    sandbox = SeatbeltSandbox(root, files=files)
    return sandbox.probe() or sandbox
