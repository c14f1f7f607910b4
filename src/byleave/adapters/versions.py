"""Warns when a framework is not of the versions that its adapter is tested with.

The range is the one of the extra in our own package's metadata, so it is stated once. An adapter warns before it
imports the framework: names that another version lacks then fail below a line that says why.
"""

import re
import warnings
from importlib.metadata import PackageNotFoundError, requires, version

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*)")
_BOUND = re.compile(r"(>=|<)\s*([0-9.]+)")


class UntestedVersion(UserWarning):
    """A framework's version is outside the range that is tested."""


def warn_if_untested(distribution: str) -> None:
    """Warn if this distribution is installed in a version that is not tested."""
    try:
        installed, bounds = version(distribution), _range_of(distribution)
    except PackageNotFoundError:
        return  # its import says so, or an uninstalled checkout of ours has no metadata
    if not all(_fits(installed, *bound) for bound in _BOUND.findall(bounds)):
        warnings.warn(
            f"Byleave is tested with {distribution} {bounds}; {installed} is installed. "
            f"hint: pip install '{distribution}{bounds}'",
            UntestedVersion,
            stacklevel=3,
        )


def _range_of(distribution: str) -> str:
    for requirement in requires("byleave") or ():
        named = _REQUIREMENT.match(requirement)
        if named is not None and named[1] == distribution and named[2].strip():
            return named[2].strip()
    return ""


def _fits(installed: str, operator: str, bound: str) -> bool:
    have, wanted = _numbers(installed), _numbers(bound)
    return have >= wanted if operator == ">=" else have < wanted


def _numbers(text: str) -> tuple[int, ...]:
    """The numbers a version begins with, without zeros at the end: 2, 2.0 and 2.0rc1 are the same here."""
    numbers = [int(part) for part in re.match(r"\d+(?:\.\d+)*", text)[0].split(".")]  # type: ignore[index]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
