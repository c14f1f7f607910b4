// Where a draft is kept, and how what comes back is put into it. Tabs share what is kept: a field's own text counts more.

export const draftKey = (projectId: string, sessionId: string | null) => `draft ${projectId} ${sessionId ?? "new"}`;

/** What comes back stands before what was typed since. */
export function withReturned(returned: string, typed: string | null): string {
  return typed ? `${returned}\n\n${typed}` : returned;
}
