"""A Ray cluster as an executor: connected to, checked before anything is spent, and divided among workers."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import re
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.core.errors import Broke, MissingPackage, UserError
from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus
from methods.api import Method, Services
from methods.models.llm import chats, hosted
from methods.registry import Component
from ragmeter.experiment import Experiment
from ragmeter.runner.executors.nodes import Node, Place, Wanted, gpus_here, place_of, probe, reaches, refuse_nodes
from ragmeter.runner.executors.permits import PermitServer
from ragmeter.runner.executors.ray_method import LOOK_S, RayMethod, value_of
from ragmeter.runner.executors.work import Work, Worker
from ragmeter.runner.sizes import size_of
from ragmeter.runner.tasks import Task
from results.store.store import Store

OVERHEAD = 1.3
"""GPU memory for a model, as a multiple of its weights in 16 bits."""
_SENT = re.compile(r"(RAGMETER|HF|HUGGINGFACE|TRANSFORMERS|TOKENIZERS)_\w+|\w+_(API_KEY|TOKEN|URL)|(https?|no)_proxy", re.I)
"""Environment variables that workers get from the process that writes the results."""
_KEPT = re.compile(r"RAY_\w+|TOKENIZERS_PARALLELISM")
HEAD_S = 20.0
"""Seconds without a sign of the head after which a run ends; after 60, Ray ends the process without a message."""


@dataclass(frozen=True)
class Shares:
    """Division of a cluster's resources among workers.

    Attributes:
        address: HOST:PORT of the Ray head; "local" starts a cluster on this machine for the run; None uses `RAY_ADDRESS`, else
            "local".
        workers: Maximum number of workers per task; None: as many as fit.
        gpus: GPUs per worker, for example 0.25; None: from the sizes of the models.
        shared: Folder that all nodes can access, for corpora and indexes; None: the store's artifacts.
        devices: Number of GPUs of this machine, if each worker that loads models gets at least one for itself; None: see
            `gpus`.
    """

    address: str | None = None
    workers: int | None = None
    gpus: float | None = None
    shared: Path | None = None
    devices: int | None = None

    def options(self) -> list[str]:
        """Return the command-line options that express these settings."""
        by_flag = {"--address": self.address, "--workers": self.workers, "--gpus-per-worker": self.gpus, "--shared": self.shared}
        return ["--executor", "ray", *(word for name, value in by_flag.items() if value is not None for word in (name, str(value)))]


def gpu_share(components: Sequence[Component], gpu_bytes: int) -> float:
    """Return the number of GPUs that a worker needs for its models: a fraction in tenths, or a whole number.

    A part with unknown needs, a model of unknown size, and any model if the GPU memory is unknown (0), get a whole GPU.
    """
    needs = [part.needs for part in components]
    if None in needs:
        return 1.0
    models = {(item.model, item.revision): item for need in needs if need for item in need.checkpoints if not item.adapter}
    bytes_needed = sum(need.gpu_gb or 0.0 for need in needs if need) * 1e9
    if not models and not bytes_needed:
        return 0.0
    sizes = {key: size_of(*key).parameters for key in models}
    if not gpu_bytes or (not bytes_needed and None in sizes.values()):
        return 1.0
    weights = sum((4 if models[key].dtype == "float32" else 2) * (size or 0.0) for key, size in sizes.items())
    share = max(bytes_needed, OVERHEAD * weights) / gpu_bytes
    return float(math.ceil(share)) if share > 1 else math.ceil(share * 10) / 10


def variables(options: Sequence[Any]) -> dict[str, str]:
    """Collect the environment variables that workers need: data locations, and the API keys that options name."""
    models = [*chats(list(options)), *hosted(list(options))]
    named = {name for model in models if (name := getattr(model, "key_variable", None))}
    named |= set(re.findall(r"\$\{(\w+)\}", "".join(map(str, options))))
    return {name: value for name, value in os.environ.items() if name in named or (_SENT.fullmatch(name) and not _KEPT.fullmatch(name))}


class RayCluster:
    """Executor that builds methods in workers of a Ray cluster; create it with `connected`.

    Args:
        shares: How the cluster is divided.
        local: Whether this process started the cluster, on this machine only.
    """

    def __init__(self, shares: Shares, local: bool) -> None:
        import ray

        self._shares = shares
        self._host = "127.0.0.1" if local else ray.util.get_node_ip_address()
        self._gpu_bytes = min(gpus_here(), default=0) if local else 0
        self._lock = threading.Lock()
        self._open: list[RayMethod] = []
        self._seen: set[Path] = set()
        self._same: tuple[Wanted, Node] | None = None
        self.lost: Broke | None = None

    def check(self, experiment: Experiment, store: Store, device: str | None) -> None:
        """Check that the experiment can run on the cluster's nodes: folders, packages, code, weights, connections, CPUs and GPUs.

        Raises:
            UserError: The nodes cannot run the experiment.
        """
        import ray

        refuse_batches(experiment)
        resources = ray.cluster_resources()
        if resources.get("CPU", 0) < 1:
            raise UserError(
                "no node of the cluster offers a CPU, and a worker needs one",
                code="cluster-without-cpus",
                where="--executor ray",
                try_this="start Ray on a node with --num-cpus 1 or more",
            )
        wanted = "--gpus-per-worker" if self._shares.gpus else "--device" if device and device.startswith("cuda") else None
        if wanted and not resources.get("GPU"):
            raise UserError(
                "GPUs are requested, and no node of the cluster has one",
                code="cluster-without-gpus",
                where=wanted,
                try_this="start Ray on a node with GPUs, or leave the option out",
            )
        folders = {os.path.abspath(os.environ[name]) for name in ("RAGMETER_DATA", "HF_HOME") if os.environ.get(name)}
        # Trained checkpoints are read where they were written.
        trained = {store.folder / "checkpoints"} if any(method.needs for method in experiment.methods) else set()
        shared = self._artifacts(store.artifacts)
        parts = [part for method in experiment.methods for part in method.components]
        seen, here = self._probed(dict.fromkeys(folders), {shared, *trained}, parts)
        refuse_nodes(seen, here)
        # Nodes may join later: each worker looks whether it runs the same code.
        self._same = Wanted({}, {}, ray.cloudpickle.dumps(parts)), here
        self._gpu_bytes = min((node.gpu_bytes for node in seen if node.gpu_bytes), default=0)
        largest = max(node["Resources"].get("GPU", 0.0) for node in _nodes())
        for method in experiment.methods if largest else ():
            if (gpus := self._gpus(list(method.components), device)) > largest:
                raise UserError(
                    f"a worker of {method.name} needs {gpus:g} GPUs of one node, and no node has more than {largest:g}",
                    code="worker-too-large",
                    where="--executor ray",
                    try_this="nodes with more or larger GPUs, a smaller model, or --gpus-per-worker if it needs less",
                )

    def _probed(self, folders: dict[str, str | None], marked: set[Path], parts: Sequence[Component]) -> tuple[list[Node], Node]:
        """Inspect all nodes and this process; the marked folders must be the same everywhere."""
        import ray

        marks = {folder.absolute(): folder.absolute() / f".seen-{secrets.token_hex(8)}" for folder in marked}
        urls = {str(getattr(item, "url", "")) for part in parts for item in (part.config, *chats(part.config))}
        addresses = {url.partition("?")[0]: place for url in sorted(urls) if (place := place_of(url)) is not None}
        with socket.create_server((self._host, 0)) as command:
            addresses["the process of the command"] = command.getsockname()[:2]
            for folder, mark in marks.items():
                folder.mkdir(parents=True, exist_ok=True)
                mark.touch()
            try:
                every = folders | {str(folder): mark.name for folder, mark in marks.items()}
                wanted = Wanted(every, addresses, ray.cloudpickle.dumps(list(parts)))
                nodes = [_seen(node, wanted) for node in _nodes()]
                return [_node_of(name, reference) for name, reference in nodes], probe("here", wanted)
            finally:
                for mark in marks.values():
                    mark.unlink(missing_ok=True)

    def _artifacts(self, folder: Path) -> Path:
        return self._shares.shared or folder

    def build(self, task: Task, services: Services) -> Method:
        import ray

        assert services.artifacts is not None
        if self.lost is not None:
            raise self.lost
        folder = self._artifacts(services.artifacts).absolute()
        cache = services.cache.absolute() if services.cache is not None else None
        own = task.services(Services(services.seed, folder, services.device, cache=cache))
        components = list(task.method.components)
        sent = variables([part.config for part in components])
        permits = PermitServer(self._host, cache)

        def work(corpus: Path, questions: Any) -> Work:
            opened = (permits.place, permits.key, permits.limited, permits.account is not None)
            return Work(task.method.composition, own, corpus, questions, sent, *opened, self._same)

        def path_of(corpus: Corpus) -> Path:
            if corpus.folder is not None:
                path = corpus.folder.absolute()
                if path not in self._seen:
                    refuse_nodes(*self._probed({str(path): None}, set(), ()))
                    self._seen.add(path)
                return path
            kind = "graph" if isinstance(corpus, TripleCorpus) else "arrow"
            path = folder / "corpora" / f"{corpus.fingerprint}.{kind}"
            if not path.exists():
                corpus.save(path)
            return path

        resources = ray.cluster_resources()
        gpus = self._gpus(components, services.device) if resources.get("GPU") else 0.0
        cpus = 0 if gpus and self._shares.devices else 1  # a machine may have more GPUs than cores
        fitting = int(min(resources.get("CPU", 1) if cpus else math.inf, resources["GPU"] / gpus if gpus else math.inf)) or 1
        start = ray.remote(Worker).options(num_cpus=cpus, num_gpus=gpus, scheduling_strategy="SPREAD").remote
        workers = min(fitting, self._shares.workers or fitting)
        method = RayMethod(start, work, permits, path_of, workers, task.run.questions)
        with self._lock:
            self._open.append(method)
        return method

    def _gpus(self, components: Sequence[Component], device: str | None) -> float:
        if self._shares.gpus is not None:
            return self._shares.gpus
        share = 0.0 if device == "cpu" else gpu_share(components, self._gpu_bytes)
        return max(1.0, share) if share and self._shares.devices else share

    def release(self, method: Method) -> None:
        with self._lock:
            if not isinstance(method, RayMethod) or method not in self._open:
                return
            self._open.remove(method)
        method.close(kill=self.lost is None)

    def interrupt(self) -> None:
        with self._lock:
            for method in self._open:
                method.stop(self.lost)

    def watch(self, head: Place, ended: threading.Event) -> None:
        """Cancel the methods if the Ray head does not answer for `HEAD_S` seconds; return earlier if the event is set."""
        heard = time.monotonic()
        while not ended.wait(LOOK_S):
            if reaches(head):
                heard = time.monotonic()
            elif time.monotonic() - heard > HEAD_S:
                self.lost = _cluster_lost(f"its head at {head[0]}:{head[1]} has not answered for {HEAD_S:g} seconds")
                self.interrupt()
                return


def refuse_batches(experiment: Experiment) -> None:
    """Refuse models with batch endpoints, because each worker would submit its own batches.

    Raises:
        UserError: A method uses one.
    """
    for method in experiment.methods:
        for chat in chats([part.config for part in method.components]):
            if chat.batch:
                raise UserError(
                    f"{method.name} asks {chat.model} through a batch API (`batch: true`), which needs one process for all requests",
                    code="batch-with-ray",
                    where="--executor ray",
                    try_this="leave out --executor ray, because workers do not make a batch faster; or set `batch: false`",
                )


def _nodes() -> list[Mapping[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def _seen(node: Mapping[str, Any], wanted: Wanted) -> tuple[str, Any]:
    """Run `probe` on a node."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
    return name, ray.remote(probe).options(num_cpus=0, scheduling_strategy=there, max_retries=2).remote(name, wanted)


def _node_of(name: str, reference: Any) -> Node:
    """Return a node's report.

    Raises:
        UserError: A node cannot run ragmeter.
    """
    import ray

    try:
        node: Node = value_of(reference)
        return node
    except (ImportError, AttributeError, ray.exceptions.RayError) as error:
        raise UserError(
            f"node {name} cannot run ragmeter: {str(error).strip().splitlines()[-1]}",
            code="node-without-ragmeter",
            where="--executor ray",
            try_this="`pip install 'ragmeter[ray]'` in the environment in which Ray was started on this node, the same version as here",
        ) from None


@contextmanager
def connected(shares: Shares) -> Iterator[RayCluster]:
    """Connect to a Ray cluster, or start one on this machine, while the block runs.

    Raises:
        MissingPackage: Ray is not installed.
        UserError: The address does not answer.
        Broke: The cluster was lost.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = None if shares.address == "local" else shares.address or os.environ.get("RAY_ADDRESS") or None
    if address is None and "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray.init` chooses for a cluster here, which warns about it
    try:
        import ray
    except ImportError:
        raise MissingPackage("ray", "ray", "--executor ray") from None
    if address:
        _require_reachable(address)
    here = {"address": "local", "include_dashboard": False, "num_gpus": shares.devices}
    where = {"address": address} if address else here
    began = not ray.is_initialized()
    if began:
        paths = {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}} if os.environ.get("PYTHONPATH") else {}
        try:
            with sigterm_kept():
                ray.init(**where, runtime_env=paths, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
        except Exception as error:  # a plain one if Ray's processes do not start in time
            if address is None:
                why = f"Ray cannot be started on this machine: {' '.join(str(error).split())}"
                remedy = "run the same command again when the machine is less busy, or use --executor local"
                raise Broke(why, code="ray-not-started", where="--executor ray", try_this=remedy) from None
            raise _refused(address, str(error)) from None
    cluster = RayCluster(shares, local=address is None)
    ended = threading.Event()
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    threading.Thread(target=cluster.watch, args=((host, int(port)), ended), name="head of the cluster", daemon=True).start()
    try:
        yield cluster
    except ray.exceptions.RayError as error:
        raise cluster.lost or _cluster_lost(str(error).strip().splitlines()[0]) from None
    finally:
        ended.set()
        if began:
            ray.shutdown()


@contextmanager
def sigterm_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM after the block.

    `ray.init` replaces it in Python, and also below Python: three seconds after the signal, Ray's own handler aborts the process,
    with the finished answers that are not stored by then.
    """
    native = ctypes.pythonapi
    native.PyOS_getsig.restype = ctypes.c_void_p
    native.PyOS_setsig.argtypes = ctypes.c_int, ctypes.c_void_p
    handler, below = signal.getsignal(signal.SIGTERM), native.PyOS_getsig(signal.SIGTERM)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():  # Ray changes it only there
            signal.signal(signal.SIGTERM, handler)
        native.PyOS_setsig(signal.SIGTERM, below)


def _cluster_lost(why: str) -> Broke:
    return Broke(
        f"the Ray cluster was lost: {why}; all answers so far are stored",
        code="cluster-lost",
        where="--executor ray",
        try_this="start it again, then run the same command: it continues with the rest",
    )


def _require_reachable(address: str) -> None:
    """Refuse an address without a server, which Ray itself would try for minutes."""
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
    if not host or not port.isdecimal() or not reaches((host, int(port))):
        raise _no_cluster(f"at {address}")


def _no_cluster(place: str) -> UserError:
    return UserError(
        f"no Ray cluster answers {place}",
        code="cluster-unreachable",
        where="--address",
        try_this="`ray start --head` on the head node prints the address; without --address a cluster is started on this machine",
    )


def _refused(address: str, why: str) -> UserError:
    """Return why Ray rejected this process, although something listens there."""
    what = " ".join(why.split()) or "no reason given"
    if address == "auto":
        return _no_cluster("on this machine")
    if "version mismatch" in what.lower():
        remedy = "install the same Ray and Python on every node, then start Ray there again"
        return UserError(f"{address}: {what}", code="node-versions-differ", where="--address", try_this=remedy)
    return UserError(
        f"something listens at {address}, but Ray cannot connect to it: {what}",
        code="cluster-refused",
        where="--address",
        try_this="check that it is the address that `ray start --head` printed; then run the command on a node of the cluster, with "
        "the RAY_AUTH_MODE of `ray start`: with a file ~/.ray/auth_token, a head wants `export RAY_AUTH_MODE=token` and this file on "
        "every node and here",
    )
