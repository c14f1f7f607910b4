"""`python -m bench.asking`: how often a person would be asked, over what real agents did in 107 tasks.

Replays `cases/traces.jsonl.gz` through the gate and the grants: with no memory, remembering exact calls, and with the
grants that a sensible person gives from the product's own suggestions. Contents are not in the traces, so a file's
digest is that of its name and of how often it was written. Judges only; runs nothing.
"""

import argparse
import hashlib
import json
import posixpath
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from byleave.gate import DEFAULT_COMMANDS, Gate, GateRules, Judgement
from byleave.gate.commands.calls import call_of
from byleave.gate.commands.tables import load_tables
from byleave.gate.policy.grants import covers, leaves_unseen, suggest
from byleave.protocol.grants import GrantRule, Suggestion
from byleave.protocol.verdicts import VerdictLevel

from .traces import Action, Call, Task, tasks

RESULTS = Path(__file__).resolve().parent / "results" / "local"
WANTED = 8
OFF_BY_DEFAULT = frozenset(
    ["sed", "sort", "diff", "cut", "uniq", "tr", "stat", "file", "tree", "du", "mkdir", "touch", "cp", "mv", "rm"]
) | frozenset(["pytest", "make", "cargo", "go", "pip", "curl", "wget"])
Chooser = Callable[[list[Suggestion]], Suggestion | None]


def second_narrowest(offered: list[Suggestion]) -> Suggestion | None:
    """The step after the exact one: files of this kind here, `git commit`, this script, the tests."""
    return offered[min(1, len(offered) - 1)] if offered else None


def directory_at_once(offered: list[Suggestion]) -> Suggestion | None:
    """As above, but for writes at once all below the first directory, as someone who knows the task does."""
    if offered and offered[0].rule.tool == "write_file":
        return offered[-1]
    return second_narrowest(offered)


def widest(offered: list[Suggestion]) -> Suggestion | None:
    """The widest of what is offered, all of git too."""
    return offered[-1] if offered else None


def no_one(offered: list[Suggestion]) -> Suggestion | None:
    return None


@dataclass(frozen=True)
class Way:
    """One way of asking."""

    name: str
    chooser: Chooser = no_one
    remembers: Callable[[Judgement, Mapping[str, Any]], object] | None = None
    """Answers that cover every further call with the same key; for comparison only."""
    shows_unseen: bool = False
    """Whether what was written without a question must be shown before code of the workspace runs without one."""
    reads_free: bool = True
    tables_on: bool = False


def _exact(judged: Judgement, params: Mapping[str, Any]) -> object:
    return judged.tool_name, json.dumps({**params, "content": None}, sort_keys=True)


def _kind(judged: Judgement, params: Mapping[str, Any]) -> object:
    return judged.tool_name, params.get("command")


WAYS = (
    Way("every call", reads_free=False),
    Way("reads free, no grants"),
    Way("remember exact calls", remembers=_exact),
    Way("remember the kind (unsafe)", remembers=_kind),
    Way("grants: second narrowest", second_narrowest),
    Way("grants: and first directory", directory_at_once),
    Way("grants: widest offered", widest),
    Way("grants: first dir, unseen shown", directory_at_once, shows_unseen=True),
    Way("tables on: no grants", tables_on=True),
    Way("tables on: grants, first dir", directory_at_once, tables_on=True),
)
SENSIBLE = WAYS[5]


@dataclass
class Replay:
    """One task under one way of asking: the session's grants and what is known of its files."""

    task: Task
    way: Way
    gate: Gate
    written: Counter[str] = field(default_factory=Counter[str])
    grants: list[GrantRule] = field(default_factory=list[GrantRule])
    answered: set[object] = field(default_factory=set[object])
    unseen: set[str] = field(default_factory=set[str])
    programs: set[object] = field(default_factory=set[object])
    """Distinct program texts that were run: each must be seen once by someone."""
    names: set[object] = field(default_factory=set[object])
    """The same if no script had ever been changed: surely not too many."""
    counts: Counter[str] = field(default_factory=Counter[str])
    asked_in: Counter[int] = field(default_factory=Counter[int])
    asked_about: Counter[str] = field(default_factory=Counter[str])
    given: Counter[str] = field(default_factory=Counter[str])
    refused_for: Counter[str] = field(default_factory=Counter[str])
    spoken_of: frozenset[str] | None = None

    def run(self) -> "Replay":
        for action in self.task.actions:
            self.asked_in[action.turn] += 0
            calls = action.calls or (action.further if self.way.tables_on else ())
            if not calls:
                self.counts["unmappable"] += 1
                self.refused_for[f"no form: {(action.unmappable or 'nothing to call').partition(';')[0]}"] += 1
                self._may_have_changed(action)
            for call in calls:
                self._call(action, call)
        return self

    def _call(self, action: Action, call: Call) -> None:
        params = dict(call.params)
        path = params.get("path")
        if call.tool_name == "write_file" and path:
            params["content"] = f"{path} {self.written[self._relative(path)] + 1}"
        judged = self.gate.judge(call.tool_name, params, workspace=self.task.workspace)
        verdict = judged.verdict
        if verdict.refused:
            self.counts["refused"] += 1
            self.refused_for[verdict.findings[0].rule] += 1
            return
        if verdict.level is VerdictLevel.LOW and self.way.reads_free:
            self.counts["ran"] += 1
            return
        self.counts["ran" if self._is_covered(judged, params) else "asked"] += 1
        if self.counts["asked"] > sum(self.asked_in.values()):
            self.asked_in[action.turn] += 1
            self.asked_about[_about(judged)] += 1
        if judged.tool_name == "write_file":
            self.written[self._relative(params["path"])] += 1

    def _is_covered(self, judged: Judgement, params: Mapping[str, Any]) -> bool:
        """Whether nobody is asked; where someone is, the answer is yes, perhaps with a grant."""
        assert judged.params is not None
        verdict, bound = judged.verdict, self._bound(judged)
        self._note_program(judged, bound)
        if self.way.remembers is not None:
            key = self.way.remembers(judged, params)
            known = key in self.answered
            self.answered.add(key)
            return known
        call = call_of(judged.tool_name, judged.params, judged.command, self.task.workspace)
        unseen = self.unseen if self.way.shows_unseen else ()
        facts: dict[str, Any] = {
            "level": verdict.level,
            "always_asks": verdict.always_asks,
            "network": verdict.network,
            "bound": bound,
            "unseen": unseen,
        }
        if any(covers(rule, call, **facts) for rule in self.grants):
            self.unseen.update(leaves_unseen(call))
            return True
        if judged.tool_name == "write_file":
            self.unseen.difference_update(leaves_unseen(call))
        elif judged.params.get("command") in ("python", "python3", "node", "npm"):
            self.unseen.clear()  # a question about running code shows what changed since the last
        chosen = self.way.chooser(suggest(judged.tool_name, judged.params, verdict, bound, self.task.workspace))
        if chosen is not None and chosen.rule not in self.grants:
            self.grants.append(chosen.rule)
            self.given[_about(judged)] += 1
        return False

    def _bound(self, judged: Judgement) -> dict[str, str]:
        """The files that would run, with digests."""
        return {path: self._digest(path, judged) for path in judged.verdict.runs}

    def _digest(self, path: str, judged: Judgement) -> str:
        """Of the name and the number of writes; `missing` where nothing in the task speaks of such a file."""
        directory, _, name = path.rpartition("/")
        spoken_of = self._relative_names()
        there = path in self.written or path in spoken_of or path in map(self._relative, (judged.params or {})["args"])
        part_of_package = name.startswith("__") and any(one.startswith(f"{directory}/") for one in spoken_of)
        if not (there or part_of_package or name == "package.json"):
            return "missing"
        return hashlib.sha256(f"{path} {self.written[path]}".encode()).hexdigest()

    def _relative_names(self) -> frozenset[str]:
        if self.spoken_of is None:
            calls = [call for action in self.task.actions for call in action.calls if "path" in call.params]
            self.spoken_of = frozenset(self._relative(call.params["path"]) for call in calls)
        return self.spoken_of

    def _note_program(self, judged: Judgement, bound: Mapping[str, str]) -> None:
        params = judged.params or {}
        if params.get("command") not in ("python", "python3", "node"):
            return
        args: list[str] = params["args"]
        if {"-c", "-e"} & set(args):
            self.programs.add(tuple(args))
            self.names.add(tuple(args))
        elif "-m" not in args:
            self.programs.update(bound.items())
            self.names.update(bound)

    def _relative(self, path: str) -> str:
        return posixpath.relpath(posixpath.join(self.task.workspace, path), self.task.workspace)

    def _may_have_changed(self, action: Action) -> None:
        """A step that has no form here may have written any file that its line names."""
        if action.effect == "read":
            return
        for path in list(self.written):
            if posixpath.basename(path) in action.line:
                self.written[path] += 1


def _about(judged: Judgement) -> str:
    """The kind of a call, for the list of what is asked about."""
    params, level = judged.params or {}, judged.verdict.level.value
    if judged.tool_name == "write_file":
        return f"{level} write {posixpath.splitext(params['path'])[1] or 'without ending'}"
    if judged.tool_name != "execute_command":
        return f"{level} {judged.tool_name}"
    command, args = params["command"].replace("python3", "python"), params["args"]
    first = next(iter(args), "")
    if command in ("python", "node") and not first.startswith("-"):
        return f"{level} {command} a script"
    return f"{level} {' '.join([command, *args[: 2 if first == '-m' else 1]])[:40]}"


def replay(way: Way, traces: Iterable[Task]) -> list[Replay]:
    on = DEFAULT_COMMANDS | (OFF_BY_DEFAULT & load_tables().keys()) if way.tables_on else DEFAULT_COMMANDS
    gate = Gate(GateRules(allowed_commands=frozenset(on)))
    return [Replay(task, way, gate).run() for task in traces]


def numbers(replays: list[Replay]) -> dict[str, float]:
    """Medians and totals of one way over some tasks."""
    asked = [one.counts["asked"] for one in replays]
    prompts = [count for one in replays for count in one.asked_in.values()]
    totals: Counter[str] = sum((one.counts for one in replays), Counter[str]())
    return {
        "tasks": len(replays),
        "asked_per_task": statistics.median(asked),
        "asked_per_task_p90": sorted(asked)[int(0.9 * (len(asked) - 1))],
        "asked_per_prompt": statistics.median(prompts),
        "asked_per_prompt_mean": statistics.fmean(prompts),
        "programs_per_task": statistics.median(len(one.programs) for one in replays),
        "names_per_task": statistics.median(len(one.names) for one in replays),
        **{name: totals[name] for name in ("ran", "asked", "refused", "unmappable")},
    }


GROUPS: dict[str, Callable[[Task], bool]] = {
    "all": lambda task: True,
    "benchmarks": lambda task: task.is_benchmark,
    "conversations": lambda task: not task.is_benchmark,
}


def measure(traces: list[Task]) -> dict[str, Any]:
    """Every way over every group that has tasks, and what is left to ask under the sensible one."""
    groups = {name: belongs for name, belongs in GROUPS.items() if any(map(belongs, traces))}
    for source in sorted({task.source for task in traces}):
        groups[source] = lambda task, source=source: task.source == source
    found: dict[str, Any] = {"steps": sum(len(task.actions) for task in traces), "ways": {}, "left": {}, "given": {}}
    for way in WAYS:
        replays = replay(way, traces)
        found["ways"][way.name] = {
            name: numbers([one for one in replays if belongs(one.task)]) for name, belongs in groups.items()
        }
        if way.chooser is not no_one:
            found["left"][way.name] = _most(one.asked_about for one in replays)
            found["given"][way.name] = _most(one.given for one in replays)
        found["not_run"] = _most(one.refused_for for one in replays) if way is SENSIBLE else found.get("not_run")
    return found


def _most(counts: Iterable[Counter[str]]) -> dict[str, int]:
    return dict(sum(counts, Counter[str]()).most_common(12))


COLUMNS: tuple[tuple[str, str, str, int], ...] = (
    ("all", "all", "asked_per_task", 1),
    ("p90", "all", "asked_per_task_p90", 0),
    ("prompt", "all", "asked_per_prompt", 1),
    ("mean", "all", "asked_per_prompt_mean", 1),
    ("benchm.", "benchmarks", "asked_per_task", 1),
    ("conv.", "conversations", "asked_per_task", 1),
    ("asked", "all", "asked", 0),
    ("ran", "all", "ran", 0),
    ("refused", "all", "refused", 0),
    ("no form", "all", "unmappable", 0),
)


def table(found: Mapping[str, Any]) -> str:
    every = found["ways"][SENSIBLE.name]
    groups = ("all", "benchmarks", "conversations")
    counted = ", ".join(f"{every[name]['tasks']} {name}" for name in groups)
    floor = ", ".join(f"{every[name]['programs_per_task']:.1f} {name}" for name in groups)
    surely = ", ".join(f"{every[name]['names_per_task']:.1f} {name}" for name in groups)
    lines = [
        "",
        f"Questions to a person; tasks: {counted}. Medians per task (all, p90, benchmarks, conversations),",
        "median and mean per prompt of the person, then totals of calls; `no form`: steps the tools cannot express.",
        f"{'':<33}" + "".join(f"{title:>9}" for title, *_ in COLUMNS),
    ]
    for name, numbers_of in found["ways"].items():
        row = (f"{numbers_of[group][key]:>9.{digits}f}" for _, group, key, digits in COLUMNS)
        lines.append(f"{name:<33}" + "".join(row))
    lines += [
        f"Distinct program texts that were run, median per task: {floor}. Each must be seen once: the floor.",
        f"Contents are not in the traces; if no script was ever changed by a rewrite, it would be: {surely}.",
        f"Wanted: at most {WANTED} a benchmark task, with no grant that could run code a person has not seen.",
        *_list(f"Still asked about, {SENSIBLE.name}:", found["left"][SENSIBLE.name]),
        *_list("Not run, and why:", found["not_run"]),
        "",
    ]
    return "\n".join(lines)


def _list(title: str, counts: Mapping[str, int]) -> list[str]:
    return ["", title, *(f"  {count:>5}  {kind}" for kind, count in counts.items())]


def keep(found: Mapping[str, Any]) -> Path:
    moment = datetime.now(UTC)
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"asking-{moment:%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps({"at": moment.isoformat(), **found}), encoding="utf-8")
    return path


def report() -> int:
    """Measure, keep and print."""
    found = measure(tasks())
    kept = keep(found)
    sys.stdout.write(table(found))
    sys.stderr.write(f"kept in {kept.relative_to(Path.cwd()) if kept.is_relative_to(Path.cwd()) else kept}\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.asking", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="all numbers on the standard output, and keep none")
    parser.add_argument("--source", help="with --json: only tasks of this repository")
    options = parser.parse_args()
    if not options.json:
        return report()
    chosen = [task for task in tasks() if options.source in (None, task.source)]
    sys.stdout.write(json.dumps(measure(chosen)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
