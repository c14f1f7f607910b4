"""What a command left that others run later: told with who runs it and when, at a price nobody notices."""

import time

import pytest

from byleave.workspace.commands.effects import RUNS_LATER, runs_later

pytestmark = pytest.mark.promise("T3")

TOLD = {
    "build server": (
        ".drone.yaml .woodpecker.yaml appveyor.yaml buildspec.yaml cloudbuild.yml codefresh.yml .build.yml "
        ".sourcehut.yml .prow.yaml zuul.yaml .zuul.d/jobs.yaml .evergreen.yml .scrutinizer.yml .bazelci/presubmit.yml "
        ".kokoro/build.sh .ci/run.sh .pipelines/build.yml dagger.json"
    ),
    "next commit or push": (
        "lefthook-local.yml .lefthook.yaml .lefthook-local.toml .lefthook/pre-commit/run.sh hk.pkl prek.toml "
        "captainhook.json grumphp.yml .simple-git-hooks.cjs simple-git-hooks.json .lintstagedrc.mjs .lintstagedrc.yaml"
    ),
    "pnpm": ".pnpmfile.cjs pnpmfile.cjs package.yaml package.json5",
    "bazel": ".bazelrc rules/defs.bzl tools/bazel",
    "hatch": "hatch_build.py hatch.toml",
    "test run": "pytest.toml .pytest.toml tox.toml",
    "image build": "Containerfile.dev docker-bake.hcl docker-bake.json",
    "`just`": "ci/release.just",
    "`task`": "Taskfile.dist.yml sub/taskfile.yaml",
    "mise": "mise.local.toml .mise/tasks/build mise-tasks/build",
    "Procfile": "Procfile.dev",
    "gradle": "gradle/wrapper/gradle-wrapper.jar gradle/libs.versions.toml buildSrc/src/main/kotlin/x.kt",
    "maven": "mvnw .mvn/wrapper/maven-wrapper.jar .mvn/extensions.xml",
    "Scala": "build.sc build.mill project/Build.scala project/plugins.sbt",
    "mage": "magefile.go",
    "goreleaser": ".goreleaser.yaml",
    "cargo": ".cargo/config.toml Cargo.toml",
    "Ruby": "Guardfile Capfile fastlane/Fastfile Dangerfile Thorfile Puppetfile config.ru .rspec",
    "Node": "gatsby-node.js gulpfile.mjs Gruntfile.coffee Jakefile.js plopfile.js jest.config.json .taprc",
    "PHP": "phpunit.xml phpunit.xml.dist .php-cs-fixer.php rector.php RoboFile.php",
    "configure": "configure.ac autogen.sh",
    "build": "xmake.lua premake5.lua conanfile.py Kbuild build.boot shadow-cljs.edn cabal.project app.nimble",
    "shell": "devenv.nix devbox.json guix.scm",
    "editor": ".codesandbox/tasks.json .stackblitzrc .lvimrc .local.vimrc .vim/ftplugin/py.vim .devcontainer.json",
    "supervisor": "supervisord.conf",
    "tmux": ".tmuxinator.yml .tmuxp.yaml",
}
ORDINARY = (
    "src/tasks.py build/out.js project/notes.md lib/package.py ci.md docs/mise.md targets.json node.py main.go "
    "ci/readme.txt compose.py rector.py image.jar vim/readme config.json mymake.py justfile.md src/hatch.py .gitignore"
)


def test_files_that_less_usual_tools_run_later_are_told_with_who_runs_them() -> None:
    said = {path: (words, runs_later(path)) for words, paths in TOLD.items() for path in paths.split()}
    silent = [path for path, (words, because) in said.items() if because is None or words not in because]
    assert silent == [], [said[path] for path in silent]


def test_names_that_only_look_like_them_are_not_told() -> None:
    assert {path: because for path in ORDINARY.split() if (because := runs_later(path)) is not None} == {}


def test_words_are_whole_sentences_and_no_name_is_there_twice() -> None:
    assert all(because.endswith(".") for _, because in RUNS_LATER)
    globs = [glob.casefold() for globs, _ in RUNS_LATER for glob in globs.split()]
    assert len(globs) == len(set(globs))


def test_thousands_of_ordinary_files_are_looked_at_in_a_moment() -> None:
    paths = [f"src/package{number % 50}/module_{number}.py" for number in range(5_000)]
    runs_later("warm.py")
    began = time.process_time()
    assert [path for path in paths if runs_later(path)] == []
    assert time.process_time() - began < 1
