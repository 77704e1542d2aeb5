"""Starts the leaderboard as a web server in a process of its own."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from results.errors import MissingPackage, UserError
from results.offered import LIMITS, MIB
from results.store.redaction import variable_is_secret

# Hands what visitors send in to `ragmeter submit`, in a process of its own: bounded, timed, and without any key.
# Nothing that was sent is executed, unpacked to disk or used as a name: the files lie under names of ours in a private
# folder that goes when the visitor does. How to start the command is said by whoever started the server; where it said
# nothing, the server is read-only.


VARIABLE = "RAGMETER_SUBMIT"
"""Environment variable with the command that submissions are handed to, as a JSON list."""
UPLOAD_MIB = 64
"""Size of a file that is sent in; a bundle may hold more, up to `results.offered.LIMITS`."""
TIME_S = 900.0
"""How long the check of a submission may take."""
_PREDICTIONS, _CARD, _BUNDLE = "predictions.jsonl", "card.yaml", "bundle.zip"
_ZIP = b"PK"
_THEIR_MISTAKE = 2
"""How `ragmeter` exits where what it was given is wrong; anything else is wrong here."""
_turn = threading.BoundedSemaphore(1)
"""One submission is checked at a time: visitors must not fill the machine."""


def submit_command() -> list[str] | None:
    """The command that submissions are handed to; None where the server takes none."""
    try:
        results = json.loads(os.environ.get(VARIABLE) or "null")
    except ValueError:
        return None
    return results if isinstance(results, list) and results and all(isinstance(part, str) for part in results) else None


class Draft:
    """Files that somebody sent in, in a private folder that is removed with this object at the latest.

    Args:
        predictions: The predictions, or a bundle.
        card: The card; None beside a bundle.

    Raises:
        UserError: A file is too large, or the card is missing or one too many.
    """

    def __init__(self, predictions: bytes, card: bytes | None) -> None:
        bundled = predictions.startswith(_ZIP)
        if len(predictions) > UPLOAD_MIB * MIB:
            raise UserError(f"the file is larger than {UPLOAD_MIB} MiB", code="file-too-large", where="predictions", try_this=_ELSEWHERE)
        if card is not None and len(card) > LIMITS.card_bytes:
            raise UserError(f"the card is larger than {LIMITS.card_bytes // 1024} KiB", code="card-too-large", where="card")
        if bundled and card is not None:
            raise UserError("a bundle contains its own card", code="card-besides-bundle", where="card", try_this="leave the card out")
        if not bundled and card is None:
            raise UserError("predictions need a card", code="predictions-without-card", where="card", try_this="ragmeter submit template")
        self.folder = Path(tempfile.mkdtemp(prefix="ragmeter-submission-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.arguments = [_BUNDLE] if bundled else [_PREDICTIONS, "--card", _CARD]
        (self.folder / self.arguments[0]).write_bytes(predictions)
        if card is not None:
            (self.folder / _CARD).write_bytes(card)

    def discard(self) -> None:
        """Remove the files now; a visitor who just leaves has theirs removed with the session."""
        self._remove()


_ELSEWHERE = "hand it to who keeps this board: ragmeter submit takes larger files"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `ragmeter submit add` or `check` said with --json.

    Attributes:
        report: Of the validation: findings with lines, contamination, means.
        notes: Further sentences.
        preview: By metric, value, low, high, n, unscorable, insufficient_data; where nothing was to be stored.
        run: Fingerprint of the stored run; None where nothing was stored.
    """

    report: Mapping[str, Any]
    notes: tuple[str, ...]
    preview: Mapping[str, Mapping[str, Any]]
    run: str | None

    @property
    def ok(self) -> bool:
        """Return whether it may be stored."""
        return bool(self.report["ok"])


def hand_over(draft: Draft, store_folder: Path, *, keep: bool) -> Verdict:
    """Check a submission; store it where it is asked to be kept and nothing is wrong with it.

    Args:
        draft: The files.
        store_folder: The store.
        keep: Whether to store it.

    Raises:
        UserError: The server takes none, is busy with another one, or the submission cannot be read.
    """
    start = submit_command()
    if start is None:
        raise UserError("this server is read-only", code="server-read-only", try_this="ragmeter leaderboard --allow-submissions")
    if not _turn.acquire(blocking=False):
        raise UserError("another submission is being checked", code="submission-check-busy", try_this="try again in a moment")
    try:
        options = ["--known-boards", "--json", "--quiet", "--store", str(store_folder)]
        done = subprocess.run(
            [*start, "add" if keep else "check", *draft.arguments, *options],
            cwd=draft.folder,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIME_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"the check took more than {TIME_S / 60:.0f} minutes", code="check-timeout", try_this=_ELSEWHERE) from None
    finally:
        _turn.release()
    return _verdict(done)


def _verdict(done: subprocess.CompletedProcess[bytes]) -> Verdict:
    try:
        if done.stdout.strip():
            output = json.loads(done.stdout)
            return Verdict(output["report"], tuple(output["notes"]), output.get("preview", {}), output["run"])
        error = json.loads(done.stderr.splitlines()[-1])["error"] if done.returncode == _THEIR_MISTAKE else None
    except (ValueError, LookupError, TypeError):
        error = None
    if error is None:
        # What went wrong is for who keeps the server, not for visitors.
        sys.stderr.write(done.stderr.decode("utf-8", "replace"))
        raise UserError("the check broke off", code="check-failed", try_this="tell who keeps this board: its log says why")
    raise UserError(error["what"], code="refused-submission", where=error["where"], try_this=error["try"])


_BOTH = {
    "font": "sans-serif",
    "baseFontSize": "15",
    "baseRadius": "6px",
    "headingFontSizes": '["1.7rem", "1.3rem", "1.1rem"]',
    "headingFontWeights": "[650, 600, 600]",
    "showWidgetBorder": "true",
    "paddingTop": "1.5rem",
}
_LIGHT = {
    "primaryColor": "#1d64a8",
    "backgroundColor": "#ffffff",
    "secondaryBackgroundColor": "#f4f6f8",
    "textColor": "#1a1f26",
    "borderColor": "#dfe4ea",
    "linkColor": "#1d64a8",
}
_DARK = {
    "primaryColor": "#6fb3ee",
    "backgroundColor": "#10151b",
    "secondaryBackgroundColor": "#19202a",
    "textColor": "#e4e8ed",
    "borderColor": "#2c3642",
    "linkColor": "#8cc3f3",
}


def theme_options() -> list[str]:
    """The `--theme.…` options of `streamlit run`; the reader's system chooses between light and dark."""
    named = {f"theme.{name}": value for name, value in _BOTH.items()}
    named |= {f"theme.light.{name}": value for name, value in _LIGHT.items()}
    named |= {f"theme.dark.{name}": value for name, value in _DARK.items()}
    return [f"--{name}={value}" for name, value in named.items()]


def custom_properties() -> str:
    """The same look as CSS, by the names that Streamlit gives its properties; for pages without it."""
    both = "--st-font: system-ui, sans-serif; --st-code-font: ui-monospace, monospace; --st-base-radius: 6px;"
    names = {name: re.sub("[A-Z]", lambda letter: f"-{letter[0].lower()}", name) for name in _LIGHT}
    colors = [f"--st-{css}: light-dark({_LIGHT[name]}, {_DARK[name]});" for name, css in names.items()]
    return f":root {{ color-scheme: light dark; {both} {' '.join(colors)} }}"


_STDERR = 2
_STOP_S = 5.0
"""How long the server has to end by itself."""


def serve(
    store_folder: Path,
    port: int = 8501,
    host: str = "127.0.0.1",
    open_browser: bool = False,
    submit: Sequence[str] | None = None,
    on_start: Callable[[str], None] | None = None,
    experiment: str | None = None,
) -> int:
    """Serve the leaderboard of a store until it is interrupted.

    Args:
        store_folder: The store; it may be written to, or first come to be, meanwhile.
        port: Where to listen.
        host: The address to listen on; the default is reachable from this machine alone.
        open_browser: Whether to open a browser window.
        submit: The command that what visitors send in is handed to (`leaderboard.server`); None: read-only.
        on_start: Called with the address; what the server itself says then goes to standard error.
        experiment: The one that pages open with; None: the most complete one.

    Returns:
        The server's exit code; 0 where it was interrupted.

    Raises:
        UserError: Streamlit is not installed, or the address cannot be listened on.
    """
    if importlib.util.find_spec("streamlit") is None:
        raise MissingPackage("streamlit", "leaderboard", "the leaderboard")
    require_free(host, port)
    child = subprocess.Popen(
        command(port, host, open_browser, uploads=submit is not None),
        env=_environment(store_folder, submit, experiment),
        stdout=None if on_start is None else _STDERR,
    )
    with _ended_with_us(child):
        if on_start is not None:
            on_start(f"http://{host}:{port}")
        try:
            code = child.wait()
        except KeyboardInterrupt:
            return 0
    # A negative code is the signal by which somebody ended the server.
    return 0 if code in (-signal.SIGINT, -signal.SIGTERM) else abs(code)


def command(port: int, host: str, open_browser: bool, *, uploads: bool = False) -> list[str]:
    """The command line of the server: usage statistics, file watching, tracebacks and, but for `uploads`, these."""
    options = {
        "server.port": str(port),
        "server.address": host,
        "server.headless": "false" if open_browser else "true",
        "server.showEmailPrompt": "false",
        "server.fileWatcherType": "none",
        "server.maxUploadSize": str(UPLOAD_MIB) if uploads else "0",
        "server.enableStaticServing": "false",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": "false",
        "client.disableDataExport": "true",
        "runner.magicEnabled": "false",
    }
    app = Path(__file__).parent / "pages" / "app.py"
    settings = [f"--{name}={value}" for name, value in options.items()]
    # Not from the working folder (-P): it may hold a package called `results`, or a `streamlit.py`.
    return [sys.executable, "-P", "-m", "streamlit", "run", str(app), *settings, *theme_options()]


def require_free(host: str, port: int) -> None:
    """Check that an address can be listened on.

    Raises:
        UserError: It cannot; says why and what to do.
    """
    position = f"{host}:{port}"
    if not 1 <= port <= 65535:
        raise UserError(f"{port} is not a port", code="not-port", where="--port", try_this="a number from 1 to 65535, e.g. 8501")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As the server itself does; without it a port freed a moment ago still counts as taken.
            if os.name == "posix":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except socket.gaierror:
        raise UserError(
            f"{host!r} is not an address of this machine", code="foreign-address", where="--host", try_this="127.0.0.1"
        ) from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"port {port} is taken by another program", code="port-taken", where=position, try_this=f"--port {port % 65535 + 1}"
            ) from None
        if error.errno == errno.EACCES:
            raise UserError(
                f"port {port} is reserved for the system", code="port-reserved", where=position, try_this="--port 8501, or any above 1023"
            ) from None
        raise UserError(
            f"cannot listen there: {error.strerror}", code="port-unavailable", where=position, try_this="--host 127.0.0.1"
        ) from None


def _environment(store_folder: Path, submit: Sequence[str] | None = None, experiment: str | None = None) -> dict[str, str]:
    """Our own without its keys, with the store's folder, and with the packages found wherever the server is started."""
    ours = str(Path(__file__).resolve().parent.parent)
    paths = [ours, *filter(None, [os.environ.get("PYTHONPATH")])]
    # Pages ask no model: what the server does not have it cannot give away.
    kept = {name: value for name, value in os.environ.items() if name != VARIABLE and not variable_is_secret(name, value)}
    # Visitors share the cores; threads that wait for each other within one visitor's sums only cost.
    kept = {"OPENBLAS_NUM_THREADS": "1", **kept}
    taking = {VARIABLE: json.dumps(list(submit))} if submit is not None else {}
    opening = {"RAGMETER_EXPERIMENT": experiment} if experiment else {}
    return {**kept, **taking, **opening, "RAGMETER_STORE": str(store_folder.resolve()), "PYTHONPATH": os.pathsep.join(paths)}


@contextmanager
def _ended_with_us(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the child when the block is left, and also when this process is asked to terminate."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    mine = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, terminate) if mine else None
    try:
        yield
    finally:
        if mine:
            signal.signal(signal.SIGTERM, before)
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
