"""Questions in a real browser: what is shown before a person decides, what is a decision, and what never is one."""

import asyncio

import pytest
from playwright.async_api import Page, expect

from harness.household import Household

from .conftest import OpenPage, answer, beside, card, deny, more, question, say, shot

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.promise("U", "A3", "R4")
async def test_a_write_is_seen_as_a_difference_and_allowed(page: Page, home: Household) -> None:
    (home.workspace / "notes.md").write_text("# Notes\n\nbuy bread\nbuy milk\n")
    await say(page, "write notes.md: # Notes\n\nbuy bread\nbuy oat milk\ncall Ada")
    asked = question(page)
    await expect(asked.get_by_role("heading")).to_have_text("Replace notes.md")
    await expect(asked.get_by_text("buy oat milk").first).to_be_visible()
    await expect(asked.get_by_role("button", name="Unified")).to_have_count(0)
    await expect(asked).not_to_contain_text("no newline")
    # Two sides need a wide window.
    await page.set_viewport_size({"width": 1440, "height": 800})
    await asked.get_by_role("button", name="Unified").click()
    await expect(asked.get_by_role("button", name="Side by side")).to_be_visible()
    await asked.get_by_role("button", name="Side by side").click()
    await page.set_viewport_size({"width": 1280, "height": 800})
    await expect(page).to_have_title("(1) Byleave")
    await shot(page, "write-waits")
    await asked.get_by_text("Details", exact=True).click()
    await expect(asked).to_contain_text("Compared with the file at")
    await shot(page, "write-details")
    await asked.get_by_role("button", name="Allow once").click()
    await expect(answer(page)).to_contain_text("notes.md")
    await expect(page).to_have_title("Byleave")
    assert (home.workspace / "notes.md").read_text().endswith("buy oat milk\ncall Ada")


@pytest.mark.promise("A3", "S")
async def test_a_file_that_changes_before_it_is_written_is_drift_and_left_alone(page: Page, home: Household) -> None:
    target = home.workspace / "notes.md"
    target.write_text("one\n")
    await say(page, "write notes.md: two")
    await expect(question(page)).to_contain_text("Compared with the file")
    target.write_text("mine\n")
    await question(page).get_by_role("button", name="Allow once").click()
    await expect(card(page)).to_contain_text("changed since")
    assert target.read_text() == "mine\n"


@pytest.mark.promise("U", "A3", "R5")
async def test_a_question_takes_no_focus_survives_a_reload_and_a_no_reaches_the_agent(
    page: Page, home: Household
) -> None:
    await say(page, 'write notes.md: <img src="x" id="evil"><b>bold</b>')
    await expect(question(page)).to_be_visible()
    field = page.get_by_label("Message", exact=True)
    await expect(field).to_be_focused()
    await field.press_sequentially("1 y a ")
    await page.keyboard.press("Enter")
    await expect(question(page)).to_be_visible()
    await page.reload()
    asked = question(page)
    for told in ("Medium risk", "Create notes.md", '<img src="x" id="evil">', "Writes a text file.", "Expires in"):
        await expect(asked).to_contain_text(told)
    assert await page.locator("#evil, .card-question b").count() == 0, "what an agent wrote is text"
    await deny(page, "not in this directory")
    for _ in range(2):
        await expect(answer(page)).to_contain_text("not in this directory")
        await expect(card(page)).to_contain_text("denied", ignore_case=True)
        await expect(card(page)).to_contain_text("by you, in a browser")
        await page.reload()
    assert not (home.workspace / "notes.md").exists()


@pytest.mark.promise("U")
async def test_the_keyboard_alone_reaches_every_answer(page: Page, home: Household) -> None:
    await say(page, "write notes.md: milk")
    await expect(question(page)).to_contain_text("Create notes.md")
    await page.get_by_role("button", name="1 to review").focus()
    await page.keyboard.press("Enter")
    for _ in range(40):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement?.textContent") == "Allow once":
            break
    allow = question(page).get_by_role("button", name="Allow once")
    await expect(allow).to_be_focused()
    await expect(allow).to_be_enabled()  # it is inert for a moment after what stands above it has moved
    await page.keyboard.press("Enter")
    await expect(answer(page)).to_be_visible()
    assert (home.workspace / "notes.md").exists()

    # With its keys: one for the focus, and then the press.
    await say(page, "write other.md: milk")
    await expect(question(page)).to_contain_text("Create other.md")
    await page.get_by_role("button", name="1 to review").click()
    await expect(question(page)).to_be_focused()
    await page.keyboard.press("v")
    await expect(question(page)).to_contain_text("Raw parameters")
    await page.keyboard.press("d")
    await expect(question(page).get_by_role("button", name="Deny", exact=True)).to_be_focused()
    await page.keyboard.press("a")
    await expect(allow).to_be_focused()
    assert not (home.workspace / "other.md").exists()
    await expect(allow).to_be_enabled()
    await page.keyboard.press("Enter")
    await expect(answer(page, 1)).to_be_visible()
    assert (home.workspace / "other.md").exists()


@pytest.mark.promise("U", "R4")
async def test_high_takes_a_second_step_before_it_can_be_allowed(page: Page, home: Household) -> None:
    await say(page, "write deploy.sh: echo hi")
    asked = question(page)
    await expect(asked).to_contain_text("High risk")
    await page.get_by_role("button", name="More ways to answer").click()
    await expect(page.get_by_role("menuitem", name="Deny with a reason…")).to_be_visible()
    assert await page.get_by_role("menuitem", name="Allow similar…").count() == 0, "no class is offered from HIGH"
    await page.keyboard.press("Escape")
    await asked.get_by_role("button", name="Allow once…").dblclick()
    await expect(asked).to_contain_text("High risk. Written immediately.")
    assert not (home.workspace / "deploy.sh").exists(), "a double click is one step"
    await shot(page, "high-armed")
    await asked.get_by_role("button", name="Yes, allow once").click()
    await expect(answer(page)).to_contain_text("deploy.sh")
    assert (home.workspace / "deploy.sh").read_text().strip() == "echo hi"


@pytest.mark.promise("G8", "U")
async def test_similar_writes_run_unasked_by_the_grant_until_it_is_revoked(page: Page, home: Household) -> None:
    await say(page, "write src/a.md: one")
    await expect(question(page)).to_be_visible()
    await more(page, "Allow similar…")
    rules = page.get_by_role("dialog")
    await expect(rules.get_by_role("button", name="Allow this and similar")).to_be_disabled()
    await rules.get_by_text("Write text files below 'src'.").click()
    await expect(rules).to_contain_text("would have covered")
    await expect(rules.get_by_label("Rule (you can edit it)")).to_have_value("src/**")
    await shot(page, "similar")
    await rules.get_by_role("button", name="Allow this and similar").click()
    await expect(answer(page)).to_be_visible()

    await say(page, "write src/b.md: two")
    await expect(answer(page, 1)).to_be_visible()
    await expect(card(page)).to_contain_text("allowed by your grant: Write text files below 'src'.")
    assert (home.workspace / "src" / "b.md").read_text() == "two"

    await page.get_by_role("link", name="Grants").click()
    await expect(beside(page)).to_contain_text("Write text files below 'src'.")
    await shot(page, "grants")
    await page.get_by_role("button", name="Revoke").first.click()
    await page.get_by_role("button", name="Revoke").last.click()
    await expect(beside(page)).to_contain_text("taken back by you")
    await page.get_by_role("link", name="Chat").click()
    await say(page, "write src/c.md: three")
    await expect(question(page)).to_be_visible()
    assert not (home.workspace / "src" / "c.md").exists()


@pytest.mark.promise("G8")
async def test_a_rule_can_be_narrowed_and_one_that_reaches_too_far_cannot_be_allowed(page: Page) -> None:
    await say(page, "write src/a.md: one")
    await expect(question(page)).to_be_visible()
    await more(page, "Allow similar…")
    rules = page.get_by_role("dialog")
    await rules.locator(".card-choice input").first.check()
    rule = rules.get_by_label("Rule (you can edit it)")
    allow = rules.get_by_role("button", name="Allow this and similar")
    await rule.fill("**")
    await expect(rules).to_contain_text("covers the whole workspace")
    await expect(allow).to_be_disabled()
    await rule.fill("'src/*.md")
    await expect(rules).to_contain_text("quotation mark")
    await rule.fill("src/*.md")
    await expect(rules).to_contain_text("'*.md' files directly in 'src'")
    await rules.get_by_role("textbox", name="Number of times").fill("1")
    await allow.click()
    await expect(answer(page)).to_be_visible()
    await page.get_by_role("link", name="Grants").click()
    await expect(beside(page)).to_contain_text("1 ")


@pytest.mark.promise("G8")
async def test_everything_in_a_session_takes_its_warning_to_be_read(page: Page, home: Household) -> None:
    await say(page, "write a.md: one")
    await expect(question(page)).to_be_visible()
    await more(page, "Allow everything in this conversation…")
    rules = page.get_by_role("dialog")
    await expect(rules).to_contain_text("The agent won't ask, even for high-risk actions.")
    await expect(rules.get_by_role("button", name="Allow everything")).to_be_disabled()
    await rules.get_by_label("I have read this.").check()
    await rules.get_by_role("button", name="Allow everything").click()
    await expect(answer(page)).to_be_visible()
    await expect(page.locator(".app-banner-high")).to_contain_text("Everything in this conversation is allowed")
    await say(page, "write deploy.sh: echo hi")
    await expect(answer(page, 1)).to_be_visible()
    assert (home.workspace / "deploy.sh").exists()
    await expect(card(page)).to_contain_text("by your grant")


@pytest.mark.promise("G8", "U", "T3")
async def test_what_a_script_holds_is_shown_before_it_runs_and_what_it_changed_after(
    page: Page, home: Household
) -> None:
    (home.workspace / "src" / "app.py").write_text(
        "print('<b>hello</b>')\nfor name in ('Makefile', 'b, c <img id=evil>\\x1b'):\n    open(name, 'w').close()\n"
        "print('x' * 70_000)\nprint(6 * 7)\n"
    )
    await say(page, "run python src/app.py")
    asked = question(page)
    for told in ("Run python src/app.py", "print('<b>hello</b>')", "sha256", "No network", "up to 5 min"):
        await expect(asked).to_contain_text(told)
    await asked.get_by_role("button", name="Allow once").click()
    for _ in range(2):
        await expect(card(page)).to_contain_text("make runs the commands in it")
        await expect(card(page)).to_contain_text(r"b, c <img id=evil>\x1b")
        assert await page.locator("#evil").count() == 0
        await expect(answer(page)).to_be_visible()
        await page.reload()


@pytest.mark.promise("U", "A", "R9")
async def test_a_decision_in_one_tab_is_seen_in_the_other_at_once(
    page: Page, open_page: OpenPage, home: Household
) -> None:
    await say(page, "write notes.md: milk")
    other = await open_page()
    await expect(question(other)).to_contain_text("notes.md")
    await expect(question(page)).to_contain_text("notes.md")
    await question(page).get_by_role("button", name="Allow once").click()
    for each, told in ((other, "Allowed by you, in a browser."), (page, "Allowed by you here.")):
        # For two seconds, and then it is in the conversation alone.
        await expect(each.locator(".card-settled").filter(has_text=told).or_(answer(each)).first).to_be_visible()
        await expect(each.get_by_role("button", name="All clear")).to_be_visible()
    await expect(other.locator(".app-review")).to_have_count(0)
    await expect(card(other)).to_contain_text("approved by you")
    await shot(other, "decided-elsewhere")


@pytest.mark.promise("U", "A")
async def test_writes_that_wait_together_are_one_change_set(page: Page, home: Household) -> None:
    async with home.agent() as agent:
        paths = ("a.md", "src/app.py", "b.md")
        calls = [
            asyncio.create_task(agent.execute("write_file", {"path": path, "content": "x\ny\n"})) for path in paths
        ]
        asked = question(page)
        await expect(asked.get_by_role("heading")).to_have_text("Change 3 files")
        for path, count in zip(paths, ("+2", "+2 \u22121", "+2"), strict=True):
            head = asked.locator(".card-set-head", has_text=path)
            await expect(head.locator(".card-counts > :first-child")).to_have_text(count)
        await shot(page, "change-set")
        # One that comes later is not allowed along with those that were looked at.
        await page.wait_for_timeout(1000)
        late = asyncio.create_task(agent.execute("write_file", {"path": "late.md", "content": "x"}))
        await expect(page.get_by_text("Also waiting")).to_be_visible()
        await asked.get_by_role("button", name="Deny src/app.py").click()
        await expect(asked.locator(".card-set-file", has_text="src/app.py")).to_contain_text("Denied by you here.")
        assert (await calls[1]).status == "rejected"
        await asked.get_by_role("button", name="Allow all 2").click()
        assert [(await call).status for call in calls] == ["completed", "rejected", "completed"]
        await expect(asked.get_by_role("heading")).to_have_text("Create late.md")
        await asked.get_by_role("button", name="Deny", exact=True).click()
        assert (await late).status == "rejected"
    assert (home.workspace / "b.md").read_text() == "x\ny\n"
    assert (home.workspace / "src" / "app.py").read_text().startswith("print")


@pytest.mark.promise("U")
async def test_review_takes_the_main_column_and_the_chat_is_a_button_away(page: Page) -> None:
    await say(page, "write notes.md: milk")
    scrollers = """() => [...document.querySelectorAll('.app-review *')].filter((each) =>
        /auto|scroll/.test(getComputedStyle(each).overflowY)).length"""
    await expect(question(page)).to_be_visible()
    assert await page.evaluate(scrollers) == 0, "there is one scroller"
    await expect(page.locator(".app-said-mine")).not_to_be_visible()
    await page.get_by_role("button", name="Show chat").click()
    await expect(page.locator(".app-said-mine")).to_be_visible()
    await expect(question(page)).not_to_be_visible()
    await shot(page, "chat-opened")
    await page.get_by_role("button", name="1 to review").click()
    await question(page).get_by_role("button", name="Deny", exact=True).click()
    await expect(page.locator(".app-review")).to_have_count(0)
    await expect(answer(page)).to_be_visible()


@pytest.mark.promise("U", "W7")
async def test_a_question_nobody_answers_says_so_and_runs_nothing(page: Page, home: Household) -> None:
    object.__setattr__(home.settings, "medium_approval_seconds", 2)  # frozen; the server reads them each time
    await say(page, "write notes.md: milk")
    await expect(question(page)).to_contain_text("Expires in")
    await expect(page.locator(".app-review")).to_have_count(0)
    await expect(card(page)).to_contain_text("nobody answered in time")
    await expect(answer(page)).to_be_visible()
    assert not (home.workspace / "notes.md").exists()


@pytest.mark.promise("U", "X-reveal")
async def test_what_is_masked_in_a_file_that_would_run_is_shown_when_asked_for(page: Page, home: Household) -> None:
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    (home.workspace / "run.py").write_text(f'settings = {{"api_token": "{token}"}}\nprint("ready")\n')
    await say(page, "run python run.py")
    asked = question(page)
    await expect(asked).to_contain_text('"api_token": "[masked:github-token, 40 characters]"')
    await expect(asked).to_contain_text("40 characters in 1 place masked: they look secret.")
    await expect(asked).not_to_contain_text(token)
    await shot(page, "file-masked")
    await asked.get_by_role("button", name="Show them").click()
    await expect(asked).to_contain_text(f'"api_token": "{token}"')
    await shot(page, "file-revealed")
    await asked.get_by_role("button", name="Deny", exact=True).click()
