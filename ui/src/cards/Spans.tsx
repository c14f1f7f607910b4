// For how long an answer holds.

import { Choose } from "../parts/Choose";

const CHOICES = [
  { value: 30, text: "30 minutes" },
  { value: 60, text: "1 hour" },
  { value: 120, text: "2 hours" },
  { value: 480, text: "8 hours" },
  { value: 1440, text: "24 hours" },
] as const;
const DAYS = [
  { value: 1440, text: "24 hours" },
  { value: 7 * 1440, text: "7 days" },
  { value: 14 * 1440, text: "14 days" },
  { value: 30 * 1440, text: "30 days" },
] as const;

interface SpansProps {
  value: number;
  choose: (minutes: number) => void;
  /** For what holds in a whole project. */
  long?: boolean;
}

export function Spans({ value, choose, long = false }: SpansProps) {
  return <Choose<number> label="For" value={value} choices={long ? DAYS : CHOICES} choose={choose} />;
}
