// A disk that is full when a test says so. For `vi.mock` of the module that writes: it imports nothing of what it stands in for.

import type * as Io from "../../src/tools/io.js";

export const disk = { full: false };

/** The real module; only writing is refused while the disk is full. */
export async function onThatDisk(original: () => Promise<typeof Io>): Promise<typeof Io> {
  const real = await original();
  const refused = () => Promise.reject(Object.assign(new Error("ENOSPC"), { code: "ENOSPC" }));
  return { ...real, writeAsync: (...given) => (disk.full ? refused() : real.writeAsync(...given)) };
}
