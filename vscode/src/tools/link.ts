// What the client needs of the server, and how long it waits between tries. `ServerApi` is a `Link`; every failure is one of
// the named errors, so that callers decide by class.

import type {
  ApproveBody,
  DecisionAnswer,
  Execution,
  Inspection,
  OutputChunk,
  RejectBody,
  UndoReport,
  WholeCall,
  WriteChange,
} from "@protocol";

export interface Link {
  postResult(projectId: string, toolId: string, report: string): Promise<unknown>;
  postOutput(projectId: string, toolId: string, chunk: OutputChunk): Promise<void>;
  postInspection(projectId: string, toolId: string, inspection: Inspection): Promise<void>;
  postUndoReport(projectId: string, toolId: string, report: UndoReport): Promise<void>;
  getTool(toolId: string): Promise<Pick<Execution, "status">>;
  approve(projectId: string, approvalId: string, body: ApproveBody): Promise<DecisionAnswer>;
  reject(projectId: string, approvalId: string, body: RejectBody): Promise<DecisionAnswer>;
  wholeCall(approvalId: string): Promise<WholeCall>;
  change(approvalId: string): Promise<WriteChange>;
}

/** Milliseconds before the next try: doubling, with jitter so that many clients do not come at once. */
export function pauseBefore(attempt: number, first = 100, longest = 5_000): number {
  return Math.min(longest, first * 2 ** attempt) * (0.5 + Math.random() / 2);
}
