// Why a request did not work, in the server's words, safe to show.

import { Problem } from "../api";
import { visible } from "../text/visible";

/** What went wrong with a request, with what to do about it. */
export function told(error: unknown): string {
  if (error instanceof Problem) return visible(error.hint ? `${error.message} ${error.hint}` : error.message);
  return error instanceof Error ? visible(error.message) : "It did not work.";
}
