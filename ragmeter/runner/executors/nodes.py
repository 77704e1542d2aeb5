"""Check the nodes of a Ray cluster before anything is spent: packages, code, folders, weights and connections."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import pickle
import platform
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from benchmarks.core.code import SHIPPED, code_of
from benchmarks.core.errors import HOME, UserError, counted, message_of
from methods.models.weights import missing_weights
from methods.registry import Component

PACKAGES = ("ragmeter", "ray", "torch", "transformers", "sentence-transformers", "bm25s", "numpy", "pyarrow")
"""Packages that may change figures, so that all nodes must have the same versions."""
CODE = "ragmeter's code"
REACH_S = 5.0
"""Maximum seconds in which an address must answer."""
Place = tuple[str, int]


@dataclass(frozen=True)
class Wanted:
    """Requirements that a node of the cluster is checked for.

    Attributes:
        folders: Folders that it must be able to access; with the name of a file in it, if it must be the same folder.
        addresses: Hosts and ports that it must reach, by display name.
        parts: Pickled parts of the experiment's methods, whose modules must be importable.
    """

    folders: Mapping[str, str | None]
    addresses: Mapping[str, Place]
    parts: bytes


@dataclass(frozen=True)
class Node:
    """Properties of a cluster node, as the node reports them.

    Attributes:
        name: Host name and address.
        versions: Versions of Python, `PACKAGES` and plug-ins, and hashes of code; "none" if not installed.
        missing: Folders that it cannot access.
        unreached: Names of addresses that it cannot reach.
        weights: Models whose weights it lacks and cannot download.
        broken: Error of loading the experiment's parts; "" if there is none.
        gpu_bytes: Memory of its smallest GPU in bytes; 0 without a GPU.
    """

    name: str
    versions: Mapping[str, str]
    missing: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    broken: str = ""
    gpu_bytes: int = 0


def probe(name: str, wanted: Wanted) -> Node:
    """Check the node on which this function runs.

    Args:
        name: Display name of the node.
        wanted: Requirements to check.
    """
    versions = {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}, CODE: _code()}
    missing = [folder for folder, file in wanted.folders.items() if not Path(folder, file or "").exists()]
    unreached = [what for what, place in wanted.addresses.items() if not reaches(place)]
    weights: list[str] = []
    broken = ""
    try:
        parts: list[Component] = pickle.loads(wanted.parts)
        for id, code in (item for part in parts for item in part.codes.items()):
            if not code.unknown:
                importlib.import_module(code.module)
                # Of the files here: what was pickled has the hash of those there.
                versions[f"plug-in {id}"] = code_of(SimpleNamespace(__module__=code.module)).hash
        for item in {item for part in parts if part.needs for item in part.needs.checkpoints}:
            if (absence := missing_weights(item)) is not None and not absence.fetched:
                weights.append(item.model)
    except Exception as error:
        broken = f"{type(error).__name__}: {message_of(error)}"
    return Node(name, versions, tuple(missing), tuple(unreached), tuple(weights), broken, min(gpus_here(), default=0))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _code() -> str:
    """Return a hash of ragmeter's modules and prompts, because different checkouts may have the same version."""
    total = hashlib.blake2b(digest_size=6)
    for package in sorted(SHIPPED):
        for path in sorted(path for end in ("py", "txt") for path in (HOME / package).rglob(f"*.{end}")):
            total.update(f"{path.relative_to(HOME)}\0".encode() + path.read_bytes())
    return total.hexdigest()


def gpus_here() -> list[int]:
    """Return the memory of each GPU of this machine, in bytes."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        return [int(line) * 2**20 for line in done.stdout.split()]
    return []


def reaches(place: Place) -> bool:
    """Return whether a server listens at a host and port."""
    try:
        socket.create_connection(place, timeout=REACH_S).close()
        return True
    except (OSError, OverflowError):
        return False


def place_of(url: str) -> Place | None:
    """Return host and port of a URL; None if a proxy is used, or if the URL names no host."""
    parts = urlsplit(url)
    try:
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        return None
    if not parts.hostname or (parts.scheme in getproxies() and not proxy_bypass(parts.hostname)):
        return None
    return parts.hostname, port


def refuse_nodes(nodes: Sequence[Node], here: Node) -> None:
    """Refuse nodes on which the experiment would fail, or give different numbers.

    Raises:
        UserError: A node lacks a folder, package, weights or connection, or has other versions of packages or code.
    """
    for fault in (fault for node in nodes for fault in _faults(node, here)):
        raise fault


def _faults(node: Node, here: Node) -> Iterator[UserError]:
    where = "--executor ray"
    if node.broken and not here.broken:
        yield UserError(
            f"node {node.name} cannot load the experiment's parts: {node.broken}",
            code="node-without-plugin",
            where=where,
            try_this="install the plug-in on every node, or put its file at the same path there",
        )
    different = [name for name, version in here.versions.items() if node.versions.get(name, "none") != version]
    if different:
        each = ", ".join(f"{name} {node.versions.get(name, 'none')} instead of {here.versions[name]}" for name in different)
        yield UserError(
            f"node {node.name} has {each}",
            code="node-versions-differ",
            where=where,
            try_this="install the same packages on every node, then start Ray there again",
        )
    if node.missing:
        yield UserError(
            f"node {node.name} does not see {', '.join(node.missing)}",
            code="node-without-folder",
            where=where,
            try_this="mount the folder at the same path on every node; --shared FOLDER names another one for corpora and indexes, and a "
            "method that the experiment trains is trained before (`ragmeter train`), to a folder that every node sees",
        )
    if weights := sorted(set(node.weights) - set(here.weights)):
        yield UserError(
            f"node {node.name} lacks {counted(len(weights), 'model')}: {', '.join(weights)}",
            code="node-without-weights",
            where=where,
            try_this="name models by absolute paths that all nodes see, or set HF_HOME to a folder that they share",
        )
    if unreached := [what for what in node.unreached if what not in here.unreached]:
        yield UserError(
            f"node {node.name} cannot connect to {', '.join(unreached)}",
            code="node-without-connection",
            where=where,
            try_this="open the connection, or name the endpoint by an address that all nodes reach: `localhost` is another machine on each",
        )
