// For how long an answer holds.

import { Choose } from "../parts/Choose";

const CHOICES = [
  { value: 30, text: "30 minutes" },
  { value: 60, text: "1 hour" },
  { value: 120, text: "2 hours" },
  { value: 480, text: "8 hours" },
  { value: 1440, text: "24 hours" },
] as const;

export function Spans({ value, choose }: { value: number; choose: (minutes: number) => void }) {
  return <Choose label="For" value={value} choices={CHOICES} choose={choose} />;
}
