// Errors by who can act, the same as in Python:
//
// ByleaveError
// ├── CallerError            your call is wrong: fix it
// │   └── NotFound               no such project or call for this user
// ├── RefusedError           the gate, a rule or the token says no; asking again changes nothing
// │   ├── RejectedError          the person said no
// │   └── DriftedError           a file is no longer the one that was approved; nothing ran, ask again
// ├── ToolApprovalTimeout    nobody answered in time; nothing ran
// ├── MachineError           the user's machine
// │   ├── NoClient               none was connected; nothing ran
// │   ├── ToolFailure            the tool ran and failed: no such file, no permission, disk full
// │   ├── ExecutionTimeout       it exceeded its time limit
// │   ├── ExecutionCancelled     cancelled, by you or by the person
// │   └── ExecutionInterrupted   the client died while it ran; it may have had its effect
// ├── ConflictError          somebody was faster
// ├── ConfigurationError     a setting is wrong or missing: the address, the token
// │   └── SignedOut              the server does not accept the token: wrong or expired
// └── UnreachableError       no answer from the server

import type { ErrorType, ToolResponse } from "./protocol.js";

/** An error with what to do next. */
export class ByleaveError extends Error {
  constructor(
    message: string,
    /** What to do next. */
    readonly hint?: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = new.target.name;
  }

  override toString(): string {
    return this.hint ? `${this.name}: ${this.message}\nhint: ${this.hint}` : `${this.name}: ${this.message}`;
  }
}

export class CallerError extends ByleaveError {}
export class NotFound extends CallerError {}
export class RefusedError extends ByleaveError {}
export class RejectedError extends RefusedError {}
export class DriftedError extends RefusedError {}
export class ToolApprovalTimeout extends ByleaveError {}
export class MachineError extends ByleaveError {}
export class NoClient extends MachineError {}
export class ToolFailure extends MachineError {}
export class ExecutionTimeout extends MachineError {}
export class ExecutionCancelled extends MachineError {}
export class ExecutionInterrupted extends MachineError {}
export class ConflictError extends ByleaveError {}
export class ConfigurationError extends ByleaveError {}
export class SignedOut extends ConfigurationError {}
export class UnreachableError extends ByleaveError {}

const KINDS: Record<ErrorType, new (message: string, hint?: string) => ByleaveError> = {
  invalid: CallerError,
  refused: RefusedError,
  rejected: RejectedError,
  drifted: DriftedError,
  approval_timeout: ToolApprovalTimeout,
  no_client: NoClient,
  cancelled: ExecutionCancelled,
  interrupted: ExecutionInterrupted,
  execution_timeout: ExecutionTimeout,
  tool_error: ToolFailure,
  internal: ByleaveError,
};

/** Hints for calls that come back without one. */
const ADVICE: Partial<Record<ErrorType, string>> = {
  rejected: "the user said no; do not ask for the same again, choose another way or ask what they prefer",
  approval_timeout: "nobody answered in time and nothing ran; say so and let the user decide",
  no_client: "no machine of the user is connected; say so, nothing can run until it is",
  interrupted: "find out whether it had its effect before you try again",
  cancelled: "the user called it off",
};

/** What to do after a call that did not complete. */
export function hintOf(response: ToolResponse): string | undefined {
  return response.hint ?? (response.error_type ? ADVICE[response.error_type] : undefined);
}

/** The error for a call that did not complete. */
export function errorOf(response: ToolResponse): ByleaveError {
  const kind = response.error_type ? KINDS[response.error_type] : ByleaveError;
  return new kind(response.error ?? `The call ended as ${response.status}.`, hintOf(response));
}
