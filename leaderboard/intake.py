"""Pass visitors' files to `ragmeter submit` in a separate process: bounded, timed, and without any key.

Nothing that was sent is executed, unpacked to disk or used as a name: the files lie under names of ours in a private
folder that is removed when the visitor leaves. The server's environment has the command to start; without it, the server is
read-only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.errors import UserError
from results.offered import LIMITS, MIB

VARIABLE = "RAGMETER_SUBMIT"
"""Environment variable with the command that receives submissions, as a JSON list."""
HOLD_VARIABLE = "RAGMETER_HOLD"
"""Environment variable that is set if submissions require approval."""
UPLOAD_MIB = 64
"""Maximum size of an uploaded file; the content of a bundle may be larger, up to `results.offered.LIMITS`."""
TIME_S = 900.0
"""Maximum seconds for the check of a submission."""
_PREDICTIONS, _CARD, _BUNDLE = "predictions.jsonl", "card.yaml", "bundle.zip"
_ZIP = b"PK"
_THEIR_MISTAKE = 2
"""Exit code of `ragmeter` for wrong input; any other code is an internal error."""
_turn = threading.BoundedSemaphore(1)
"""Lock that allows one check of a submission at a time, so that visitors cannot overload the machine."""


def submit_command() -> list[str] | None:
    """Return the command line that checks submissions; None if the server accepts none."""
    try:
        results = json.loads(os.environ.get(VARIABLE) or "null")
    except ValueError:
        return None
    return results if isinstance(results, list) and results and all(isinstance(part, str) for part in results) else None


def waits_for_approval() -> bool:
    """Return whether submissions are held until the owner accepts them."""
    return bool(os.environ.get(HOLD_VARIABLE))


class Draft:
    """Uploaded files of a submission, in a private temporary folder that is deleted with this object at the latest.

    Args:
        card: The card; None with a bundle.

    Raises:
        UserError: A file is too large, the card is missing, or a card was sent with a bundle.
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
            raise UserError(
                "predictions need a card that describes them",
                code="predictions-without-card",
                where="card",
                try_this="fill in card.yaml from Questions and card",
            )
        self.folder = Path(tempfile.mkdtemp(prefix="ragmeter-submission-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.arguments = [_BUNDLE] if bundled else [_PREDICTIONS, "--card", _CARD]
        (self.folder / self.arguments[0]).write_bytes(predictions)
        if card is not None:
            (self.folder / _CARD).write_bytes(card)

    def discard(self) -> None:
        """Delete the files now instead of at the end of the session."""
        self._remove()


_ELSEWHERE = "send it to the owner of this board: ragmeter submit takes larger files"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of checking an uploaded submission: the parsed output of `ragmeter submit add --json` or `check --json`.

    Attributes:
        preview: By metric: value, low, high, n, unscorable, insufficient_data; only if nothing was to be stored.
        run: Fingerprint of the stored run; None if nothing was stored.
    """

    report: Mapping[str, Any]
    notes: tuple[str, ...]
    preview: Mapping[str, Mapping[str, Any]]
    run: str | None


def hand_over(draft: Draft, store_folder: Path, *, keep: bool) -> Verdict:
    """Check an uploaded submission in a subprocess, and store it if requested and valid.

    Raises:
        UserError: The server accepts no submissions, is busy with another one, or the submission cannot be read.
    """
    start = submit_command()
    if start is None:
        raise UserError("this server is read-only", code="server-read-only", try_this="ragmeter leaderboard --allow-submissions")
    if not _turn.acquire(blocking=False):
        raise UserError("another submission is being checked", code="submission-check-busy", try_this="try again in a moment")
    what = ["add", *(["--hold"] if waits_for_approval() else [])] if keep else ["check"]
    options = ["--known-boards", "--json", "--quiet", "--no-env", "--store", str(store_folder)]
    try:
        done = subprocess.run(
            [*start, *what, *draft.arguments, *options],
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
    return _answer(done)


_PATH = re.compile(r"(?<![\w/:.])(?:/[^\s/:'\"]+){2,}")


def _public(text: str | None) -> str | None:
    """Shorten paths in a message to their last component, so that visitors do not see local folders."""
    return None if text is None else _PATH.sub(lambda match: match[0].rpartition("/")[2], text)


def _answer(done: subprocess.CompletedProcess[bytes]) -> Verdict:
    try:
        if done.stdout.strip():
            output = json.loads(done.stdout)
            return Verdict(output["report"], tuple(output["notes"]), output.get("preview", {}), output["run"])
        error = json.loads(done.stderr.splitlines()[-1])["error"] if done.returncode == _THEIR_MISTAKE else None
    except (ValueError, LookupError, TypeError):
        error = None
    if error is None:
        # The error is for the owner of the server, not for visitors.
        sys.stderr.write(done.stderr.decode("utf-8", "replace"))
        raise UserError("the check crashed", code="check-failed", try_this="tell the owner of this board: the server's log has the reason")
    what, where, remedy = (_public(error[name]) for name in ("what", "where", "try"))
    raise UserError(str(what), code="refused-submission", where=where, try_this=remedy)
