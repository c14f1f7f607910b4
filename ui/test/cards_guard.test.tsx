import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { useGuard } from "../src/cards/guard";

// Where the button stands: jsdom lays nothing out.
let top = 100;

beforeEach(() => {
  top = 100;
  vi.useFakeTimers();
  vi.spyOn(Element.prototype, "getBoundingClientRect").mockImplementation(() => new DOMRect(0, top, 80, 30));
});
afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
  vi.useRealTimers();
});

const wait = (milliseconds: number) => act(() => vi.advanceTimersByTimeAsync(milliseconds));

function One({ press }: { press: () => void }) {
  const guard = useGuard();
  return (
    <div data-testid="around">
      <button {...guard.button(press)}>Allow</button>
    </div>
  );
}

/** A finger: it hovers over nothing before it comes down. */
function tap(button: HTMLElement) {
  fireEvent.pointerDown(button, { pointerType: "touch" });
  fireEvent.click(button, { detail: 1 });
}

async function shown() {
  const press = vi.fn();
  render(<One press={press} />);
  await wait(700);
  return { press, button: screen.getByRole("button") };
}

it("takes no tap on a button that moved a moment ago, and takes one once it stood still", async () => {
  const { press, button } = await shown();
  top = 60;
  tap(button);
  expect(press).not.toHaveBeenCalled();
  await wait(300);
  tap(button);
  expect(press).not.toHaveBeenCalled();
  await wait(700);
  tap(button);
  expect(press).toHaveBeenCalledOnce();
});

it("says by itself that it does not count after it moved", async () => {
  const { button } = await shown();
  top = 60;
  await wait(150);
  expect(button.getAttribute("aria-disabled")).toBe("true");
  await wait(700);
  expect(button.getAttribute("aria-disabled")).toBe("false");
});

it("takes a press after the person scrolled, and after the browser held it in its place", async () => {
  const { press, button } = await shown();
  const around = screen.getByTestId("around");
  top = 60;
  around.scrollTop = 40;
  tap(button);
  expect(press).toHaveBeenCalledOnce();
  around.scrollTop = 10;
  tap(button);
  expect(press).toHaveBeenCalledTimes(2);
});

it("takes a press after the person scrolled what sticks to an edge a part of the way, and none when it went further", async () => {
  const { press, button } = await shown();
  const around = screen.getByTestId("around");
  top = 87;
  around.scrollTop = 19;
  tap(button);
  expect(press).toHaveBeenCalledOnce();
  top = 60;
  around.scrollTop = 29;
  tap(button);
  expect(press).toHaveBeenCalledOnce();
});

it("takes no click that went down before presses counted, however long it was held", async () => {
  const press = vi.fn();
  render(<One press={press} />);
  const button = screen.getByRole("button");
  await wait(300);
  fireEvent.pointerDown(button);
  await wait(700);
  fireEvent.click(button, { detail: 1 });
  expect(press).not.toHaveBeenCalled();
  tap(button);
  expect(press).toHaveBeenCalledOnce();
});
