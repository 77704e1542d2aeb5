"""Run commands as forks of one process that has imported their modules, because imports take longer than most commands.

Each is a process with separate arguments, folder, environment, input and output. Commands in new processes are tested in
`tests/test_wheel.py`, `tests/test_first_lines.py` and on the pages that run without forks.

    python tests/ragmeter/forks.py serve SOCKET             # runs the requested commands one after another
    python tests/ragmeter/forks.py ask SOCKET SITE WORDS…   # `ragmeter WORDS…` with packages that were installed in SITE
"""

from __future__ import annotations

import json
import os
import socket
import sys

PACKAGES = ("benchmarks", "methods", "judges", "results", "ragmeter")
LIBRARIES = (
    "pandas",
    "scipy.special",
    "bm25s",
    "openai",
    "sentence_transformers",
    "transformers.models.bert.modeling_bert",
    "leaderboard.report",
)


def serve(address: str) -> None:
    import contextlib
    import gc
    import importlib
    import pkgutil

    for package in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                # A missing library fails where it is used.
                with contextlib.suppress(Exception):
                    importlib.import_module(module.name)
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        while True:
            connection, _ = listening.accept()
            with connection:
                text, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
                child = os.fork()
                if child == 0:
                    connection.close()
                    listening.close()
                    run(json.loads(text), streams)
                for stream in streams:
                    os.close(stream)
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                connection.sendall(str(code).encode())


def run(query: dict[str, object], streams: list[int]) -> None:
    """Do in a fork what `python -m ragmeter.cli` does in another process."""
    import atexit
    import site
    import traceback

    from ragmeter.cli import main

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # Old file objects remember whether they were seekable.
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, buffering=1, closefd=False) for number, mode in enumerate("rww"))
    os.chdir(str(query["folder"]))
    os.environ.clear()
    os.environ.update(query["environment"])  # type: ignore[call-overload]
    sys.path[0] = str(query["folder"])
    site.addsitedir(str(query["site"]))
    sys.argv = ["ragmeter", *query["words"]]  # type: ignore[misc]
    code = 1
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        # Python's normal exit would first walk through all imported modules.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code)


def ask(address: str, packages: str, words: list[str]) -> int:
    query = {"folder": os.getcwd(), "environment": dict(os.environ), "site": packages, "words": words}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(query).encode()], [0, 1, 2])
        return int(connection.recv(16))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(ask(sys.argv[2], sys.argv[3], sys.argv[4:]))
