"""The process group of a training: one process per GPU, or several on a CPU, as `torchrun` starts them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from ragmeter.runner.side_by_side import THREADS, cores

LOOK_S = 0.1
TAIL = 4000
"""Characters of what a failed process wrote that are shown."""


def run_group(command: Sequence[str], count: int) -> int:
    """Run a command as processes that train together; if one fails, the others are ended.

    Args:
        command: Of each process. Only the first one writes to standard output and error.
        count: Number of processes.

    Returns:
        The exit code of the first process that failed; 0 if none did.
    """
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    shared[THREADS] = os.environ.get(THREADS) or str(max(1, cores() // count))
    with tempfile.TemporaryFile() as quiet:
        processes = [
            subprocess.Popen(
                command,
                env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=quiet if rank else None,
                stderr=quiet if rank else None,
            )
            for rank in range(count)
        ]
        try:
            while any(process.poll() is None for process in processes):
                if any(process.poll() for process in processes):
                    break
                time.sleep(LOOK_S)
            failed = next((process for process in processes if process.poll()), None)
        except KeyboardInterrupt:
            # A terminal interrupts the whole group; each process keeps what it has finished.
            processes[0].wait()
            raise
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()
        if failed is None:
            return 0
        if failed is not processes[0]:
            quiet.seek(0)
            sys.stderr.write(quiet.read().decode("utf-8", "replace")[-TAIL:])
        return failed.returncode if failed.returncode > 0 else 1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def without_option(arguments: Sequence[str], name: str) -> list[str]:
    """Return command-line arguments without an option and its value."""
    results, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == name:
            skip = True
        elif not argument.startswith(f"{name}="):
            results.append(argument)
    return results
