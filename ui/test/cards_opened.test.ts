import { act, cleanup, renderHook } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { useOpened } from "../src/cards/opened";
import { host } from "./cards_samples";

afterEach(cleanup);

test("very many opened cards are not all remembered: the oldest are forgotten", () => {
  const place = host();
  const opened = (id: string) => renderHook(() => useOpened(place, id, false)).result.current;
  for (let count = 0; count <= 300; count += 1) {
    const [, toggle] = opened(`c${count}`);
    act(toggle);
  }
  expect(opened("c0")[0]).toBe(false);
  expect(opened("c1")[0]).toBe(true);
  expect(renderHook(() => useOpened(host(), "c1", false)).result.current[0]).toBe(false);
});

test("what ran in sight stays in sight, unless the person closed it", () => {
  const place = host();
  const view = renderHook(({ live }) => useOpened(place, "c", live), { initialProps: { live: true } });
  view.rerender({ live: false });
  expect(view.result.current[0]).toBe(true);
  act(() => view.result.current[1]());
  expect(view.result.current[0]).toBe(false);
});
