"""Hands what visitors send in to `ragmeter submit`, in a process of its own: bounded, timed, and without any key.

Nothing that was sent is executed, unpacked to disk or used as a name: the files lie under names of ours in a private
folder that goes when the visitor does. How to start the command is said by whoever started the server; where it said
nothing, the server is read-only.
"""

from __future__ import annotations

import json
import os
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

from results.queries import UserError
from results.submission.limits import LIMITS, MIB

VARIABLE = "RAGMETER_SUBMIT"
"""Environment variable with the command that submissions are handed to, as a JSON list."""
UPLOAD_MIB = 64
"""Size of a file that is sent in; a bundle may hold more, up to `results.submission.limits`."""
TIME_S = 900.0
"""How long the check of a submission may take."""
_PREDICTIONS, _CARD, _BUNDLE = "predictions.jsonl", "card.yaml", "bundle.zip"
_ZIP = b"PK"
_THEIR_MISTAKE = 2
"""How `ragmeter` exits where what it was given is wrong; anything else is wrong here."""
_turn = threading.BoundedSemaphore(1)
"""One submission is checked at a time: visitors must not fill the machine."""


def command() -> list[str] | None:
    """The command that submissions are handed to; None where the server takes none."""
    try:
        found = json.loads(os.environ.get(VARIABLE) or "null")
    except ValueError:
        return None
    return found if isinstance(found, list) and found and all(isinstance(part, str) for part in found) else None


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
            raise UserError(f"the file is larger than {UPLOAD_MIB} MiB", where="predictions", try_this=_ELSEWHERE)
        if card is not None and len(card) > LIMITS.card_bytes:
            raise UserError(f"the card is larger than {LIMITS.card_bytes // 1024} KiB", where="card")
        if bundled and card is not None:
            raise UserError("a bundle brings its own card", where="card", try_this="leave the card out")
        if not bundled and card is None:
            raise UserError("predictions need a card that says what they are", where="card", try_this="ragmeter submission template")
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
    """What `ragmeter submit --json` said.

    Attributes:
        report: Of the validation: findings with lines, contamination, means.
        notes: Further sentences.
        preview: By metric, value, low, high, n, unscorable, doubt; of a dry run.
        run: Fingerprint of the stored run; None where nothing was stored.
    """

    report: Mapping[str, Any]
    notes: tuple[str, ...]
    preview: Mapping[str, Mapping[str, Any]]
    run: str | None

    @property
    def ok(self) -> bool:
        """Whether it may be stored."""
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
    start = command()
    if start is None:
        raise UserError("this server is read-only", try_this="ragmeter serve --allow-submissions")
    if not _turn.acquire(blocking=False):
        raise UserError("another submission is being checked", try_this="try again in a moment")
    try:
        dry = [] if keep else ["--dry-run"]
        options = ["--known-boards", "--json", "--quiet", "--store", str(store_folder), *dry]
        done = subprocess.run(
            [*start, *draft.arguments, *options],
            cwd=draft.folder,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIME_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"the check took more than {TIME_S / 60:.0f} minutes", try_this=_ELSEWHERE) from None
    finally:
        _turn.release()
    return _verdict(done)


def _verdict(done: subprocess.CompletedProcess[bytes]) -> Verdict:
    try:
        if done.stdout.strip():
            said = json.loads(done.stdout)
            return Verdict(said["report"], tuple(said["notes"]), said.get("preview", {}), said["run"])
        error = json.loads(done.stderr.splitlines()[-1])["error"] if done.returncode == _THEIR_MISTAKE else None
    except (ValueError, LookupError, TypeError):
        error = None
    if error is None:
        # What went wrong is for who keeps the server, not for visitors.
        sys.stderr.write(done.stderr.decode("utf-8", "replace"))
        raise UserError("the check broke off", try_this="tell who keeps this board: its log says why")
    raise UserError(error["what"], where=error["where"], try_this=error["try"])
