"""Runs inside the sandbox, under strace: starts each line of a batch in turn and notes how it ended.

Alone on the standard library, since nothing else is there. Its own work comes before the first execve of each line, or
lies in another process, so that a line's trace holds the line alone.
"""

import json
import os
import resource
import select
import signal
import sys
import time

OUTPUT_BYTES = 16 * 1024**2
MEMORY_BYTES = 1024**3


def run_one(argv: list[str], env: dict[str, str], output: int, seconds: float) -> dict[str, object]:
    """Start one program with nothing as its input, and wait for its end, or end it."""
    os.ftruncate(output, 0)
    os.lseek(output, 0, os.SEEK_SET)
    actions = [(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
    began = time.monotonic()
    pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setpgroup=0)
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    ended = bool(poll.poll(seconds * 1000))
    if not ended:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(handle)
    code = os.waitstatus_to_exitcode(status)
    return {"pid": pid, "code": code, "ended": ended, "seconds": time.monotonic() - began}


def main() -> None:
    directory, workspace = sys.argv[1:]
    with open(os.path.join(directory, "batch.json"), encoding="utf-8") as file:
        batch = json.load(file)
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_BYTES, OUTPUT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(workspace)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # Not /dev/null: grep then stops at the first match. Appending, as a pipe would; and nobody's input.
    output = os.open(os.path.join(directory, "output"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    until = time.monotonic() + batch["total_seconds"]
    results: list[dict[str, object]] = []
    for argv in batch["lines"]:
        if time.monotonic() > until:
            break
        results.append(run_one(argv, batch["env"], output, batch["line_seconds"]))
    with open(os.path.join(directory, "results.json"), "w", encoding="utf-8") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main()
