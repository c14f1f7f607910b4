// How an execution ended, in the two forms it is needed: the report for the server, and the line of the history (C7). The
// history keeps small results only; the server has the rest.

import type { ClientResult, ClientResultStatus, CompletedReport, ErrorType, FailedReport } from "@protocol";
import { type Params, shownParams } from "../gate/index.js";
import { type ByleaveError, ExecutionTimeout } from "./errors.js";
import type { AnyResult } from "./Workspace.js";
import { firstCharacters } from "./words.js";

const KEPT_RESULT_BYTES = 4096;
const MAX_ERROR_CHARACTERS = 1000;
const STATUS: Partial<Record<ErrorType, ClientResultStatus>> = {
  execution_timeout: "timeout",
  cancelled: "cancelled",
};

/** One execution's end: its result, or the error that stands for one. */
export interface Ending {
  readonly toolId: string;
  readonly toolName: string;
  readonly outcome: { readonly result: AnyResult } | { readonly error: ByleaveError };
  readonly durationMs: number;
  readonly timestamp: string;
}

type Json = Record<string, unknown>;

/** The report as it is posted. */
export function reportOf({ durationMs: duration_ms, outcome, timestamp }: Ending): string {
  if ("result" in outcome) {
    const report: CompletedReport = {
      status: "completed",
      result: outcome.result as unknown as Json,
      duration_ms,
      timestamp,
    };
    return JSON.stringify(report);
  }
  const { error } = outcome;
  const partial = error instanceof ExecutionTimeout ? error.partial : null;
  const report: FailedReport = {
    status: "failed",
    error: sentenceOf(error),
    error_type: error.errorType,
    result: partial as Json | null,
    duration_ms,
    timestamp,
  };
  return JSON.stringify(report);
}

/** The line of the history; `size` is that of the report. */
export function summaryOf(end: Ending, size: number): ClientResult {
  const { outcome } = end;
  const base = { tool_id: end.toolId, tool_name: end.toolName, duration_ms: end.durationMs, timestamp: end.timestamp };
  if ("error" in outcome) {
    const { errorType: error_type } = outcome.error;
    return {
      ...base,
      status: STATUS[error_type] ?? "error",
      result: null,
      error: sentenceOf(outcome.error),
      error_type,
    };
  }
  const { result } = outcome;
  const kept = size <= KEPT_RESULT_BYTES ? (result as unknown as Json) : null;
  return { ...base, status: result.success ? "success" : "error", result: kept, error: result.error, error_type: null };
}

function sentenceOf(error: ByleaveError): string {
  return firstCharacters(error.sentence.replace(/\p{Cs}/gu, "?"), MAX_ERROR_CHARACTERS);
}

/** The arguments for the log: without what would be written to a file, which may be a secret of any form. */
export function loggedParams(tool: string, params: Params): Readonly<Record<string, unknown>> {
  const shown = shownParams(tool, params);
  return "content" in shown ? { ...shown, content: "(left out)" } : shown;
}
