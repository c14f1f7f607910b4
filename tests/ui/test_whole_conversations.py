"""Whole conversations on the page: renamed, found, exported, deleted, all they changed undone; the model that is
chosen; files named after an @. Each driven as a person would, in light, dark and on a phone."""

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, ViewportSize, expect

from harness.household import Household, open_household

from .conftest import Faults, answer, answer_with, beside, open_signed_out, question, say, shot, sign_in_link
from .test_lasting import violations

pytestmark = pytest.mark.asyncio(loop_scope="module")
PHONE: ViewportSize = {"width": 390, "height": 780}
WIDE: ViewportSize = {"width": 1280, "height": 800}


async def seen(page: Page, name: str) -> None:
    """The state in light, dark and at a phone's width; axe finds nothing in it."""
    assert await violations(page) == []
    await shot(page, name)
    await page.emulate_media(color_scheme="dark")
    assert await violations(page) == []
    await shot(page, f"{name}-dark")
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size(PHONE)
    assert await violations(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await shot(page, f"{name}-phone")
    await page.set_viewport_size(WIDE)


async def manage(page: Page, what: str) -> None:
    await page.get_by_role("button", name="This conversation", exact=True).click()
    await page.get_by_role("menuitem", name=what).click()


async def wrote(page: Page, home: Household, message: str, number: int = 1) -> None:
    """The message, allowed and done; `number`: which of the conversation it is."""
    await say(page, message, first=number == 1)
    await question(page).get_by_role("button", name="Allow once").click()
    await home.person.until("chat.run", number, state="done")
    await expect(page.locator(".app-working")).to_have_count(0)


@pytest.mark.promise("L8-conversations", "U")
async def test_conversation_is_renamed_found_and_deleted(page: Page, home: Household) -> None:
    await say(page, "read package.json and tell me the version")
    await expect(answer(page)).to_be_visible()
    await page.get_by_role("button", name="This conversation", exact=True).click()
    await shot(page, "conversation-menu")
    await page.get_by_role("menuitem", name="Rename").click()
    title = page.get_by_label("Title")
    await expect(title).to_be_focused()
    await seen(page, "conversation-rename")
    await title.fill("Which version?")
    await title.press("Enter")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(page.get_by_role("heading", name="Which version?")).to_be_visible()

    await page.get_by_role("link", name="Conversations").click()
    search = beside(page).get_by_label("Find in titles and messages")
    await search.fill("PACKAGE.json")
    await expect(beside(page).locator("mark").first).to_have_text(re.compile("package.json", re.IGNORECASE))
    await seen(page, "conversations-search")
    await search.fill("nowhere said")
    await expect(beside(page).get_by_text("No match.")).to_be_visible()
    await search.fill("which")
    await beside(page).get_by_role("button", name="Manage Which version?").click()
    await page.get_by_role("menuitem", name="Delete").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("The record of its calls")
    await seen(page, "conversation-delete")
    await dialog.get_by_role("button", name="Delete conversation").click()
    await expect(dialog).to_have_count(0)
    await expect(beside(page).get_by_text("No conversation yet.")).to_be_visible()
    await page.get_by_role("link", name="Chat").click()
    await expect(page.get_by_role("heading", name="What should the agent do?")).to_be_visible()
    assert len(await home.person.record()) == 1, "what its call did stays on record"
    assert all(check.fault is None for check in await home.listening.parts.store.audit.verify())


@pytest.mark.promise("L8-conversations")
async def test_conversation_deleted_in_one_tab_leaves_the_other(page: Page, open_page) -> None:  # type: ignore[no-untyped-def]
    await say(page, "read package.json")
    await expect(answer(page)).to_be_visible()
    other: Page = await open_page()
    await expect(answer(other)).to_be_visible()
    await manage(page, "Delete")
    await page.get_by_role("dialog").get_by_role("button", name="Delete conversation").click()
    for tab in (page, other):
        await expect(tab.get_by_role("heading", name="What should the agent do?")).to_be_visible()
        assert tab.url.endswith("#/chat")


@pytest.mark.promise("L8-conversations")
async def test_conversation_in_which_the_agent_works_is_stopped_before_it_is_deleted(
    page: Page, faults: Faults
) -> None:
    faults.expected.append("409")
    await say(page, "write notes.md: hello")
    await expect(question(page)).to_be_visible()
    await manage(page, "Delete")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Delete conversation").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("at work")
    await seen(page, "conversation-delete-working")
    await dialog.get_by_role("button", name="Stop the agent").click()
    await expect(dialog.get_by_role("alert")).to_have_count(0)
    await dialog.get_by_role("button", name="Delete conversation").click()
    await expect(dialog).to_have_count(0)
    await expect(page.get_by_role("heading", name="What should the agent do?")).to_be_visible()


@pytest.mark.promise("L8-conversations")
async def test_conversation_is_saved_as_markdown_and_as_json(page: Page, tmp_path: Path) -> None:
    await say(page, "read package.json")
    await expect(answer(page)).to_be_visible()
    await manage(page, "Export")
    await seen(page, "conversation-export")
    dialog = page.get_by_role("dialog")
    for name, ending in (("Markdown", "md"), ("JSON", "json")):
        async with page.expect_download() as saving:
            await dialog.get_by_role("button", name=f"Download as {name}").click()
        saved = await saving.value
        assert saved.suggested_filename == f"read-package.json.{ending}"
        await saved.save_as(tmp_path / ending)
    text = (tmp_path / "md").read_text()
    assert "## You" in text
    assert "### Read `package.json`" in text
    whole = json.loads((tmp_path / "json").read_text())
    assert [call["tool_name"] for call in whole["calls"]] == ["read_file"]
    await expect(dialog.get_by_role("status")).to_have_text("Saved as read-package.json.json.")


@pytest.mark.promise("L8-undo-all", "U")
async def test_all_that_a_conversation_changed_is_shown_and_undone(page: Page, home: Household) -> None:
    (home.workspace / "notes.md").write_text("one\ntwo\n")
    await wrote(page, home, "write notes.md: one")
    await wrote(page, home, "append to notes.md: three", 2)
    await wrote(page, home, "write made.md: new", 3)
    await wrote(page, home, "run python3 src/app.py", 4)
    await manage(page, "What it changed")
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("button", name="Undo all…")).to_be_visible()
    files = dialog.get_by_role("list", name="Files").get_by_role("listitem")
    await expect(files).to_have_count(2)
    await expect(files.first).to_contain_text("made.md")
    await expect(files.first).to_contain_text("created")
    await expect(files.nth(1)).to_contain_text("notes.md")
    await expect(dialog.get_by_role("list", name="Commands")).to_contain_text("python3 src/app.py")
    await seen(page, "conversation-changes")
    await dialog.get_by_role("button", name="Undo all…").click()
    await expect(dialog.get_by_role("heading", name=re.compile("Undo all 3 calls"))).to_be_visible()
    await seen(page, "conversation-undo")
    await dialog.get_by_role("button", name="Undo these 2 files").click()
    await expect(dialog.get_by_role("heading", name="Undone")).to_be_visible()
    await seen(page, "conversation-undone")
    assert (home.workspace / "notes.md").read_text() == "one\ntwo\n"
    assert not (home.workspace / "made.md").exists()
    await page.get_by_role("button", name="Close").click()
    await manage(page, "What it changed")
    await expect(dialog).to_contain_text("There is nothing to undo")


@pytest.mark.promise("L8-undo-all")
async def test_file_that_somebody_changed_since_stops_undo_all_in_words(page: Page, home: Household) -> None:
    await wrote(page, home, "write notes.md: one")
    (home.workspace / "notes.md").write_text("mine")
    await manage(page, "What it changed")
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_text("changed since")).to_be_visible()
    await dialog.get_by_role("button", name="Undo all…").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("Cannot be undone now")
    await seen(page, "conversation-undo-conflict")
    await expect(dialog.get_by_role("button", name=re.compile("^Undo (this|these)"))).to_have_count(0)
    assert (home.workspace / "notes.md").read_text() == "mine"


@pytest.mark.promise("U-mention", "U")
async def test_file_is_named_after_an_at_with_the_keyboard(page: Page, home: Household) -> None:
    for path in ("src/api/routes.py", "src/.env", "credentials.json"):
        (home.workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (home.workspace / path).write_text("x = 1\n")
    field = page.get_by_label("Message", exact=True)
    await field.click()
    await field.press_sequentially("read @")
    options = page.get_by_role("option")
    await expect(options).to_have_text([re.compile("package.json"), re.compile("src")])
    await seen(page, "mention")
    await field.press("ArrowDown")
    await expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    await field.press("Tab")
    await expect(field).to_have_value("read @src/")
    await expect(options.filter(has_text="app.py")).to_be_visible()
    await field.press_sequentially("rou")
    await expect(options).to_have_count(1)
    await field.press("Enter")
    await expect(field).to_have_value("read src/api/routes.py ")
    await expect(options).to_have_count(0)
    await field.press("Enter")
    await expect(answer_with(page, "x = 1")).to_be_visible()

    await field.press_sequentially("mail me@example and @cred")
    await expect(page.get_by_text("No file fits.")).to_be_visible()
    await field.press("Escape")
    await expect(page.get_by_text("No file fits.")).to_have_count(0)
    await field.fill("look at ")
    await field.press_sequentially("@pack")
    await options.first.click()
    await expect(field).to_have_value("look at package.json ")
    await expect(field).to_be_focused()
    listed = [call for call in await home.person.record() if call.tool_name == "list_directory"]
    assert listed
    assert {call.approved_by for call in listed} == {"risk:LOW"}


@pytest.mark.promise("U-model", "U")
async def test_model_is_chosen_for_a_conversation_and_stays_its_own(page: Page, faults: Faults, tmp_path: Path) -> None:
    from harness.model_server import open_model_server
    from harness.model_server import say as says

    with open_model_server([says("I am the other one.")]) as provider, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", provider.url)
        patch.setenv("OPENAI_API_KEY", "test")
        (tmp_path / "second").mkdir()
        async with open_household(tmp_path / "second", models=("openai-chat:other",)) as home:
            tab = await open_signed_out(page, faults)
            faults._host = home.url.removeprefix("http://")
            await tab.goto(await sign_in_link(home))
            picker = tab.get_by_role("combobox", name="Model")
            await expect(picker).to_have_text("offline")
            await say(tab, "list src")
            await expect(answer(tab)).to_be_visible()
            await picker.click()
            await expect(tab.get_by_role("option")).to_have_text(["offline", "openai-chat:other"])
            await seen(tab, "model")
            await tab.get_by_role("option", name="openai-chat:other").click()
            await say(tab, "hello", first=False)
            await expect(answer_with(tab, "I am the other one.")).to_be_visible()
            await expect(tab.locator(".app-usage")).to_contain_text("10 tokens in, 5 out")
            await expect(tab.locator(".app-usage")).not_to_contain_text("$")
            assert [asked.model for asked in provider.requests] == ["other"]
            await tab.reload()
            await expect(picker).to_have_text("openai-chat:other")
            await tab.get_by_role("button", name="New conversation").click()
            await expect(picker).to_have_text("offline")
            await tab.context.close()
