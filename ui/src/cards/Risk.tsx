// How risky a call is, as a word: never by colour alone.

import type { RiskLevel } from "@protocol";

export function Risk({ level }: { level: RiskLevel }) {
  return (
    <span className={`card-risk card-risk-${level}`}>
      {level}
      <span className="card-said"> risk</span>
    </span>
  );
}
