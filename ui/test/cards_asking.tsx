// A question on the screen, for tests: timers are not real, the server's clock runs with them, and presses are a person's.

import { act, cleanup, render } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import type { ComponentProps } from "react";
import { afterEach, beforeEach, vi } from "vitest";
import { ApprovalCard } from "../src/cards/ApprovalCard";
import { api, button, host, NOW, question } from "./cards_samples";

type Props = ComponentProps<typeof ApprovalCard>;

const started = { at: 0 };

/** Call it once in a file of tests. */
export function withoutRealTime() {
  beforeEach(() => {
    vi.useFakeTimers();
    // So that the testing library knows that timers are not real.
    vi.stubGlobal("jest", { advanceTimersByTime: (milliseconds: number) => vi.advanceTimersByTime(milliseconds) });
    started.at = Date.now();
  });
  afterEach(() => {
    cleanup();
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });
}

export const wait = (milliseconds: number) => act(() => vi.advanceTimersByTimeAsync(milliseconds));
export const user = userEvent.setup({ advanceTimers: (milliseconds) => vi.advanceTimersByTime(milliseconds) });

/** A click, and everything that was ready to follow it. */
export async function press(target: HTMLElement) {
  await user.click(target);
  await wait(0);
}

export function open(more: Partial<Props> = {}) {
  const props: Props = {
    question: question(),
    api: api(),
    host: host(),
    projectId: "proj_1",
    // The server's clock runs with the test's.
    now: () => NOW + Date.now() - started.at,
    elsewhere: null,
    settled: null,
    onDecided: vi.fn(),
    ...more,
  };
  const view = render(<ApprovalCard {...props} />);
  const again = (changed: Partial<Props>) => view.rerender(<ApprovalCard {...props} {...changed} />);
  return { ...view, props, again };
}

/** Opens the menu of further answers and chooses one. */
export async function more(words: string) {
  await press(document.querySelector<HTMLElement>(".card-more") as HTMLElement);
  await wait(100);
  const item = items().find((each) => each.textContent === words);
  if (!item) throw new Error(`There is no ${words}`);
  await press(item);
  await wait(100);
}

export const items = () => [...document.querySelectorAll<HTMLElement>("[role=menuitem]")];

/** Chooses from a list by its label. */
export async function choose(label: string, words: string) {
  const named = [...document.querySelectorAll(".ui-choose")].find((each) => each.textContent?.startsWith(label));
  await press(named?.querySelector("button") as HTMLElement);
  await wait(100);
  const option = [...document.querySelectorAll<HTMLElement>("[role=option]")].find(
    (each) => each.textContent === words,
  );
  await press(option as HTMLElement);
  await wait(100);
}

export const isOff = (name: string) => button(name).getAttribute("aria-disabled") === "true";
