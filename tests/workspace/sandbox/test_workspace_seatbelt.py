"""The profile for macOS, as text. Seatbelt itself was never run by its authors: only what can be read is tested."""

import os
from pathlib import Path

import pytest

from byleave.workspace.sandbox.landlock import LandlockSandbox
from byleave.workspace.sandbox.protected_names import PROTECTED
from byleave.workspace.sandbox.sandbox import BoundFile
from byleave.workspace.sandbox.seatbelt import Profile, SeatbeltSandbox, profile_for, working_seatbelt
from harness.lines import understood
from harness.place import Place

pytestmark = pytest.mark.promise("T3", "S")
PYTHON = understood(["python3"])
PRIVATE = Path("/private/tmp/byleave-x")


def _rules(profile: Profile) -> list[str]:
    return profile.text.splitlines()


def _paths(profile: Profile, rule: str) -> list[str]:
    """The paths a rule speaks of."""
    return [value for key, value in profile.parameters.items() if f'(param "{key}")' in rule]


def _rule(profile: Profile, start: str, name: str) -> str:
    return next(line for line in _rules(profile) if line.startswith(start) and f'"{name}_0"' in line)


def test_everything_is_denied_first(place: Place) -> None:
    profile, _ = profile_for(place.root, PRIVATE, PYTHON, network=False)
    assert _rules(profile)[:2] == ["(version 1)", "(deny default)"]
    assert not any(line.startswith("(allow default") for line in _rules(profile))


def test_only_the_workspace_and_a_private_place_are_writable(place: Place) -> None:
    profile, _ = profile_for(place.root, PRIVATE, PYTHON, network=False)
    writable = [
        path for line in _rules(profile) if line.startswith("(allow file-write* ") for path in _paths(profile, line)
    ]
    assert sorted(writable) == sorted([str(PRIVATE), str(place.root)])
    reader, protected = profile_for(place.root, PRIVATE, understood(["/bin/cat"]), network=False)
    assert _paths(reader, _rule(reader, "(allow file-write* ", "PRIVATE")) == [str(PRIVATE)]
    assert (str(place.root) in _paths(reader, _rule(reader, "(allow file-read* ", "OWN")), protected) == (True, ["."])
    assert "WORKSPACE_0" not in reader.parameters


def test_protected_and_forbidden_names_are_denied_after_the_workspace_is_allowed(place: Place) -> None:
    profile, protected = profile_for(place.root, PRIVATE, PYTHON, network=False, masked=["secrets"])
    order = [
        _rules(profile).index(_rule(profile, start, name))
        for start, name in (
            ("(allow file-write* ", "WORKSPACE"),
            ("(deny file-write* ", "PROTECTED"),
            ("(deny file-read* file-write* ", "MASKED"),
        )
    ]
    assert order == sorted(order)
    denied = _paths(profile, _rule(profile, "(deny file-write* ", "PROTECTED"))
    assert denied == [str(place.root / name) for name in PROTECTED]
    assert tuple(protected) == PROTECTED
    assert _paths(profile, _rule(profile, "(deny file-read* ", "MASKED")) == [str(place.root / "secrets")]


def test_git_may_change_its_repository_but_not_what_runs_in_it(place: Place) -> None:
    profile, protected = profile_for(place.root, PRIVATE, understood(["/usr/bin/git", "commit"]), network=False)
    denied = _paths(profile, _rule(profile, "(deny file-write* ", "PROTECTED"))
    assert str(place.root / ".git") not in denied
    assert {str(place.root / ".git/hooks"), str(place.root / ".git/config"), str(place.root / ".vscode")} <= set(denied)
    assert ".git/hooks" in protected


def test_network_is_there_only_when_granted(place: Place) -> None:
    assert "network" not in profile_for(place.root, PRIVATE, PYTHON, network=False)[0].text
    assert "(allow network-outbound" in profile_for(place.root, PRIVATE, PYTHON, network=True)[0].text


def test_paths_never_become_part_of_the_profile(tmp_path: Path) -> None:
    odd = tmp_path / 'a") (allow default) ; "\n=x'
    odd.mkdir()
    profile, _ = profile_for(odd, PRIVATE, PYTHON, network=True, masked=['"))(allow default)'])
    assert "allow default" not in profile.text
    assert str(tmp_path) not in profile.text
    arguments = profile.arguments()
    assert arguments[:2] == ["-p", profile.text]
    assert f"WORKSPACE_0={odd}" in arguments
    assert arguments[2::2] == ["-D"] * len(profile.parameters)
    assert profile.text.count("(") == profile.text.count(")")


def test_rule_without_paths_is_left_out(place: Place) -> None:
    profile = Profile()
    profile.deny("file-read*", [], "NONE")
    assert profile == Profile()


def test_launch_says_that_it_was_never_tested(place: Place) -> None:
    sandbox = SeatbeltSandbox(place.root, files={".gitconfig": "[user]\n"})
    place.file("secret")
    with sandbox.launch(
        ["/bin/true", "x"],
        understood=understood(["true", "x"]),
        bound_files=[BoundFile("run.py", 0, 0o600)],
        masked=["secret"],
    ) as launch:
        assert launch.argv[:2] == ["/usr/bin/sandbox-exec", "-p"]
        assert launch.argv[-2:] == ["/bin/true", "x"]
        home = Path(launch.env["HOME"])
        assert (home / ".gitconfig").read_text() == "[user]\n"
        assert (launch.isolation.backend, launch.isolation.pidns, launch.isolation.masked) == (
            "seatbelt",
            False,
            ("secret",),
        )
        assert any("never tested" in words for words in launch.isolation.degraded)
        assert any("run.py was checked and watched" in words for words in launch.isolation.degraded)
        assert any("run as root" in words for words in launch.isolation.degraded) is (os.geteuid() == 0)
    assert not home.exists()


def test_system_without_it_says_so(place: Place) -> None:
    assert "Seatbelt did not start" in str(working_seatbelt(place.root))
    assert not isinstance(working_seatbelt(place.root), LandlockSandbox)
