// The key that the cookie is nothing without. Browsers send a cookie to every port of a host; what is kept here is read by
// this origin alone, port and all. The answer to a sign-in link puts it there (`src/byleave/server/pages.py`), with the
// name of the person it is for. A tab uses only keys of the person it began with: it never acts in another's name.

import { reload } from "./app/reload";

export const PAGE_KEY = "byleave-page-key";
const HEADER = "Byleave-Page-Key";

interface Kept {
  key: string;
  user: string;
}

export class PageKey {
  readonly #user = read()?.user ?? null;
  readonly #anew: () => void;
  /** Once it is out, a tab comes back by being loaded anew only. */
  #out = false;

  constructor(anew: () => void = reload) {
    this.#anew = anew;
    window.addEventListener("storage", ({ key }) => {
      if (key === PAGE_KEY) this.#changed();
    });
  }

  /** The key as it is now: a sign-in of the same person in another tab replaces it. */
  current(): string | null {
    const kept = read();
    return kept !== null && kept.user === this.#user ? kept.key : null;
  }

  headers(): Record<string, string> {
    const key = this.current();
    return key === null ? {} : { [HEADER]: key };
  }

  /** The server refused what was sent with this key. Whether it is worth asking again: there is another by now. */
  refused(sent: string | null): boolean {
    const now = this.current();
    if (now !== null && now !== sent) return true;
    // Back from where the browser had put it aside, a tab finds somebody else's without having been told.
    if (now === null) this.#changed();
    this.#out = true;
    return false;
  }

  /** Whether the person who began here has left meanwhile, as a page finds that the browser had put aside. */
  hasLeft(): boolean {
    if (this.#user === null || this.current() !== null) return false;
    this.#changed(); // where somebody else is here now it is read anew
    this.#out = true;
    return true;
  }

  forget(): void {
    this.#out = true;
    try {
      localStorage.removeItem(PAGE_KEY);
    } catch {
      // Where nothing can be kept there is nothing to forget.
    }
  }

  /** Somebody signed in or out in another tab: who was out is in again, and what is shown of somebody else goes. */
  #changed(): void {
    const kept = read();
    if (kept === null) {
      this.#out = true;
      return;
    }
    const another = kept.user !== this.#user;
    // The place in the address is one of the person before, and of no use to this one.
    if (another && this.#user !== null) history.replaceState(null, "", "/");
    if (another || this.#out) this.#anew();
  }
}

function read(): Kept | null {
  const [key = "", ...user] = (attempt() ?? "").split(" ");
  return key === "" ? null : { key, user: user.join(" ") };
}

function attempt(): string | null {
  try {
    return localStorage.getItem(PAGE_KEY);
  } catch {
    return null;
  }
}

/** Whether this browser keeps anything for this page: without that nobody can be signed in. */
export function keepsKeys(): boolean {
  try {
    const probe = `${PAGE_KEY} probe`;
    localStorage.setItem(probe, "");
    localStorage.removeItem(probe);
    return true;
  } catch {
    return false;
  }
}
