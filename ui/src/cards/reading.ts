// Reading what a machine or an agent sent, of which nothing is certain: a value of the wanted kind, or a plain absence.
// It never throws and never trusts a type that was only declared.

export type Fields = Record<string, unknown>;

export const textOf = (value: unknown): string | null => (typeof value === "string" ? value : null);

export const numberOf = (value: unknown): number | null =>
  typeof value === "number" && Number.isFinite(value) ? value : null;

export const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

export const fieldsOf = (value: unknown): Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};

export const textsOf = (value: unknown): string[] => listOf(value).filter((each) => typeof each === "string");

/** JSON for people: on one line where it is short. */
export function json(value: unknown): string {
  const line = JSON.stringify(value) ?? String(value);
  return line.length <= 80 ? line : JSON.stringify(value, null, 1);
}
