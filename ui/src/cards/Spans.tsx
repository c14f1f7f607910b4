// For how long an answer holds.

const MINUTES = [
  [30, "30 minutes"],
  [60, "1 hour"],
  [120, "2 hours"],
  [480, "8 hours"],
  [1440, "24 hours"],
] as const;

export function Spans({ value, choose }: { value: number; choose: (minutes: number) => void }) {
  return (
    <label className="card-field">
      <span>For</span>
      <select value={value} onChange={(event) => choose(Number(event.target.value))} autoComplete="off">
        {MINUTES.map(([minutes, text]) => (
          <option key={minutes} value={minutes}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
