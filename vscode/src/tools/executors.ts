// The editor's own hands on the engine: files, commands and paths of the connected folder, for the person at the editor.
// The engine's gate, bounds and sandbox hold for each; nothing is opened or started from here.

import type { Engine } from "../engine/engine.js";

type Asks = Pick<Engine, "ask">;
type Result = Readonly<Record<string, unknown>>;

export class FileSystemExecutor {
  constructor(private readonly engine: Asks) {}

  executeReadFile(path: string): Promise<Result> {
    return run(this.engine, "read_file", { path });
  }

  executeWriteFile(path: string, content: string, mode: "write" | "append" = "write"): Promise<Result> {
    return run(this.engine, "write_file", { path, content, mode });
  }

  executeListDirectory(path: string, recursive = false, pattern = "*"): Promise<Result> {
    return run(this.engine, "list_directory", { path, recursive, pattern });
  }
}

export class CommandExecutor {
  constructor(private readonly engine: Asks) {}

  /** `timeout` in seconds. */
  executeCommand(command: string, args: readonly string[] = [], timeout = 30): Promise<Result> {
    return run(this.engine, "execute_command", { command, args: [...args], timeout });
  }
}

export class PathValidator {
  constructor(private readonly engine: Asks) {}

  async validatePath(path: string): Promise<{ valid: boolean; error: string | null; realPath: string | null }> {
    const { error, real_path: realPath, valid } = await this.engine.ask("path/resolve", { path });
    return { valid, error, realPath };
  }
}

async function run(engine: Asks, tool_name: string, tool_params: Record<string, unknown>): Promise<Result> {
  return (await engine.ask("tool/run", { tool_name, tool_params })).result;
}
