// Text for a notification. The editor makes a link of `[words](address)` there, also of one to a command, which a click
// would run. Words from elsewhere must be shown and never be a button, so the form is broken up.

/** The same words without a link in them. */
export function notice(text: string): string {
  return text.replaceAll("](", "] (");
}
