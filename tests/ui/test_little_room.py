"""A question where room is scarce (a side bar of an editor, a phone): what is asked and the answers are seen at once.

Measured in a real browser, because only one has a layout: nothing of them is outside of the window, below something
else or out of what scrolls, whatever stands between them.
"""

import pytest
from playwright.async_api import Page, ViewportSize, expect

from harness.household import Household
from harness.json_values import JsonObject

from .conftest import question, say, shot

pytestmark = pytest.mark.asyncio(loop_scope="module")

SMALLEST: ViewportSize = {"width": 280, "height": 420}
SIZES = ((280, 420), (360, 640), (420, 420), (280, 900))
LONG = "--grep 'the whole of a command must be read before it is answered' --out=build/report.txt"

# What of it a person can see and press: what is on top in its middle must be it, and near its corners too.
SEEN = """([card, wanted]) => [...card.querySelectorAll(wanted)].filter((it) => it.checkVisibility()).map((each) => {
  const { left, top, right, bottom } = each.getBoundingClientRect();
  const at = [[left + 3, top + 3], [right - 3, bottom - 3], [(left + right) / 2, (top + bottom) / 2]];
  const whole = at.every(([x, y]) => {
    const found = document.elementFromPoint(x, y);
    return found !== null && (each.contains(found) || found.contains(each) && card.contains(found));
  });
  const cut = each.scrollHeight > each.clientHeight + 1 && getComputedStyle(each).overflowY !== "visible";
  return { what: each.textContent || each.placeholder, whole, cut };
})"""
ASKED = ".card-risk, .card-left, .card-question-head h2"
ANSWERS = ".card-answers .card-buttons button"
ARMED = f"{ANSWERS}, .card-armed p"


async def hidden(page: Page, wanted: str) -> list[str]:
    """Those of the question that waits that are not wholly in sight."""
    found: list[JsonObject] = await page.evaluate(SEEN, [await question(page).element_handle(), wanted])
    assert found, f"there is no {wanted}"
    return [each["what"] for each in found if not each["whole"] or each["cut"]]


@pytest.mark.promise("U", "A3")
async def test_what_is_asked_and_the_answers_are_in_sight_together_in_a_small_pane(page: Page, home: Household) -> None:
    (home.workspace / "package.json").write_text('{"scripts": {"test": "touch ran"}}\n')
    bad: list[tuple[str, tuple[int, int], list[str]]] = []
    asked = question(page)
    for number, (line, level) in enumerate(((f"npm test -- {LONG}", "Medium"), (f"python3 -c 'x' {LONG}", "High"))):
        await page.set_viewport_size({"width": 1280, "height": 800})
        await say(page, f"run {line}", first=number == 0)
        await expect(asked).to_contain_text(level)
        await expect(asked.get_by_role("heading")).to_contain_text("build/report.txt")
        for size in SIZES:
            await page.set_viewport_size({"width": size[0], "height": size[1]})
            bad.append((level, size, await hidden(page, f"{ASKED}, {ANSWERS}")))
            await shot(page, f"little-{level}-{size[0]}x{size[1]}")
        # What is read between them moves neither of them.
        await page.set_viewport_size(SMALLEST)
        await page.locator(".app-review").evaluate("(panel) => panel.scrollBy(0, 200)")
        bad.append((f"{level} scrolled", (280, 420), await hidden(page, f"{ASKED}, {ANSWERS}")))
        # With less room than for both, what is asked comes first and says that there is more.
        await page.locator(".app-review").evaluate("(panel) => panel.scrollTo(0, 0)")
        await page.set_viewport_size({"width": 280, "height": 240})
        bad.append((level, (280, 240), await hidden(page, ".card-risk")))
        await expect(asked.get_by_role("heading")).to_be_in_viewport(ratio=0.5)
        await shot(page, "little-tiny")
        await page.set_viewport_size(SMALLEST)
        if level == "High":
            await asked.get_by_role("button", name="Allow once…").click()
            await expect(asked).to_contain_text("High risk. Runs immediately, without the network.")
            bad.append(("armed", (280, 420), await hidden(page, f"{ASKED}, {ARMED}")))
            await shot(page, "little-armed")
        await asked.get_by_role("button", name="Deny", exact=True).click()
        await expect(asked).to_have_count(0)
    # Of what is too long for its place it is said that it goes on.
    await say(page, f"run python3 -c 'x' {LONG} {LONG} {LONG} {LONG}", first=False)
    await expect(asked.locator(".card-below")).to_be_visible()
    bad.append(("endless", (280, 420), await hidden(page, f".card-left, {ANSWERS}")))
    await asked.get_by_role("button", name="Allow once…").click()
    await expect(asked.locator(".card-armed")).to_be_visible()
    bad.append(
        (
            "endless, armed",
            (280, 420),
            await hidden(page, ARMED),
        )
    )
    await shot(page, "little-endless")
    assert [each for each in bad if each[2]] == []
