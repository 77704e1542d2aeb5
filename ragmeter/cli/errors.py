"""End commands: exit codes, and messages for errors. docs/_site/facts.yaml has the table.

An error is one message on standard error, `error: …` for people or one JSON object for programs, wherever it comes
from: the parser of the command line, the input, or a fault of ours. Standard output never holds any of it.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import typer

from benchmarks.core.errors import Broke, UserError, message_of, nearest, refused

FINE, BROKE, WRONG, INTERRUPTED, UNREAD, HUNG_UP, TERMINATED = 0, 1, 2, 130, 141, 129, 143
"""Exit codes; 3 is `Incomplete`, and `gate` adds 100 (regressed) and 101 (inconclusive).

The last is what shells return for a broken pipe.
"""

_PARSER_ERROR: Any = next(item for item in typer.BadParameter.__mro__ if item.__name__ == "ClickException")
"""Exception class of typer's parser; newer typers define it, older ones take it from click."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP})
_FULL_DISK = re.compile(
    r"No space left on device|Disk quota exceeded|inline_container.*unexpected pos \d+ vs|PytorchStreamWriter failed writing"
)
"""Messages of exceptions in which safetensors and torch report a full disk."""
_LOST_RANK = re.compile(r"\bgloo\b|\bNCCL\b", re.IGNORECASE)
"""Libraries over which the processes of a group train together."""
_NAMED = re.compile(r"No such (command|option):? '?([^'\s]+?)'?[. ]")


def tolerant() -> None:
    """Make standard output accept every text: characters that its encoding lacks become question marks.

    Output to a closed stream is discarded, as `ragmeter … >&-` asks for.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w", encoding="utf-8"))
    change = getattr(sys.stdout, "reconfigure", None)
    if change is not None:
        change(errors="replace")


def end_process(codes: Sequence[int]) -> None:
    """End the process without collecting every object of every module, which took a sixth of a short command's time.

    Registered with `atexit` before all other functions, it runs after them.

    Args:
        codes: The exit code; empty if the command raised, which leaves the process to Python.
    """
    for stream in (sys.stdout, sys.stderr) if codes else ():
        with suppress(OSError, ValueError):
            stream.flush()
    if codes:
        os._exit(codes[0])


class _Termination(KeyboardInterrupt):
    """SIGTERM or SIGHUP, handled as Ctrl-C is."""


def run_command(app: Any) -> int:
    """Run the command line (a Typer app or a click command) and return the exit code.

    SIGTERM (from schedulers and containers) and SIGHUP (a closed terminal) act like Ctrl-C: finished work is stored, and the
    run is marked as interrupted. The exit code is then 143 or 129.
    """
    if threading.current_thread() is not threading.main_thread():
        return _run(app)
    terminated = 0

    def terminate(number: int, _: object) -> None:
        nonlocal terminated
        # A second signal must not break what the first one has begun: storing what is finished.
        if not terminated:
            terminated = number
            raise _Termination

    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # `nohup` has SIGHUP ignored.
    before = {number: signal.signal(number, terminate) for number in known if signal.getsignal(number) != signal.SIG_IGN}
    try:
        code = _run(app)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 + terminated if terminated and code == INTERRUPTED else code


def _run(app: Any) -> int:
    as_json = "--json" in sys.argv
    try:
        with _for_programs() if as_json and not {"--help", "-h"} & set(sys.argv) else nullcontext():
            code = app(standalone_mode=False, prog_name="ragmeter")
        # Remaining output is written here, where a failure can still be reported.
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output went away (`ragmeter list runs | head`).
        _to_nowhere()
        return UNREAD
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        try:
            return _failed(error, as_json, app)
        finally:
            _drop_unwritable()
    if code == INTERRUPTED:
        _stopped("interrupted", as_json)
    return code if isinstance(code, int) else FINE


def _for_programs() -> AbstractContextManager[None]:
    from ragmeter.show.console import only_json

    return only_json()


def _to_nowhere() -> None:
    """Redirect the rest of standard output's buffer to the null device, since Python would complain at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _drop_unwritable() -> None:
    """Discard the buffer of standard output if it can no longer be written."""
    try:
        sys.stdout.flush()
    except OSError:
        _to_nowhere()


def _failed(error: Any, as_json: bool, app: Any) -> int:
    if isinstance(error, UserError):
        _say(error, as_json)
        return error.exit_code
    if type(error).__name__ == "NoArgsIsHelpError":
        # A command without required arguments shows its usage; only newer versions of click treat that as an error.
        sys.stdout.write(error.format_message() + "\n")
        return FINE
    if isinstance(error, _PARSER_ERROR):
        _say(wrong_usage(error, app), as_json)
        return WRONG
    if getattr(error, "exit_code", None) == INTERRUPTED:
        _stopped(message_of(error), as_json)
        return INTERRUPTED
    if {"--verbose", "-v"} & set(sys.argv):
        raise error
    if isinstance(error, OSError) and error.filename is not None:
        # A path that no command checked before: the error comes from the system, not from ragmeter.
        response = refused(error, what="this file or folder cannot be used", try_this="--verbose shows its purpose")
        _say(response, as_json)
        return response.exit_code
    if isinstance(error, OSError) and error.errno in _FULL:
        # Writing names no place; it is standard output, unless the command was asked for a file.
        response = refused(error, what="the output could not be written", try_this="free some space, then try again")
        _say(response, as_json)
        return BROKE
    if isinstance(error, OSError) and error.errno in _NO_LOCKS:
        remedy = "keep the store (--store FOLDER) and the cache (RAGMETER_CACHE) on a local disk"
        _say(UserError(f"this file system has no file locks: {error.strerror}", code="no-file-locks", try_this=remedy), as_json)
        return WRONG
    if _FULL_DISK.search(str(error)):
        what = f"the disk is full: {message_of(error)}"
        _say(Broke(what, code="disk-full", try_this="free some space; finished work is kept, and the same command continues"), as_json)
        return BROKE
    if isinstance(error, RuntimeError) and os.environ.get("WORLD_SIZE", "1") != "1" and _LOST_RANK.search(str(error)):
        what = f"another process of this training ended or does not answer: {message_of(error)}"
        remedy = "see what that process printed; finished work is kept, and the same command continues"
        _say(Broke(what, code="training-killed", try_this=remedy), as_json)
        return BROKE
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        first = message_of(error).split(". ")[0].rstrip(".") or "out of memory"
        remedy = (
            "a smaller micro_batch or batch_size, a smaller model, or more memory; finished work is kept, and the same command continues"
        )
        _say(Broke(f"not enough memory: {first}", code="out-of-memory", try_this=remedy), as_json)
        return BROKE
    what = f"ragmeter broke: {type(error).__name__}: {message_of(error)}"
    _say(
        Broke(what, code="failed-command", try_this="run it again with --verbose for the traceback; this is ragmeter's fault, not yours"),
        as_json,
    )
    return BROKE


def _command(app: Any) -> str:
    """Return the command that started this process, as far as its words name one: "ragmeter cache prune"."""
    path: str = "ragmeter"
    group: Any = typer.main.get_command(app) if isinstance(app, typer.Typer) else app
    for word in sys.argv[1:]:
        group = group.get_command(None, word) if hasattr(group, "get_command") else None
        if group is None:
            break
        path += f" {word}"
    return path


def wrong_usage(error: Any, app: Any) -> UserError:
    """Convert a parser error of the command line to a `UserError`.

    Args:
        error: A ClickException.
        app: The command line, for errors that do not name their command.
    """
    message = " ".join(_parser_message(error).split())
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else _command(app)
    remedy = f"{path} --help"
    result = _NAMED.match(message + " ")
    if result:
        kind, wrong = result[1], result[2]
        message = f"there is no {kind} {wrong!r}"
        known = _known(context, kind)
        guess = nearest(wrong, known)
        if "--set" in known and guess in (None, "--set") and kind == "option":
            remedy = (
                f"options of methods and trainings: --set {wrong.lstrip('-').replace('-', '_')}=VALUE; {remedy} lists those of the command"
            )
        elif guess:
            remedy = f"did you mean {guess!r}? {remedy} lists what there is"
    return UserError(message[:1].lower() + message[1:].rstrip("."), code="wrong-usage", where=path, try_this=remedy)


def _parser_message(error: Any) -> str:
    """Return the parser's message; for values that are invalid or not numbers, ragmeter's wording instead of pydantic's."""
    response: str = error.format_message()
    cause = error.__cause__
    if not hasattr(cause, "errors"):
        return response
    from benchmarks.core.errors import first_error, in_words

    first = first_error(cause)
    if not first["type"].startswith(("int_", "float_", "finite_number", "greater_than", "less_than")):
        return response
    value = first["input"] if "_than" in first["type"] else repr(first["input"])
    return response.removesuffix(error.message) + f"{in_words(first)}, got {value}"


def _known(context: Any, kind: str) -> list[str]:
    """Return commands of a group, or options of a command."""
    if context is None:
        return []
    if kind == "command":
        return list(context.command.list_commands(context))
    return [name for parameter in context.command.params for name in (*parameter.opts, *parameter.secondary_opts)]


def _stopped(what: str, as_json: bool) -> None:
    """Report that the command was stopped: as an error in JSON, or as a plain line."""
    if as_json:
        _say(UserError(what, code="failed-command"), as_json)
    else:
        sys.stderr.write(what + "\n")


def _say(error: UserError, as_json: bool) -> None:
    from ragmeter.show.console import complain

    complain(error, as_json)
