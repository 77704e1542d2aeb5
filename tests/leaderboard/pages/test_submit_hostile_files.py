"""Hostile uploads: zip bombs, path traversal, false sizes and executable content.

Nothing is unpacked or executed, only files with fixed names are written, and the store stays unchanged.
"""

from __future__ import annotations

import io
import pickle
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leaderboard.intake import Draft, hand_over
from results.errors import UserError
from results.offered import MIB
from results.store import queries
from results.store.store import Store
from results.submission.bundle import MEMBERS

pytestmark = pytest.mark.usefixtures("allowed")
Archive = zipfile.ZipFile


@pytest.fixture
def refused(sent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Upload a draft that must be refused, check the remaining files, and return the reason."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    before = {path: path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()}

    def check(predictions: bytes, card: bytes | None = None) -> str:
        draft = Draft(predictions, card)
        try:
            verdict = hand_over(draft, sent.folder, keep=True)
            assert not verdict.report["ok"]
            assert verdict.run is None
            response = " ".join(str(item) for item in verdict.report["findings"])
        except UserError as error:
            response = f"{error} {error.where} {error.try_this}"
        assert sorted(path.name for path in draft.folder.iterdir()) == sorted(set(draft.arguments) - {"--card"})
        draft.discard()
        assert not draft.folder.exists()
        after = {path: path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()}
        assert {path for path in after if path not in before} == set()
        assert [run.method for run in queries.runs(Store(sent.folder))] == ["half right"]
        assert str(tmp_path) not in response
        return response

    return check


def bundle(fill: Callable[[Archive], None]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        fill(archive)
    return made.getvalue()


def three(archive: Archive, **content: bytes) -> None:
    """Return the three members of a bundle, empty unless their content is given by the name's stem."""
    for name in MEMBERS:
        archive.writestr(name, content.get(name.partition(".")[0], b""))


@pytest.mark.parametrize(
    "name",
    [
        "../../evil.py",
        "/etc/cron.d/evil",
        "..\\..\\evil.py",
        "C:\\evil.exe",
        "predictions.jsonl/../../evil",
        "a/b/card.yaml",
        "~/.bashrc",
        "sitecustomize.py",
        "\u202eevil",
    ],
)
def test_archive_path_outside_its_folder_is_refused_before_writing(refused: Callable[..., str], name: str) -> None:
    for beside in (True, False):

        def fill(archive: Archive, beside: bool = beside) -> None:
            if beside:
                three(archive)
            archive.writestr(zipfile.ZipInfo(name), b"import os")

        assert "a bundle holds manifest.json, card.yaml, predictions.jsonl and nothing else, not" in refused(bundle(fill))


def test_link_in_an_archive_is_refused(refused: Callable[..., str]) -> None:
    def fill(archive: Archive) -> None:
        for name in MEMBERS:
            link = zipfile.ZipInfo(name)
            link.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(link, b"/etc/passwd")

    assert "link" in refused(bundle(fill))


def test_zip_bomb_is_refused_by_its_ratio(refused: Callable[..., str]) -> None:
    sent = bundle(lambda archive: three(archive, predictions=b" " * (8 * MIB)))
    assert len(sent) < MIB
    assert "zip bomb" in refused(sent)


@pytest.mark.slow
def test_zip_bomb_with_a_false_size_is_stopped_while_reading(refused: Callable[..., str]) -> None:
    sent = bytearray(bundle(lambda archive: three(archive, predictions=b" " * (64 * MIB), manifest=b"{}")))
    true, small = (64 * MIB).to_bytes(4, "little"), (1000).to_bytes(4, "little")
    assert sent.count(true) == 2
    response = refused(bytes(sent.replace(true, small)))
    assert "manifest" in response or "damaged" in response or "archive" in response


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda archive: [three(archive), three(archive)], "twice"),
        (lambda archive: [archive.writestr(f"{n}.txt", b"") for n in range(2000)], "nothing else"),
        (lambda archive: [three(archive), setattr(archive, "comment", b"x")], "comment"),
        (lambda archive: archive.writestr("inner.zip", bundle(three)), "nothing else"),
        (lambda archive: None, "lacks card.yaml, predictions.jsonl"),
    ],
    ids=["twice", "many", "comment", "nested", "empty"],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archive_without_a_bundle_is_refused(refused: Callable[..., str], change: Callable[[Archive], Any], why: str) -> None:
    assert why in refused(bundle(change))


@pytest.mark.parametrize("data", [b"PK", b"PK\3\4" + b"\0" * 100, b"PK\5\6" + b"\xff" * 18, b"PK\3\4" * 5000])
def test_file_with_only_an_archive_header_is_refused(refused: Callable[..., str], data: bytes) -> None:
    assert "archive" in refused(data)


class _Runs:
    """Object whose pickle would write a file when it is read."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


@pytest.mark.slow
def test_uploaded_content_is_never_executed(refused: Callable[..., str], sent: Any, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    assert "Python pickle" in refused(pickle.dumps(_Runs(trap)), sent.card)
    code = f"__import__('pathlib').Path({str(trap)!r}).touch()"
    for text in (
        f"!!python/object/apply:os.system ['touch {trap}']",
        f'!!python/object/apply:eval ["{code}"]',
        f"a: &a [{trap}]\nb: [*a, *a, *a]",
        "<<: {a: 1}",
    ):
        assert "card.yaml" in refused(sent.predictions, text.encode())
    assert refused(code.encode(), sent.card)
    assert refused(f"#!/bin/sh\ntouch {trap}\n".encode(), sent.card)
    assert not trap.exists()


@pytest.mark.parametrize("path", ["/etc/passwd", "../../../etc/passwd", "~/.ssh/id_rsa", "file:///etc/passwd"])
def test_card_cannot_refer_to_a_file_on_the_server(refused: Callable[..., str], sent: Any, path: str) -> None:
    lines = [line for line in sent.card.splitlines() if not line.startswith((b"config", b"benchmark"))]
    config = [b"benchmark: hotpotqa:dev", f"config: {{path: '{path}'}}".encode()]
    response = refused(sent.predictions, b"\n".join([*lines, *config]))
    assert "a card must not refer to files of the machine that checks it" in response
    response = refused(sent.predictions, b"\n".join([*lines, f'benchmark: "{path}"'.encode()]))
    assert "card.yaml" in response


@pytest.mark.slow
def test_huge_lines_and_too_many_rows_are_refused(refused: Callable[..., str], sent: Any) -> None:
    assert "'line': 1" in refused(b'{"question_id": "' + b"x" * (3 * MIB) + b'"}\n', sent.card)
    assert "too_many_rows" in refused(b'{"question_id": "x", "answer": ""}\n' * 1100, sent.card)
    assert refused(b"[" * 100_000 + b"\n", sent.card)
    assert refused(sent.predictions, b"a: " + b"[" * 100_000)
