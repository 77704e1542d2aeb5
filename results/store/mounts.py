"""Network file systems: SQLite, DuckDB and file locks are not safe there, so a store must be on a local disk."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from benchmarks.core.errors import UserError

MOUNTS = Path("/proc/self/mountinfo")
ALLOW = "RAGMETER_NETWORK_STORE"
"""Environment variable; `allow` permits a store on a network file system at the user's own risk."""
NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "glusterfs", "pvfs2", "orangefs"}
NETWORK |= {"panfs", "wekafs", "afs", "9p", "davfs"}
NETWORK |= {
    f"fuse.{name}" for name in ("sshfs", "glusterfs", "ceph", "ceph-fuse", "s3fs", "gcsfuse", "rclone", "juicefs", "goofys", "blobfuse")
}
"""Network file system types in /proc/self/mountinfo."""


def network_type(folder: Path, mounts: str) -> str | None:
    """Return the type of network file system that a folder is on; None for a local file system.

    Args:
        folder: Absolute path; it need not exist.
        mounts: Content of /proc/self/mountinfo; a later mount at the same point hides an earlier one.
    """
    best, kind = "", ""
    for line in mounts.splitlines():
        before, separator, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
        inside = folder == Path(point) or Path(point) in folder.parents
        if inside and len(point) >= len(best):
            best, kind = point, types[0]
    return kind if kind in NETWORK else None


def network_here(folder: Path) -> str | None:
    """Return the type of network file system that a folder is on, from this machine's mounts; None for a local or unknown one."""
    try:
        mounts = MOUNTS.read_text("utf-8", "replace")
    except OSError:  # no Linux
        return None
    return network_type(folder.resolve(), mounts)


@cache
def refuse_network(folder: Path) -> None:
    """Refuse to keep a store on a network file system, unless the user allows it.

    Raises:
        UserError: The folder is on a network file system.
    """
    if os.environ.get(ALLOW) == "allow":
        return
    if (kind := network_here(folder)) is not None:
        raise UserError(
            f"the store would be on a network file system ({kind}), where its databases and locks can be damaged",
            code="store-on-network",
            where=str(folder),
            try_this="--store FOLDER on a local disk, then `ragmeter store import FOLDER` on the machine that keeps the results; "
            f"{ALLOW}=allow uses this folder if only one machine writes to it and its locks work",
        )
