import { act, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { Headline } from "../src/cards/Headline";

afterEach(() => vi.unstubAllGlobals());

describe("what is asked, where there is little room", () => {
  it("says that it goes on when a part of it is out of sight, and only then", () => {
    const looks: (() => void)[] = [];
    class Watching {
      constructor(look: () => void) {
        looks.push(look);
      }
      observe() {}
      disconnect() {}
    }
    vi.stubGlobal("ResizeObserver", Watching);
    const { container, unmount } = render(<Headline text={`Run ${"x".repeat(100)}`} />);
    const box = screen.getByRole("group", { name: "What is asked" });
    expect(box.tabIndex).toBe(0);
    const tall = (whole: number, seen: number) => {
      Object.defineProperty(box, "scrollHeight", { value: whole, configurable: true });
      Object.defineProperty(box, "clientHeight", { value: seen, configurable: true });
      act(() => {
        for (const look of looks) look();
      });
    };
    tall(40, 40);
    expect(container.textContent).not.toContain("It goes on");
    tall(80, 40);
    expect(container.textContent).toContain("It goes on: scroll it");
    tall(80, 80);
    expect(container.textContent).not.toContain("It goes on");
    unmount();
  });

  it("is no stop for the keyboard where it cannot need to scroll", () => {
    const { container } = render(<Headline text="Run ls" />);
    expect(container.querySelector("[tabindex]")).toBeNull();
  });
});
