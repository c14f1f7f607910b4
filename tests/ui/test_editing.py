"""Editing a call before it is allowed, and grants for a project, in a real browser."""

import asyncio

import pytest
from playwright.async_api import Page, expect

from harness.household import Household

from .conftest import Faults, OpenPage, answer, beside, card, deny, more, question, say, shot

pytestmark = pytest.mark.asyncio(loop_scope="module")
REVIEW = "Review the change"


async def looks(page: Page, name: str) -> None:
    """Pictures in light, dark and at a phone's width."""
    await shot(page, name)
    await page.emulate_media(color_scheme="dark")
    await shot(page, f"{name}-dark")
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size({"width": 390, "height": 844})
    await shot(page, f"{name}-phone")
    await page.set_viewport_size({"width": 1280, "height": 800})


@pytest.mark.promise("A4", "U")
async def test_content_is_edited_shown_again_and_written_as_the_person_wrote_it(page: Page, home: Household) -> None:
    (home.workspace / "notes.md").write_text("# Notes\n\nbuy bread\n")
    await say(page, "write notes.md: # Notes\n\nbuy bread\nbuy milk\ncall Ada")
    asked = question(page)
    await expect(asked).to_contain_text("Replace notes.md")
    await asked.get_by_role("button", name="Edit before allowing").click()
    editor = page.get_by_role("dialog", name="Edit before allowing")
    field = editor.get_by_label("Content")
    await expect(field).to_have_value("# Notes\n\nbuy bread\nbuy milk\ncall Ada")
    await expect(editor.get_by_role("button", name=REVIEW)).to_be_disabled()
    await looks(page, "edit-content")
    await field.fill("# Notes\n\nbuy bread\nbuy oat milk\ncall Ada")
    await editor.get_by_role("button", name=REVIEW).click()
    await expect(editor).to_have_count(0)
    await expect(asked).to_contain_text("changed by you")
    changed = asked.locator(".card-edited")
    await expect(changed).to_contain_text("Changed by you")
    await expect(changed).to_contain_text("buy oat milk")
    assert (home.workspace / "notes.md").read_text() == "# Notes\n\nbuy bread\n", "nothing is written yet"
    await looks(page, "edit-changed")
    await asked.get_by_role("button", name="Allow once").click()
    await expect(answer(page)).to_be_visible()
    assert (home.workspace / "notes.md").read_text() == "# Notes\n\nbuy bread\nbuy oat milk\ncall Ada"
    await expect(card(page)).to_contain_text("changed by you")
    await card(page).locator(".card-toggle").click()
    await expect(card(page)).to_contain_text("As the agent asked")
    await shot(page, "edit-card")
    await page.reload()
    await expect(card(page)).to_contain_text("changed by you")


@pytest.mark.promise("A4", "G2", "U")
async def test_a_command_line_is_edited_refused_with_its_reason_and_then_run_as_shown(
    page: Page, home: Household, faults: Faults
) -> None:
    faults.expected.append("400")
    (home.workspace / "src" / "other.py").write_text("print('other', *__import__('sys').argv[1:])\n")
    await say(page, "run python src/app.py")
    asked = question(page)
    await expect(asked).to_contain_text("python src/app.py")
    await page.get_by_role("button", name="1 to review").click()
    await expect(asked).to_be_focused()
    await page.keyboard.press("e")
    editor = page.get_by_role("dialog", name="Edit before allowing")
    line = editor.get_by_label("Command line")
    await expect(line).to_be_focused()
    await line.fill("rm -rf src")
    await editor.get_by_role("button", name=REVIEW).click()
    await expect(editor.get_by_role("alert")).to_contain_text("Command not allowed: rm")
    await line.fill("python src/app.py | tee out")
    await editor.get_by_role("button", name=REVIEW).click()
    await expect(editor.get_by_role("alert")).to_contain_text("There is no shell")
    await looks(page, "edit-refused")
    await line.fill("python src/other.py 'two words'")
    await editor.get_by_label("Time limit in seconds").fill("60")
    await line.press("Control+Enter")
    await expect(editor).to_have_count(0)
    await expect(asked).to_contain_text("changed by you")
    # What would run was looked at anew.
    await expect(asked.locator(".card-chips")).to_contain_text("src/other.py")
    await expect(asked.locator(".card-edits")).to_contain_text("python src/app.py")
    await looks(page, "edit-command")
    await asked.get_by_role("button", name="Allow once").click()
    await expect(answer(page)).to_contain_text("other two words")


@pytest.mark.promise("A4", "A2")
async def test_a_call_that_was_decided_elsewhere_cannot_be_edited_any_more(
    page: Page, home: Household, open_page: OpenPage, faults: Faults
) -> None:
    faults.expected.append("409")
    await say(page, "write notes.md: one")
    await question(page).get_by_role("button", name="Edit before allowing").click()
    editor = page.get_by_role("dialog", name="Edit before allowing")
    await editor.get_by_label("Content").fill("mine")
    other = await open_page()
    await deny(other, "no")
    await expect(editor).to_have_count(0)
    await expect(card(page)).to_contain_text("denied", ignore_case=True)
    assert not (home.workspace / "notes.md").exists()


@pytest.mark.promise("A4", "U")
async def test_one_file_of_a_change_set_is_edited_in_its_place(page: Page, home: Household) -> None:
    async with home.agent() as agent:
        writes = [
            asyncio.create_task(agent.execute("write_file", {"path": f"{name}.md", "content": f"{name}\n"}))
            for name in ("one", "two")
        ]
        together = page.locator(".card-set")
        await expect(together).to_contain_text("Change 2 files")
        await together.get_by_role("button", name="More ways to answer for two.md").click()
        await page.get_by_role("menuitem", name="Edit before allowing…").click()
        editor = page.get_by_role("dialog", name="Edit before allowing")
        await editor.get_by_label("Content").fill("changed\n")
        await editor.get_by_role("button", name=REVIEW).click()
        await expect(editor).to_have_count(0)
        await expect(together).to_contain_text("Changed by you")
        await expect(together).to_contain_text("Change 2 files")
        await looks(page, "edit-set")
        await together.get_by_role("button", name="Allow all 2").click()
        told = [await write for write in writes]
    assert [each.status for each in told] == ["completed", "completed"]
    assert told[0].edited is None
    assert "-two\n+changed" in (told[1].edited or "")
    assert (home.workspace / "one.md").read_text() == "one\n"
    assert (home.workspace / "two.md").read_text() == "changed\n"


@pytest.mark.promise("G8", "U")
async def test_an_exact_command_is_allowed_for_the_project_and_runs_unasked_in_another_conversation(
    page: Page, home: Household
) -> None:
    await say(page, "run python src/app.py")
    await expect(question(page)).to_be_visible()
    await more(page, "Always allow exactly this in this project…")
    panel = page.get_by_role("dialog", name="Always allow exactly this in this project")
    await expect(panel).to_contain_text("Only for the agent chat, in all its conversations of this project")
    await expect(panel).to_contain_text("7 days")
    await expect(panel).to_contain_text("would have covered")
    await looks(page, "project-grant")
    await panel.get_by_role("button", name="Always allow this").click()
    await expect(answer(page)).to_contain_text("hello")
    await page.get_by_role("button", name="New conversation").first.click()
    await say(page, "run python src/app.py")
    await expect(answer(page)).to_contain_text("hello")
    await expect(card(page)).to_contain_text("allowed by your grant")
    await page.get_by_role("link", name="Grants").first.click()
    listed = beside(page)
    for told in ("every conversation of this project", "the agent chat only", "once", "in 7 days"):
        await expect(listed).to_contain_text(told)
    await looks(page, "project-grant-listed")
    await listed.get_by_role("button", name="Revoke: ").click()
    await listed.get_by_role("button", name="Revoke it").click()
    await expect(listed).to_contain_text("No grant is in force.")
