// What a browser keeps for the chat: small texts by name. A convenience that may be switched off or full, never a secret,
// and never needed for what is shown to be right.

export interface Kept {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
  /** Takes away what a person wrote and opened, of all that begins like this. */
  forget(prefix: string): void;
}

/** What says something of the person: what they wrote, and where they were. The rest is how they like things. */
const PERSONAL = ["draft ", "sending ", "session ", "project", "user"];

/** Which names of a host hold something of the person. */
export function isPersonal(key: string): boolean {
  return PERSONAL.some((start) => key.startsWith(start));
}

/** The browser's storage, or the memory of this page where the browser gives none or it is full. */
export function storage(): Kept {
  const memory = new Map<string, string>();
  const removeItem = (key: string) => {
    memory.delete(key);
    attempt(() => localStorage.removeItem(key));
  };
  return {
    getItem: (key) => memory.get(key) ?? attempt(() => localStorage.getItem(key)),
    setItem: (key, value) => {
      const kept = attempt(() => {
        localStorage.setItem(key, value);
        return true;
      });
      if (kept) memory.delete(key);
      else {
        removeItem(key); // what was kept before must not come back in its place
        memory.set(key, value);
      }
    },
    removeItem,
    forget: (prefix) => {
      const names = [...memory.keys(), ...(attempt(() => Object.keys(localStorage)) ?? [])];
      for (const name of names) {
        if (name.startsWith(prefix) && isPersonal(name.slice(prefix.length))) removeItem(name);
      }
    },
  };
}

function attempt<T>(work: () => T): T | null {
  try {
    return work();
  } catch {
    return null; // Storage is switched off or full: what is remembered is a convenience.
  }
}
