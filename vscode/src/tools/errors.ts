// What can go wrong, by who can act. Every message stands alone as a sentence; `hint` says what to do next. `errorType` is
// how it is recorded on the server. The names are those of the Python client and of the specification.

import { getSystemErrorMap } from "node:util";
import type { ErrorType, ExecuteCommandResult } from "@protocol";

export class ByleaveError extends Error {
  readonly errorType: ErrorType = "internal";
  readonly hint: string | null;

  constructor(message: string, hint: string | null = null) {
    super(message);
    this.name = new.target.name;
    this.hint = hint;
  }

  /** The message and what to do, as it is reported. */
  get sentence(): string {
    return this.hint === null ? this.message : `${this.message}\nhint: ${this.hint}`;
  }
}

/** The agent or who calls: fix the call. */
export class CallerError extends ByleaveError {
  override readonly errorType: ErrorType = "invalid";
}

/** No such tool, or an execution nobody announced. */
export class ToolTypeError extends CallerError {}

export class InvalidParameters extends CallerError {}

export class NotFound extends CallerError {}

/** A person or a rule says no; asking again changes nothing. */
export class RefusedError extends ByleaveError {
  override readonly errorType: ErrorType;

  constructor(message: string, hint: string | null = null, errorType: ErrorType = "refused") {
    super(message, hint);
    this.errorType = errorType;
  }
}

/** A path outside the workspace, or one never to be touched. */
export class PathValidationError extends RefusedError {}

export class CommandNotAllowed extends RefusedError {}

/** What would run, or be replaced, is not what was approved. */
export class DriftedError extends RefusedError {
  constructor(message: string, hint: string | null = null) {
    super(message, hint, "drifted");
  }
}

/** Somebody was faster. */
export class ConflictError extends ByleaveError {
  override readonly errorType: ErrorType = "invalid";

  constructor(
    message: string,
    readonly state: string,
    hint: string | null = null,
  ) {
    super(message, hint);
  }
}

/** The user's machine: no such file, no permission, disk full. */
export class MachineError extends ByleaveError {
  override readonly errorType: ErrorType = "tool_error";
}

/** The tool ran and failed. */
export class ToolFailure extends MachineError {}

export class ExecutionTimeout extends MachineError {
  override readonly errorType = "execution_timeout";

  constructor(
    message: string,
    hint: string | null = null,
    /** What a command had printed until then. */
    readonly partial: ExecuteCommandResult | null = null,
  ) {
    super(message, hint);
  }
}

export class ExecutionCancelled extends MachineError {
  override readonly errorType = "cancelled";
}

/** The queue is full. */
export class ConcurrencyLimitError extends MachineError {}

/** Nobody answered in time. */
export class ToolApprovalTimeout extends ByleaveError {
  override readonly errorType = "approval_timeout";
}

/** A setting is wrong or missing. */
export class ConfigurationError extends ByleaveError {}

/** The server cannot be reached; another try may help. */
export class UnreachableError extends ByleaveError {}

/** What the operating system says of a file. */
export function osError(code: string): NodeJS.ErrnoException {
  return Object.assign(new Error(code), { code });
}

export function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : undefined;
}

/** What the operating system means by its code, for people: "no space left on device". */
export function systemWords(error: unknown): string {
  const code = codeOf(error) ?? "unknown";
  return [...getSystemErrorMap().values()].find(([name]) => name === code)?.[1] ?? code;
}

/** Whether the operating system says one of these. */
export function isCode(error: unknown, ...codes: readonly string[]): boolean {
  return codes.includes(String(codeOf(error)));
}

/** What kind of error it is, where its words could hold too much. */
export function kindOf(error: unknown): string {
  return error instanceof Error ? error.name : typeof error;
}

/** Pass over what the operating system says; anything else is thrown. */
export function onlyOs(error: unknown): asserts error is NodeJS.ErrnoException {
  if (!isOsError(error)) {
    throw error;
  }
}

/** Whether it is an error of the operating system rather than one of ours or of the program. */
export function isOsError(error: unknown): error is NodeJS.ErrnoException {
  return !(error instanceof ByleaveError) && codeOf(error) !== undefined;
}
