"""Starts the leaderboard as a web server in a process of its own."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from leaderboard.intake import HOLD_VARIABLE, UPLOAD_MIB, VARIABLE
from results.errors import MissingPackage, UserError
from results.store.redaction import variable_is_secret

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
    """Return the `--theme.…` options of `streamlit run`, for light and dark mode."""
    modes = (("", _BOTH), ("light.", _LIGHT), ("dark.", _DARK))
    return [f"--theme.{mode}{name}={value}" for mode, values in modes for name, value in values.items()]


def custom_properties() -> str:
    """Return the theme as CSS custom properties with Streamlit's names, for pages without Streamlit."""
    both = "--st-font: system-ui, sans-serif; --st-code-font: ui-monospace, monospace; --st-base-radius: 6px;"
    names = {name: re.sub("[A-Z]", lambda letter: f"-{letter[0].lower()}", name) for name in _LIGHT}
    colors = [f"--st-{css}: light-dark({_LIGHT[name]}, {_DARK[name]});" for name, css in names.items()]
    return f":root {{ color-scheme: light dark; {both} {' '.join(colors)} }}"


_STDERR = 2
_STOP_S = 5.0
"""Seconds in which the server must end by itself."""


def serve(
    store_folder: Path,
    port: int = 8501,
    host: str = "127.0.0.1",
    open_browser: bool = False,
    submit: Sequence[str] | None = None,
    on_start: Callable[[str], None] | None = None,
    experiment: str | None = None,
    *,
    hold: bool = False,
) -> int:
    """Serve the leaderboard of a store as a web page until it is interrupted.

    Args:
        store_folder: Folder of the store; it may be written to or created meanwhile.
        host: The address to listen on; the default is reachable only from this machine.
        submit: Command that checks visitors' submissions (`leaderboard.intake`); None: accept no submissions.
        on_start: Called with the address; the server's own output then goes to standard error.
        experiment: Experiment that pages show first; None: the largest one.
        hold: Whether submissions need the owner's approval.

    Returns:
        The server's exit code; 0 if it was interrupted.

    Raises:
        UserError: Streamlit is not installed, or the address cannot be listened on.
    """
    if importlib.util.find_spec("streamlit") is None:
        raise MissingPackage("streamlit", "leaderboard", "the leaderboard")
    require_free(host, port)
    child = subprocess.Popen(
        command(port, host, open_browser, uploads=submit is not None),
        env=_environment(store_folder, submit, experiment, hold=hold),
        stdout=None if on_start is None else _STDERR,
    )
    with _ended_with_us(child):
        if on_start is not None:
            on_start(f"http://{host}:{port}")
        try:
            code = child.wait()
        except KeyboardInterrupt:
            return 0
    # A negative code is the signal that ended the server.
    return 0 if code in (-signal.SIGINT, -signal.SIGTERM) else abs(code)


def command(port: int, host: str, open_browser: bool, *, uploads: bool = False) -> list[str]:
    """Return the command line that starts the Streamlit server, with statistics, file watching, tracebacks and (unless
    `uploads`) uploads disabled.
    """
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
    app = Path(__file__).parent / "asgi.py"
    settings = [f"--{name}={value}" for name, value in options.items()]
    # Not from the working folder (-P): it may hold a package called `results`, or a `streamlit.py`.
    return [sys.executable, "-P", "-m", "streamlit", "run", str(app), *settings, *theme_options()]


def require_free(host: str, port: int) -> None:
    """Check that the server can listen on an address.

    Raises:
        UserError: The address cannot be used; the message gives the reason and the remedy.
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


def _environment(
    store_folder: Path, submit: Sequence[str] | None = None, experiment: str | None = None, *, hold: bool = False
) -> dict[str, str]:
    """Return the environment without keys, with the store's folder, and with the packages importable from any working directory."""
    ours = str(Path(__file__).resolve().parent.parent)
    paths = [ours, *filter(None, [os.environ.get("PYTHONPATH")])]
    # Pages ask no model: what the server does not have it cannot give away.
    set_here = (VARIABLE, HOLD_VARIABLE)
    kept = {name: value for name, value in os.environ.items() if name not in set_here and not variable_is_secret(name, value)}
    # Visitors share the cores; threads that wait for each other within one visitor's sums only cost.
    kept = {"OPENBLAS_NUM_THREADS": "1", **kept}
    taking = {VARIABLE: json.dumps(list(submit))} if submit is not None else {}
    taking |= {HOLD_VARIABLE: "1"} if hold else {}
    opening = {"RAGMETER_EXPERIMENT": experiment} if experiment else {}
    return {**kept, **taking, **opening, "RAGMETER_STORE": str(store_folder.resolve()), "PYTHONPATH": os.pathsep.join(paths)}


@contextmanager
def _ended_with_us(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the child process when the block ends, also if this process is terminated."""

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
