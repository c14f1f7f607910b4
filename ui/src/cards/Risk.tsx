// How risky a call is, in words: never by colour alone.

import type { RiskLevel } from "@protocol";

export const RISKS: Record<RiskLevel, string> = { LOW: "Low risk", MEDIUM: "Medium risk", HIGH: "High risk" };

export function Risk({ level }: { level: RiskLevel }) {
  return <span className={`card-risk card-risk-${level}`}>{RISKS[level] ?? level}</span>;
}
