"""Subcommands with several names: who forbids `npm install` means `npm i` too.

Only for rules that tighten. A name that no table knows is doubtful anyway and needs no entry here.
"""

_GROUPS: dict[str, tuple[str, ...]] = {
    "npm": (
        "install i in ins inst insta instal isnt isnta isntal isntall add it install-test",
        "ci clean-install ic install-clean isntall-clean cit install-ci-test clean-install-test",
        "test t tst it install-test cit install-ci-test clean-install-test",
        "run run-script rum urn",
        "exec x npx",
        "uninstall unlink remove rm r un",
        "update up upgrade udpate",
        "list ls ll la",
        "view v info show",
        "init create innit",
        "link ln",
        "rebuild rb",
        "login adduser add-user",
        "owner author",
        "token tokens",
        "dist-tag dist-tags",
        "version verison",
        "search s se find",
        "explain why",
        "org ogr",
        "dedupe ddp find-dupes",
        "config c",
    ),
    "git": ("add stage", "blame annotate", "init init-db"),
    "cargo": ("build b", "check c", "doc d", "run r", "test t", "remove rm"),
}
_BY_NAME = {
    (command, group.split()[0]): tuple(group.split()) for command, groups in _GROUPS.items() for group in groups
}


def all_names(command: str, sub: str) -> tuple[str, ...]:
    """A subcommand under every name it has; just the one it was given when it has no other."""
    found = _BY_NAME.get((command, sub))
    if found is None:  # any of its names stands for all, but only where it means nothing else besides
        found = next((names for (name, _), names in _BY_NAME.items() if name == command and sub in names), (sub,))
    return found
