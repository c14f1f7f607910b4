// The text of React nodes, without what they look like. It makes nothing to show by itself.

import type { ReactNode } from "react";

export function flat(node: ReactNode): string {
  if (typeof node === "string" || typeof node === "number") return String(node);
  if (Array.isArray(node)) return node.map(flat).join("");
  if (node && typeof node === "object" && "props" in node) {
    return flat((node.props as { children?: ReactNode }).children);
  }
  return "";
}
