from __future__ import annotations

from pathlib import Path

import pytest

from results.store import mounts
from results.store.mounts import network_type, refuse_network
from results.store.store import Store
from tests.support.errors import raises

LINES = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw,relatime shared:2 master:1 - nfs4 server:/home rw,vers=4.2
31 30 8:2 / /home/anna/fast rw - xfs /dev/sdb1 rw
32 22 0:41 / /my\040disk rw - fuse.sshfs anna@host: rw
33 22 0:42 / /scratch rw - lustre 10.0.0.1@tcp:/scratch rw
34 22 0:43 / /over rw - nfs server:/x rw
35 34 0:44 / /over rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/anna/store", "nfs4"),
        ("/home/anna/fast/store", None),
        ("/homes/anna", None),
        ("/my disk/store", "fuse.sshfs"),
        ("/scratch", "lustre"),
        ("/over/store", None),
        ("/tmp/store", None),
    ],
)
def test_the_innermost_and_last_mount_decides_the_file_system(folder: str, kind: str | None) -> None:
    assert network_type(Path(folder), LINES) == kind


def test_a_store_on_a_network_is_refused_unless_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mountinfo").write_text(f"1 0 0:1 / {tmp_path} rw - nfs server:/x rw\n")
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mountinfo")
    with raises("store-on-network", where="one"):
        Store(tmp_path / "one").put_experiment("x", "", None, None, None, [])
    assert not (tmp_path / "one").exists()
    monkeypatch.setenv(mounts.ALLOW, "allow")
    Store(tmp_path / "two").put_experiment("x", "", None, None, None, [])
    refuse_network.cache_clear()
