// Whether the person looks at this tab.

export function inSight(): boolean {
  return document.visibilityState === "visible" && document.hasFocus();
}

/** Calls back whenever that may have changed. Returns how to stop it. */
export function onSight(changed: () => void): () => void {
  const looking = new AbortController();
  const { signal } = looking;
  document.addEventListener("visibilitychange", changed, { signal });
  window.addEventListener("focus", changed, { signal });
  window.addEventListener("blur", changed, { signal });
  return () => looking.abort();
}
