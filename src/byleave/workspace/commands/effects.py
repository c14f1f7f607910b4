"""Effects of a command, reported with its result: the files it changed, and which of them run later.

`recorded` runs a command between two snapshots of the workspace; a command that only reads needs none. The snapshot
after a cancelled or timed-out command is taken before the call ends. If the undo store fails, the command still runs:
the result says so, and the changes come from the files' stamps. `RUNS_LATER` explains files that the gate's
`trusted_name` covers only in general. Nothing is decided here.
"""

import asyncio
import fnmatch
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Literal, TypeVar

from byleave.gate import UnderstoodCommand, mask_text, trusted_name
from byleave.protocol.tools import MAX_CHANGES, ExecuteCommandResult, FileChange
from byleave.workspace.paths import visible
from byleave.workspace.stopping import outlast, unfinished
from byleave.workspace.undo.recorder import Running, UndoRecorder
from byleave.workspace.undo.snapshots import Change, Tree, changes_between

T = TypeVar("T")

_MAX_WARNINGS = 20
_MAX_SUMMARY = 200

RUNS_LATER: tuple[tuple[str, str], ...] = (
    ("*.git/hooks/*", "git runs it at the next commit, checkout, merge or push in that repository."),
    ("*.git/config*", "git obeys it at its next use in that repository, and starts the programs it names."),
    ("*/.git", "git takes that directory for a repository of its own from now on, with its own settings and hooks."),
    (
        "package.json",
        "npm runs the scripts it names: some at the next `npm install`, others at `npm test` or `npm run`.",
    ),
    (
        "package.json5 package.yaml .pnpmfile.* pnpmfile.cjs",
        "pnpm runs it, or the scripts it names, at the next install, test or run.",
    ),
    (".npmrc .yarnrc .yarnrc.yml", "npm or yarn obeys it at its next use; it says where packages come from."),
    ("Makefile GNUmakefile *.mk", "make runs the commands in it the next time somebody calls `make`."),
    ("justfile .justfile *.just", "just runs the commands in it the next time somebody calls `just`."),
    ("Taskfile*.y*ml", "Task runs the commands in it the next time somebody calls `task`."),
    (
        "mise*.toml .mise*.toml .rtx.toml */.mise/tasks/* */mise-tasks/*",
        "mise runs the commands in it, once somebody has trusted it: some as soon as a shell enters the directory.",
    ),
    ("Procfile Procfile.*", "Whoever starts the app starts the programs that this Procfile names."),
    ("Rakefile *.rake", "rake runs it the next time somebody calls `rake`."),
    ("Gemfile *.gemspec", "bundler runs it, as a Ruby program, at the next `bundle` command."),
    (
        "Guardfile Capfile Berksfile Fastfile Dangerfile Thorfile Puppetfile Appraisals config.ru .rspec .simplecov",
        "A Ruby tool runs or obeys it the next time somebody calls the tool.",
    ),
    ("conftest.py", "pytest runs it at the start of the next test run, whichever tests are chosen."),
    ("setup.py", "pip runs it at the next install or build of this project."),
    ("pyproject.toml setup.cfg", "pip, build and test tools obey it at the next install, build or test run."),
    ("pytest.toml .pytest.toml tox.toml", "pytest or tox obeys it, and loads what it names, at the next test run."),
    ("hatch_build.py hatch.toml", "hatch runs it, or what it names, at the next install or build of this project."),
    ("conanfile.py", "conan runs it, as a Python program, at the next install or build."),
    ("*.pth", "Python runs lines in it each time it starts, where it lies among the installed packages."),
    ("build.rs", "cargo runs it at the next build."),
    (
        "Cargo.toml */.cargo/config */.cargo/config.toml",
        "cargo obeys it, and starts the programs it names, at the next build.",
    ),
    ("magefile.go magefiles/*.go", "mage runs it the next time somebody calls `mage`."),
    (".goreleaser.y*ml", "goreleaser runs the commands in it at the next release."),
    (
        "*.gradle *.gradle.kts gradlew gradlew.bat gradle-wrapper.* libs.versions.toml */buildSrc/*",
        "gradle runs it, or fetches and runs what it names, at the next build.",
    ),
    ("pom.xml mvnw mvnw.cmd */.mvn/*", "maven runs it, or fetches and runs what it names, at the next build."),
    ("*.sbt build.sc build.mill */project/*.scala", "Scala's build tool runs it at the next build."),
    (".bazelrc *.bzl */tools/bazel", "bazel runs or obeys it at the next build."),
    (
        "BUCK .buckconfig pants.toml xmake.lua premake*.lua Kbuild build.boot shadow-cljs.edn bb.edn cabal.project "
        "*.nimble build.cake",
        "The tool it belongs to runs or obeys it at the next build.",
    ),
    ("configure.ac autogen.sh", "It makes the `configure` that runs before the next build."),
    (
        "gatsby-node.* gatsby-config.* gulpfile.* Gruntfile.* Jakefile Jakefile.* plopfile.* brunch-config.* "
        "jest.config.json babel.config.json .taprc .remarkrc.* .release-it.* release-it.json .np-config.*",
        "A tool of Node runs it, or the modules it names, at the next build, test or release.",
    ),
    (
        "phpunit.xml phpunit.xml.dist .php-cs-fixer.* rector.php RoboFile.php",
        "A tool of PHP runs it, or the files it names, the next time somebody calls the tool.",
    ),
    (
        "Dockerfile Dockerfile.* *.Dockerfile Containerfile Containerfile.* docker-bake.hcl docker-bake.json",
        "docker runs the commands in it at the next image build.",
    ),
    ("docker-compose* compose.yml compose.yaml", "docker starts what it names at the next `docker compose up`."),
    ("*.vscode/tasks.json", "VS Code runs the tasks in it, some of them as soon as the folder is opened."),
    ("*.vscode/launch.json", "VS Code starts the program it names at the next run or debug session."),
    (
        "*/.codesandbox/* .stackblitzrc .devcontainer.json */.devcontainer/*",
        "An editor that opens the project in a container or online starts the programs it names.",
    ),
    (".lvimrc .local.vimrc */.vim/*", "An editor runs it when a file of the project is opened, where that is set up."),
    ("devenv.* devbox.json guix.scm", "The next shell that is opened with it runs or installs what it names."),
    (".tmuxinator.y*ml .tmuxp.*", "tmux starts the programs it names the next time the session is opened."),
    ("supervisord.conf", "A supervisor starts the programs it names at its next start."),
    (".envrc", "direnv runs it when a shell enters the directory, once somebody has allowed it."),
    (".pre-commit-config.y*ml", "pre-commit runs the programs it names at the next commit."),
    ("*.husky/*", "git runs it at the next commit or push, through husky."),
    (
        "lefthook*.y*ml lefthook*.toml lefthook*.json .lefthook*.y*ml .lefthook*.toml .lefthook*.json */.lefthook/* "
        "*/.lefthook-local/* hk.pkl prek.toml captainhook.json .captainhook.json grumphp.y*ml .simple-git-hooks.* "
        "simple-git-hooks.* .lintstagedrc .lintstagedrc.*",
        "git runs it, or the programs it names, at the next commit or push, where its tool is set up.",
    ),
    ("*.github/workflows/*", "GitHub runs it after the next push or pull request, with the repository's rights."),
    (".gitlab-ci.y*ml *.gitlab-ci.y*ml", "GitLab runs it after the next push, with the project's secrets."),
    ("Jenkinsfile Jenkinsfile.*", "Jenkins runs it at the next build, with the build server's rights."),
    (
        ".drone.y*ml .woodpecker.y*ml appveyor.y*ml .appveyor.y*ml buildspec*.y*ml cloudbuild.y*ml codefresh.y*ml "
        ".build.yml .sourcehut.yml .prow.y*ml zuul.y*ml .zuul.y*ml .evergreen.y*ml .scrutinizer.yml dagger.json "
        "*/.zuul.d/* */.prow/* */.bazelci/* */.kokoro/* */.codefresh/* */.pipelines/* */.ci/*",
        "The build server runs it after the next push, with its own rights and secrets.",
    ),
    (
        "*.desktop",
        "The desktop starts the program it names when it is opened, or at login from an autostart directory.",
    ),
    ("*.service *.timer *.socket", "systemd starts the program it names, once it is installed as a unit."),
    (".bashrc .bash_profile .profile .zshrc .zshenv .zprofile", "The shell runs it each time one is opened."),
)
"""Globs of files that run later, and the warning for each. A glob with '/' matches the path, else the name; no case."""


class _Shapes:
    """Globs compiled into one regular expression: nearly every file matches none of them."""

    def __init__(self, globs: list[tuple[str, str]]) -> None:
        self._because = [because for _, because in globs]
        shapes = (fnmatch.translate(glob).removesuffix(r"\Z") for glob, _ in globs)
        self._all = re.compile("|".join(f"({shape})" for shape in shapes))

    def fitting(self, text: str) -> str | None:
        found = self._all.fullmatch(text)
        return None if found is None else self._because[(found.lastindex or 1) - 1]


@cache
def _runs_later() -> tuple[_Shapes, dict[str, str], _Shapes]:
    """Compile `RUNS_LATER` into matchers for paths, exact names and name globs, on first use."""
    globs = [(glob.casefold(), because) for globs, because in RUNS_LATER for glob in globs.split()]
    names = [(glob, because) for glob, because in globs if "/" not in glob]
    return (
        _Shapes([(glob, because) for glob, because in globs if "/" in glob]),
        {glob: because for glob, because in names if "*" not in glob},
        _Shapes([(glob, because) for glob, because in names if "*" in glob]),
    )


def command_summary(command: UnderstoodCommand) -> str:
    """A command in one line, with secrets masked."""
    return mask_text(shlex.join([command.command, *command.args]))[:_MAX_SUMMARY]


async def recorded(
    recorder: UndoRecorder,
    tool_id: str,
    command: UnderstoodCommand,
    run: Callable[[], Awaitable[ExecuteCommandResult]],
) -> ExecuteCommandResult:
    """Run a command, record its changes for undo, and add them to the result."""
    if command.starts_nothing:
        return await run()  # it has the workspace read-only
    try:
        running = await _begin(recorder, tool_id, command_summary(command))
    except OSError as error:
        return await _unkept(recorder, run, _unrecorded(error))
    try:
        result = await run()
    except BaseException as error:
        ended = unfinished(error)
        told = await _end(recorder, running, None if ended is None else ended.partial)
        if ended is not None:
            ended.partial = told
        raise
    return await _end(recorder, running, result)


async def _unkept(
    recorder: UndoRecorder, run: Callable[[], Awaitable[ExecuteCommandResult]], warning: str
) -> ExecuteCommandResult:
    """Run a command without an undo record; report its changes from stamps alone."""
    before: Tree | None = None
    with suppress(OSError):
        before = await _to_its_end(recorder.glance)
    try:
        result = await run()
    except BaseException as error:
        ended = unfinished(error)
        if ended is not None and ended.partial is not None:
            ended.partial = _with_warning(await _compared(recorder, before, ended.partial), warning)
        raise
    return _with_warning(await _compared(recorder, before, result), warning)


async def _compared(recorder: UndoRecorder, before: Tree | None, result: ExecuteCommandResult) -> ExecuteCommandResult:
    if before is None:
        return result
    try:
        after = await outlast(asyncio.get_running_loop().run_in_executor(None, recorder.glance, before))
    except OSError:
        return result
    return with_effects(result, changes_between(before, after.states))


async def _begin(recorder: UndoRecorder, tool_id: str, summary: str) -> Running:
    began: list[Running] = []
    try:
        await _to_its_end(lambda: began.append(recorder.begin(tool_id, "execute_command", summary)))
    except asyncio.CancelledError:
        if began:
            await _to_its_end(lambda: recorder.end(began[0]))
        raise
    return began[0]


async def _end(recorder: UndoRecorder, running: Running, result: ExecuteCommandResult | None) -> ExecuteCommandResult:
    try:
        # The changes are reported even if the call is cancelled while they are collected.
        changes = await outlast(asyncio.get_running_loop().run_in_executor(None, recorder.end, running))
    except OSError as error:
        return _with_warning(with_effects(result or _NOTHING, running.changes), _unrecorded(error))
    told = with_effects(result or _NOTHING, changes)
    return told.model_copy(update={"warnings": [*told.warnings, *running.notes]})


_NOTHING = ExecuteCommandResult(stdout="", stderr="", exit_code=None, execution_time=0)


async def _to_its_end(work: Callable[[], T]) -> T:
    """Run work in a thread and wait for its end, even if the call is cancelled."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()
        raise


def with_effects(result: ExecuteCommandResult, changes: Mapping[str, Change]) -> ExecuteCommandResult:
    """Add the changed files and their warnings to a result."""
    files = [change for path, pair in sorted(changes.items()) if (change := _file_change(path, pair)) is not None]
    warnings = [*result.warnings, *_warnings(files)]
    update = {"changed": files[:MAX_CHANGES], "changed_count": len(files), "warnings": warnings}
    return result.model_copy(update=update)


def _file_change(path: str, pair: Change) -> FileChange | None:
    before, after = pair
    if {state.kind for state in pair if state is not None} == {"directory"}:
        return None  # its files are listed instead
    change: Literal["created", "changed", "deleted"] = "changed"
    if before is None or after is None:
        change = "created" if before is None else "deleted"
    return FileChange(path=visible(path), change=change)


def runs_later(path: str) -> str | None:
    """The sentence on what runs or obeys a file later; None if nothing does."""
    whole = path.casefold()
    name = whole.rpartition("/")[2]
    paths, names, shapes = _runs_later()
    because = paths.fitting(f"/{whole}") or names.get(name) or shapes.fitting(name)
    return because or trusted_name(path)


def _warnings(files: list[FileChange]) -> list[str]:
    """Warnings about the files that run later."""
    found: list[str] = []
    for file in files:
        because = None if file.change == "deleted" else runs_later(file.path)
        if because is not None:
            found.append(f"The command {file.change} {file.path!r}. {because}")
    left_out = len(found) - _MAX_WARNINGS
    if left_out <= 0:
        return found
    return [*found[:_MAX_WARNINGS], f"It changed {left_out} more files that other programs run or obey later."]


def _with_warning(result: ExecuteCommandResult, warning: str) -> ExecuteCommandResult:
    return result.model_copy(update={"warnings": [*result.warnings, warning]})


def _unrecorded(error: OSError) -> str:
    return f"What the command changed was not recorded ({error.strerror}), so it cannot be undone."
