// Reads the page anew, where nothing less helps.

export function reload(): void {
  location.reload();
}
