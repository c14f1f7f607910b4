"""The pages beside the chat: conversations, history with undo, policy, audit, agents; each driven as a person would."""

import re

import pytest
from playwright.async_api import Page, expect

from harness.household import Household

from .conftest import answer, beside, choose, question, say, shot

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.promise("U", "L8-undo")
async def test_a_write_is_undone_from_its_card_and_the_record_says_so(page: Page, home: Household) -> None:
    (home.workspace / "notes.md").write_text("before\n")
    await say(page, "write notes.md: after")
    await question(page).get_by_role("button", name="Allow once").click()
    await expect(answer(page)).to_be_visible()
    await page.get_by_role("link", name="Undo…").click()
    await page.get_by_role("button", name="Undo…").click()
    main = beside(page)
    await expect(main.get_by_text("before").first).to_be_visible()
    await shot(page, "undo")
    await main.get_by_role("button", name=re.compile("^Undo (this|these)|^Undo 1")).click()
    await expect(main).to_contain_text("byleave undo")
    assert (home.workspace / "notes.md").read_text() == "before\n"
    await page.get_by_role("link", name="Chat").click()
    await expect(page.locator(".card-tool")).to_contain_text("undone by")


@pytest.mark.promise("U", "R8")
async def test_history_is_filtered_and_each_call_tells_everything(page: Page) -> None:
    await say(page, "read package.json")
    await expect(answer(page)).to_be_visible()
    await say(page, "run rm -rf /")
    await expect(answer(page, 1)).to_be_visible()
    await page.get_by_role("link", name="History").click()
    main = beside(page)
    await expect(main).to_contain_text("package.json")
    await expect(main).to_contain_text("rm -rf /")
    await shot(page, "history")
    await choose(page, "Risk", "Low")
    await expect(main).not_to_contain_text("rm -rf /")
    await main.get_by_role("link", name=re.compile("package.json")).first.click()
    for told in ("digest", "without asking", "exec_", "Reads a file of the workspace."):
        await expect(main).to_contain_text(told, ignore_case=True)
    await shot(page, "history-detail")


@pytest.mark.promise("U", "L6")
async def test_what_would_happen_if_is_answered_without_doing_it(page: Page, home: Household) -> None:
    await page.get_by_role("link", name="Policy").click()
    main = beside(page)
    await choose(page, "Tool", "execute_command")
    line = main.get_by_label(re.compile("Command line|line", re.IGNORECASE)).first
    await line.fill("rm -rf build")
    await main.get_by_role("button", name="Check").click()
    await expect(main).to_contain_text("Refused")
    await line.fill("find . -name '*.py' -delete")
    await main.get_by_role("button", name="Check").click()
    await expect(main).to_contain_text("-delete: deletes every file it finds, for good.")
    await shot(page, "policy")
    assert not await home.person.record(), "nothing ran and nothing was recorded"


@pytest.mark.promise("U", "D")
async def test_the_audit_chain_is_shown_and_verified(page: Page) -> None:
    await say(page, "list src")
    await expect(answer(page)).to_be_visible()
    await page.get_by_role("link", name="Audit").click()
    main = beside(page)
    await expect(main).to_contain_text("execut", ignore_case=True)
    await main.get_by_role("button", name=re.compile("Verify")).click()
    await expect(main).to_contain_text("Record intact")
    await shot(page, "audit")


@pytest.mark.promise("U")
async def test_conversations_are_listed_and_opened_and_agents_say_what_they_may(page: Page) -> None:
    await say(page, "list src")
    await expect(answer(page)).to_be_visible()
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.get_by_role("heading", name="What should the agent do?")).to_be_visible()
    await say(page, "read package.json")
    await expect(answer(page)).to_be_visible()
    await page.get_by_role("link", name="Conversations").click()
    main = beside(page)
    await expect(main.get_by_role("heading", name="Conversations")).to_be_visible()
    await expect(main.get_by_text("read package.json")).to_be_visible()
    await shot(page, "sessions")
    await main.get_by_role("link", name=re.compile("list src")).click()
    await expect(page.locator(".card-tool")).to_contain_text("src")
    await page.get_by_role("link", name="Agents").click()
    await expect(main).to_contain_text("offline")
    await shot(page, "agents")
