// How long tests wait for something to become so. Nothing here sleeps for a fixed time.

import { vi } from "vitest";

export const PATIENT = { timeout: 20_000, interval: 5 };

export async function until(so: () => unknown): Promise<void> {
  await vi.waitFor(so, PATIENT);
}
