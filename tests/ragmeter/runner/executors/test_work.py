from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from methods.api import Services
from ragmeter.runner.executors.work import with_local_embeddings
from results.store import mounts
from tests.support.errors import raises


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that the mount table lists as NFS."""
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mountinfo")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "local"))
    folder = tmp_path / "shared"
    mounts.MOUNTS.write_text(f"1 0 0:1 / {folder} rw - nfs4 server:/x rw\n")
    return folder


def test_embeddings_of_a_network_folder_are_cached_on_the_node(shared: Path, tmp_path: Path) -> None:
    services = with_local_embeddings(Services(artifacts=shared / "a"))
    own = tmp_path / "local" / f"ragmeter-{os.getuid()}"
    assert services.folder("embeddings") == own / "embeddings"
    assert own.stat().st_mode & 0o077 == 0
    assert services.folder("indexes") == shared / "a" / "indexes"


def test_embeddings_on_a_local_disk_are_not_moved(shared: Path, tmp_path: Path) -> None:
    for services in (Services(artifacts=tmp_path / "a"), Services()):
        assert with_local_embeddings(services) == services


def test_node_without_a_local_user_folder_is_refused(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / f"ragmeter-{os.getuid()}").symlink_to(tmp_path)
    with raises("no-local-embeddings"):
        with_local_embeddings(Services(artifacts=shared))
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    with raises("no-local-embeddings") as caught:
        with_local_embeddings(Services(artifacts=shared))
    assert "nfs4" in caught.value.what
