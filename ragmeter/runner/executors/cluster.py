"""A Ray cluster as an executor: connected to, checked before anything is spent, and divided among workers."""

from __future__ import annotations

import importlib.metadata
import logging
import math
import os
import platform
import re
import secrets
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.core.errors import Broke, MissingPackage, UserError
from benchmarks.corpus import Corpus
from methods.api import Method, Services
from methods.models.llm import chats
from methods.registry import Component
from ragmeter.experiment import Experiment
from ragmeter.runner.executors.permits import PermitServer
from ragmeter.runner.executors.ray_method import RayMethod, value_of
from ragmeter.runner.executors.work import Work, Worker
from ragmeter.runner.sizes import size_of
from ragmeter.runner.tasks import Task
from results.store.store import Store

PACKAGES = ("ragmeter", "ray", "torch", "transformers", "sentence-transformers", "bm25s", "numpy", "pyarrow")
"""Numbers may depend on the versions of these, so all nodes must have the same."""
OBJECTS = 75 * 2**20
"""Bytes of object store that a node needs: queries and predictions pass through it, corpora and indexes do not."""
OVERHEAD = 1.3
"""Memory of a GPU for a model, as a multiple of its weights in 16 bits."""
_SENT = re.compile(r"(RAGMETER|HF|HUGGINGFACE|TRANSFORMERS|TOKENIZERS)_\w+|\w+_(API_KEY|TOKEN|URL)|(https?|no)_proxy", re.I)
"""Environment variables that workers get from the process that writes the results."""
_KEPT = re.compile(r"RAY_\w+|TOKENIZERS_PARALLELISM")
CONNECT_S = 5.0


@dataclass(frozen=True)
class Shares:
    """Divide a cluster among workers.

    Attributes:
        address: HOST:PORT of the head; None: `RAY_ADDRESS`, or else a cluster on this machine that ends with the run.
        workers: At most so many per task; None: as many as fit.
        gpus: GPUs of one worker, for example 0.25; None: by the sizes of the models.
        shared: Folder that all nodes see, for corpora and indexes; None: the store's artifacts.
    """

    address: str | None = None
    workers: int | None = None
    gpus: float | None = None
    shared: Path | None = None


@dataclass(frozen=True)
class Node:
    """Describe a node as it reports itself.

    Attributes:
        name: Its host name and address.
        versions: Of Python and `PACKAGES`; "none" for one that is not installed.
        missing: Folders that it does not see.
        gpu_bytes: Memory of its smallest GPU; 0: it has none.
    """

    name: str
    versions: Mapping[str, str]
    missing: tuple[str, ...]
    gpu_bytes: int


def probe(name: str, marks: Mapping[str, str | None]) -> Node:
    """Look at the node that this runs on.

    Args:
        name: How to call it.
        marks: Folders that it must see; with the name of a file in it, if that must be the same folder.
    """
    versions = {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}}
    missing = [folder for folder, file in marks.items() if not (Path(folder, file).exists() if file else Path(folder).exists())]
    return Node(name, versions, tuple(missing), _gpu_bytes())


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _gpu_bytes() -> int:
    if shutil.which("nvidia-smi") is None:
        return 0
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        return min((int(line) for line in done.stdout.split()), default=0) * 2**20
    return 0


def refuse_nodes(nodes: Sequence[Node], here: Node) -> None:
    """Refuse nodes that would fail, or give other numbers.

    Raises:
        UserError: One lacks a folder, or has other packages.
    """
    for node in nodes:
        if node.missing:
            raise UserError(
                f"node {node.name} does not see {', '.join(node.missing)}",
                code="node-without-folder",
                where="--executor ray",
                try_this="mount the folder at the same path on every node; --shared FOLDER names another one for corpora and indexes",
            )
        different = [name for name, version in here.versions.items() if node.versions.get(name) != version]
        if different:
            each = ", ".join(f"{name} {node.versions.get(name, 'none')} instead of {here.versions[name]}" for name in different)
            raise UserError(
                f"node {node.name} has {each}",
                code="node-versions-differ",
                where="--executor ray",
                try_this="install the same packages on every node, then start Ray there again",
            )


def gpu_share(components: Sequence[Component], gpu_bytes: int) -> float:
    """Return the GPUs that a worker needs for its models: a fraction in tenths, or whole ones.

    A part that does not state its needs, and a model of unknown size, get a whole GPU.
    """
    needs = [part.needs for part in components]
    if None in needs:
        return 1.0
    models = {(item.model, item.revision): item for need in needs if need for item in need.checkpoints if not item.adapter}
    stated = sum(need.gpu_gb or 0.0 for need in needs if need) * 1e9
    if not models and not stated:
        return 0.0
    sizes = {key: size_of(*key).parameters for key in models}
    if not stated and None in sizes.values():
        return 1.0
    weights = sum((4 if models[key].dtype == "float32" else 2) * (size or 0.0) for key, size in sizes.items())
    share = max(stated, OVERHEAD * weights) / max(1, gpu_bytes)
    return float(math.ceil(share)) if share > 1 else math.ceil(share * 10) / 10


def variables(options: Sequence[Any]) -> dict[str, str]:
    """Return the environment variables that workers need: places of data, and the keys that options name."""
    named = {chat.key_variable for chat in chats(list(options)) if chat.key_variable}
    named |= set(re.findall(r"\$\{(\w+)\}", "".join(map(str, options))))
    return {name: value for name, value in os.environ.items() if name in named or (_SENT.fullmatch(name) and not _KEPT.fullmatch(name))}


class RayCluster:
    """Builds methods in workers of a Ray cluster; use `connected`.

    Args:
        shares: How it is divided.
        local: Whether this process started it, on this machine only.
    """

    def __init__(self, shares: Shares, local: bool) -> None:
        import ray

        self._shares = shares
        self._host = "127.0.0.1" if local else ray.util.get_node_ip_address()
        self._gpu_bytes = 0
        self._lock = threading.Lock()
        self._open: list[RayMethod] = []

    def check(self, experiment: Experiment, store: Store, device: str | None) -> None:
        """Check the nodes: folders, packages, object store and GPUs.

        Raises:
            UserError: One of them does not fit.
        """
        import ray

        nodes = [node for node in ray.nodes() if node["Alive"]]
        self._require_objects(nodes)
        gpus = ray.cluster_resources().get("GPU", 0)
        wanted = "--gpus-per-worker" if self._shares.gpus else "--device" if device and device.startswith("cuda") else None
        if wanted and not gpus:
            raise UserError(
                "GPUs are asked for, and no node of the cluster has one",
                code="cluster-without-gpus",
                where=wanted,
                try_this="start Ray on a node with GPUs, or leave the option out",
            )
        folder = self._artifacts(store.artifacts)
        folder.mkdir(parents=True, exist_ok=True)
        mark = folder / f".seen-{secrets.token_hex(8)}"
        mark.touch()
        try:
            marks: dict[str, str | None] = {str(folder.absolute()): mark.name}
            marks |= {os.path.abspath(os.environ[name]): None for name in ("RAGMETER_DATA", "HF_HOME") if os.environ.get(name)}
            marks |= dict.fromkeys(_folders(experiment))
            seen = [value_of(reference) for reference in [_probed(node, marks) for node in nodes]]
        finally:
            mark.unlink(missing_ok=True)
        refuse_nodes(seen, probe("here", {}))
        self._gpu_bytes = min((node.gpu_bytes for node in seen if node.gpu_bytes), default=0)

    @staticmethod
    def _require_objects(nodes: Sequence[Mapping[str, Any]]) -> None:
        for node in nodes:
            size = node["Resources"].get("object_store_memory", 0.0)
            if size < OBJECTS:
                name, mib = node["NodeManagerHostname"], 2**20
                raise UserError(
                    f"the object store of node {name} has {size / mib:,.0f} MiB; {OBJECTS / mib:,.0f} are needed",
                    code="object-store-too-small",
                    where="--executor ray",
                    try_this=f"ray start … --object-store-memory {4 * OBJECTS}",
                )

    def _artifacts(self, folder: Path) -> Path:
        return self._shares.shared or folder

    def build(self, task: Task, services: Services) -> Method:
        import ray

        assert services.artifacts is not None
        folder = self._artifacts(services.artifacts).absolute()
        cache = services.cache.absolute() if services.cache is not None else None
        own = task.services(Services(services.seed, folder, services.device, cache=cache))
        components = list(task.method.components)
        sent = variables([part.config for part in components])
        permits = PermitServer(self._host, cache)

        def work(corpus: Path, questions: Any) -> Work:
            opened = (permits.place, permits.key, permits.limited, permits.account is not None)
            return Work(task.method.composition, own, corpus, questions, sent, *opened)

        def place_of(corpus: Corpus) -> Path:
            if corpus.folder is not None:
                return corpus.folder.absolute()
            path = folder / "corpora" / f"{corpus.fingerprint}.arrow"
            if not path.exists():
                corpus.save(path)
            return path

        resources = ray.cluster_resources()
        gpus = self._gpus(components, services.device) if resources.get("GPU") else 0.0
        fitting = int(min(resources.get("CPU", 1), resources["GPU"] / gpus if gpus else math.inf)) or 1
        start = ray.remote(Worker).options(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD").remote
        workers = min(fitting, self._shares.workers or fitting)
        method = RayMethod(start, work, permits, place_of, workers, task.run.questions)
        with self._lock:
            self._open.append(method)
        return method

    def _gpus(self, components: Sequence[Component], device: str | None) -> float:
        if self._shares.gpus is not None:
            return self._shares.gpus
        return 0.0 if device == "cpu" else gpu_share(components, self._gpu_bytes)

    def release(self, method: Method) -> None:
        with self._lock:
            if not isinstance(method, RayMethod) or method not in self._open:
                return
            self._open.remove(method)
        method.close()

    def interrupt(self) -> None:
        with self._lock:
            for method in self._open:
                method.stop()


def _probed(node: Mapping[str, Any], marks: Mapping[str, str | None]) -> Any:
    """Run `probe` on a node."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
    return ray.remote(probe).options(num_cpus=0, scheduling_strategy=there).remote(name, marks)


def _folders(experiment: Experiment) -> Iterator[str]:
    """Yield the local models that an experiment's parts read."""
    for method in experiment.methods:
        for part in method.components:
            for item in part.needs.checkpoints if part.needs else ():
                if Path(item.model).is_absolute() and Path(item.model).exists():
                    yield item.model


@contextmanager
def connected(shares: Shares) -> Iterator[RayCluster]:
    """Connect to a cluster, or start one on this machine, for the length of a block.

    Raises:
        MissingPackage: Ray is not installed.
        UserError: The address does not answer.
        Broke: The cluster was lost.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise MissingPackage("ray", "ray", "--executor ray") from None
    address = shares.address or os.environ.get("RAY_ADDRESS") or None
    if address:
        _require_reachable(address)
    where = {"address": address} if address else {"address": "local", "include_dashboard": False}
    began = not ray.is_initialized()
    if began:
        paths = {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}} if os.environ.get("PYTHONPATH") else {}
        try:
            ray.init(**where, runtime_env=paths, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _unreachable(str(address or "this machine"), str(error)) from None
    try:
        yield RayCluster(shares, local=address is None)
    except ray.exceptions.RayError as error:
        raise Broke(
            f"the Ray cluster was lost: {str(error).strip().splitlines()[0]}",
            code="cluster-lost",
            try_this="start it again, then the same command: it continues where it was",
        ) from None
    finally:
        if began:
            ray.shutdown()


def _require_reachable(address: str) -> None:
    """Refuse an address where nobody listens; Ray itself would try for minutes."""
    if address == "auto":
        return
    if "://" in address:
        raise UserError(
            f"--executor ray runs on a node of the cluster, and {address!r} is for clients outside of it",
            code="ray-client-address",
            where="--address",
            try_this="run the command on the head node, with --address HOST:PORT as `ray start --head` printed it",
        )
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _unreachable(address, str(error)) from None


def _unreachable(address: str, why: str) -> UserError:
    return UserError(
        f"no Ray cluster answers at {address}: {why.strip().splitlines()[0] if why.strip() else 'no reason given'}",
        code="cluster-unreachable",
        where="--address",
        try_this="`ray start --head` on the head node prints the address; without --address a cluster is started on this machine",
    )


def opened(shares: Shares | None) -> Any:
    """Return a block's executor: a cluster, or this process."""
    from contextlib import nullcontext

    from ragmeter.runner.executors import Local

    return nullcontext(Local()) if shares is None else connected(shares)
