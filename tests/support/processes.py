"""`python -m tests.support.processes PROGRAM ARGUMENT... FOLDER FOLDER`: run a program in one process, and in a group of two.

The program's last argument is the first folder, or, in the group, the second one. Its modules are imported once, before the
processes are forked, because imports take longer than the tests' programs.
"""

from __future__ import annotations

import ast
import gc
import os
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path


def start(arguments: list[str], **variables: str) -> int:
    """Run a program in a child process with environment variables; return the child's id."""
    child = os.fork()
    if child:
        return child
    os.environ |= variables
    sys.argv = arguments
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main() -> int:
    """Run the program of the command line three times; stop at the first failure."""
    import accelerate  # noqa: F401
    import transformers.modeling_utils  # noqa: F401

    *common, one, two = sys.argv[1:]
    body = [node for node in ast.parse(Path(common[0]).read_text("utf-8")).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    exec(compile(ast.Module([*body], []), common[0], "exec"), {})
    # Garbage collections need not visit shared objects.
    gc.freeze()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    running = {start([*common, one], RANK="0")}
    running |= {start([*common, two], RANK=rank, LOCAL_RANK=rank, **group) for rank in "01"}
    while running:
        child, status = os.wait()
        running.discard(child)
        if status:
            for other in running:
                os.kill(other, signal.SIGKILL)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
