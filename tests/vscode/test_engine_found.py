"""Getting the engine in a real VS Code: from the packed wheel, never from the opened folder, else a clear sentence.

Each test has an editor of its own, started with the environment it is about.
"""

import os
import re
import shutil
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from harness.browser import fill_project
from harness.processes import Site, User

from .conftest import Workbench, open_editor, open_window

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
    pytest.mark.promise("C-vscode", "C-engine"),
]

INSTALL_MS = 150_000
BAIT = """#!/bin/sh
echo "$0 $*" >> '{marker}'
echo '{{"version": "0.1.0", "engine": 1}}'
"""


def baited(folder: Path, marker: Path) -> list[str]:
    """Programs in an opened folder that an engine's search could fall for; the directories they are in."""
    places = [folder, folder / ".venv" / "bin", folder / "node_modules" / ".bin"]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        for name in ("byleave", "python3", "python3.11", "uv"):
            (place / name).write_text(BAIT.format(marker=marker))
            (place / name).chmod(0o755)
    for name in ("byleave.py", "sitecustomize.py"):
        (folder / name).write_text(f"open({str(marker)!r}, 'a').write({name!r})")
    return [str(place) for place in places]


async def sign_in(window: Workbench, site: Site) -> None:
    await expect(window.status).to_have_text(re.compile("Byleave: sign in"))
    await window.sign_in(site.url, site.token("alice"))


async def test_first_start_installs_from_the_packed_wheel_and_never_from_the_folder(
    browser: Browser, site: Site, tmp_path: Path
) -> None:
    """Nothing on the PATH but the folder's own directories: only the .vsix and the system's Python are left."""
    folder, marker, elsewhere = tmp_path / "ws", tmp_path / "bait-was-run", tmp_path / "elsewhere"
    folder.mkdir()
    fill_project(folder)
    elsewhere.mkdir()
    (elsewhere / "byleave").symlink_to(folder / "byleave")
    path = ":".join([".", "", *baited(folder, marker), str(elsewhere)])
    env = {"PATH": path, "PYTHONPATH": str(folder), "VIRTUAL_ENV": str(folder / ".venv")}
    async with (
        open_editor(tmp_path, {"byleave.serverUrl": site.url}, env) as url,
        open_window(browser, url, folder) as window,
    ):
        await sign_in(window, site)
        await expect(window.toast("downloading its engine…")).to_be_visible(timeout=INSTALL_MS)
        await window.shot("h-installing")
        await expect(window.status).to_have_text(re.compile("not trusted"), timeout=INSTALL_MS)
        await window.trust_the_folder()
        await expect(window.status).to_have_text("Byleave")
        user = User(site.url, site.token("alice"))
        for project in (await user.get("/my/projects")).body["projects"]:
            answer = await user.execute(project["project_id"], "read_file", path="package.json")
            if answer["status"] == "completed":
                break
        else:
            pytest.fail("no machine executed the call")
        await user.close()
    made = list((tmp_path / "editor").rglob("engine/*/bin/python"))
    assert len(made) == 1
    assert not marker.exists(), marker.read_text()


async def test_without_python_one_sentence_says_what_to_do(browser: Browser, site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "ws"
    folder.mkdir()
    # Every Python of the system is covered by something that is no program, in this editor's view alone.
    pythons = {str(path.resolve()) for place in ("/usr/bin", "/usr/local/bin") for path in Path(place).glob("python3*")}
    bwrap = shutil.which("bwrap")
    assert bwrap is not None
    hidden = [word for path in sorted(pythons) for word in ("--ro-bind", "/dev/null", path)]
    within = [bwrap, "--dev-bind", "/", "/", *hidden, "--"]
    env = {"PATH": "", "HOME": str(tmp_path)}
    async with (
        open_editor(tmp_path, {"byleave.serverUrl": site.url}, env, within) as url,
        open_window(browser, url, folder) as window,
    ):
        await sign_in(window, site)
        told = window.toast("Byleave needs Python 3.11 or newer on this machine. Install it, then try again.")
        await expect(told).to_be_visible()
        await expect(told.get_by_role("button", name="Try Again")).to_be_visible()
        await window.shot("i-no-python")


async def test_a_setting_that_leads_into_the_folder_is_refused(browser: Browser, site: Site, tmp_path: Path) -> None:
    folder, marker = tmp_path / "ws", tmp_path / "bait-was-run"
    folder.mkdir()
    baited(folder, marker)
    settings = {"byleave.serverUrl": site.url, "byleave.path": str(folder / "byleave")}
    async with open_editor(tmp_path, settings) as url, open_window(browser, url, folder) as window:
        await sign_in(window, site)
        told = window.toast("runs from an opened folder, where agents could change it")
        await expect(told.get_by_role("button", name="Open Settings")).to_be_visible()
    assert not marker.exists(), marker.read_text()
    assert os.access(folder / "byleave", os.X_OK)
