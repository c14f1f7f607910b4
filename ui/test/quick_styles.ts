// The tests load no style sheet, so all that a computed style could tell is what the element itself says. Asking jsdom
// for it all the same, for every element on the way up, is most of the time of a query by role.

const INLINE = new Set("A ABBR B BDI CODE EM I KBD LABEL MARK SMALL SPAN STRONG SUB SUP TIME".split(" "));

function displayOf(element: Element): string {
  if (element.hasAttribute("hidden")) return "none";
  if (/^(BUTTON|INPUT|SELECT|TEXTAREA)$/.test(element.tagName)) return "inline-block";
  return INLINE.has(element.tagName) ? "inline" : "block";
}

function quick(element: Element): CSSStyleDeclaration {
  const told: Record<string, unknown> = { display: displayOf(element), visibility: "visible", pointerEvents: "auto" };
  told.getPropertyValue = (name: string) => told[name] ?? "";
  return told as unknown as CSSStyleDeclaration;
}

let real: typeof window.getComputedStyle | null = null;

export function quickStyles(): void {
  if (typeof window === "undefined" || window.getComputedStyle === quick) return;
  real = window.getComputedStyle;
  window.getComputedStyle = quick;
}

/** For what looks at real styles, such as axe. */
export async function withRealStyles<T>(work: () => Promise<T>): Promise<T> {
  if (real !== null) window.getComputedStyle = real;
  try {
    return await work();
  } finally {
    if (real !== null) window.getComputedStyle = quick;
  }
}

quickStyles();
