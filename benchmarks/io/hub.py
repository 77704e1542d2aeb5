"""Download files of dataset repositories from the Hugging Face Hub: pinned, verified, and from the cache when offline.

`huggingface_hub` downloads the files (as in `datasets`, with the same cache, token and endpoint: HF_HOME, HF_TOKEN,
HF_ENDPOINT). The loaders parse the original files instead of calling `load_dataset`, which would store a converted copy, force
one type per column, fill missing fields with nulls, and lose the line numbers for error messages.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from yaml import YAMLError

from benchmarks.core.errors import Broke, MissingPackage, UserError
from benchmarks.core.fingerprint import file_sha256
from benchmarks.io.files import archive_of, archived, best, is_sharded, missing_shards
from benchmarks.io.hub_faults import Wanted, ask, behind_proxy

OFFLINE_VARIABLES = ("RAGMETER_OFFLINE", "HF_HUB_OFFLINE")
"""Environment variables that disable network access; the second is huggingface_hub's own."""

MAIN = "main"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TRUE = {"1", "on", "yes", "true"}


@dataclass(frozen=True, slots=True)
class ReportedFile:
    """Size and hashes that the hub reports for a file.

    Attributes:
        size: Size in bytes.
        sha256: SHA-256 of the content for files in large-file storage; None for files in git.
        git: Git object id; if `sha256` is None, it hashes the content.
    """

    size: int
    sha256: str | None
    git: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """Downloaded files of one repository.

    Attributes:
        repository: Repository id.
        revision: Commit of the files.
        pinned: Requested revision; None if none was requested, so that the commit is `main` at the time of the download.
        paths: The files, in order; members of an archive as `archive.zip!member`.
        files: SHA-256 of each file by its name in the repository.
    """

    repository: str
    revision: str
    pinned: str | None
    paths: tuple[Path, ...]
    files: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return repository, commit, whether a fixed revision was requested, and each file with size and hash."""
        positions: dict[str, Path] = {}
        for path in self.paths:
            archive = archive_of(path)
            file = path if archive is None else archive[0]
            positions[next(name for name in self.files if file.as_posix().endswith(f"/{self.revision}/{name}"))] = file
        files = [
            {"name": name, "bytes": positions[name].stat().st_size, "sha256": sha256, "path": str(positions[name])}
            for name, sha256 in self.files.items()
        ]
        return {"repository": self.repository, "revision": self.revision, "pinned": self.pinned == self.revision, "files": files}


@dataclass(frozen=True, slots=True)
class _Listing:
    """Files of a repository at a commit; `whole` is false if only the cached files are known."""

    commit: str
    files: Mapping[str, ReportedFile]
    whole: bool = True


_recorded: ContextVar[list[Fetched] | None] = ContextVar("fetched", default=None)


@contextmanager
def recording() -> Iterator[list[Fetched]]:
    """Context manager that collects everything fetched inside, to record the origin of loaded data."""
    fetched: list[Fetched] = []
    token = _recorded.set(fetched)
    try:
        yield fetched
    finally:
        _recorded.reset(token)


def offline() -> bool:
    """Return whether network access is disabled, so that only cached files may be used."""
    return any(os.environ.get(name, "").lower() in _TRUE for name in OFFLINE_VARIABLES)


def go_offline() -> None:
    """Disable network access for this process and its children, including model libraries."""
    for name in OFFLINE_VARIABLES:
        os.environ[name] = "1"


def use_cache_if_unreachable() -> None:
    """Set the hub's library to offline mode if the hub's name cannot be resolved; otherwise it would retry for a minute.

    Call this before huggingface_hub is imported, because it reads the variable on import.
    """
    if "huggingface_hub" not in sys.modules and not _has_address():
        os.environ[OFFLINE_VARIABLES[1]] = "1"


def _has_address() -> bool:
    if behind_proxy():
        # Then names are the proxy's to resolve.
        return True
    at = urlsplit(endpoint())
    try:
        return bool(socket.getaddrinfo(at.hostname, at.port or 443))
    except (OSError, ValueError):
        return False


def be_quiet() -> None:
    """Disable the progress bars of downloads."""
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    utils = sys.modules.get("huggingface_hub.utils")
    if utils is not None:
        utils.disable_progress_bars()


def endpoint() -> str:
    """Return the base URL of the hub."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def cache_folder() -> Path:
    """Return huggingface_hub's cache folder."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return Path(os.path.expandvars(named)).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or os.path.join(base, "huggingface")
    return Path(os.path.expandvars(home)).expanduser() / "hub"


def fetch(repository: str, patterns: Sequence[str], revision: str | None = None) -> Fetched:
    """Download files of a dataset repository, or use cached copies, and verify them against the hub's hashes.

    Args:
        repository: Repository id `owner/name`.
        patterns: File name patterns with `*`. All files that match the first pattern with any match are fetched, in order.
            `data.zip!data/*.jsonl` selects members of an archive.
        revision: Commit, tag or branch; None uses and records the current commit of `main`.

    Raises:
        UserError: The repository, revision or file does not exist, is gated, is not cached while offline, or has a wrong hash.
        Broke: The hub cannot be reached or fails, or the disk is full.
        MissingPackage: huggingface_hub is not installed.
    """
    listing = _listing(repository, revision or MAIN)
    commit = listing.commit
    names = _chosen(repository, patterns, listing)
    _check_room(repository, commit, {name: listing.files[name] for name in names})
    paths: list[Path] = []
    files: dict[str, str] = {}
    for name in names:
        path = _file(repository, commit, name, listing.files[name])
        files[name] = file_sha256(path)
        paths.extend(archived(path, patterns, name))
    fetched = Fetched(repository, commit, revision, tuple(paths), files)
    recorded = _recorded.get()
    if recorded is not None:
        recorded.append(fetched)
    return fetched


def cached(repository: str, patterns: Sequence[str], revision: str | None = None) -> tuple[Path, ...] | None:
    """Return the cached files that `fetch` would return, or None if one is missing; contacts no server and verifies nothing."""
    try:
        commit = _remembered_commit(repository, revision or MAIN)
        files = _cached_files(repository, commit, commit)
    except UserError:
        return None
    snapshot = _folder(repository) / "snapshots" / commit
    names = best(files, patterns)
    missing = missing_shards(names)
    return tuple(p for n in names for p in archived(snapshot / n, patterns, n)) if names and not missing else None


def source(fetched: Sequence[Fetched]) -> dict[str, Any]:
    """Return the origin of loaded data for storage with a run: `hub`, `revision`, `pinned`, and `files` with SHA-256.

    Args:
        fetched: Downloads of one load, at least one; repositories after the first are under `others`.
    """
    united: dict[tuple[str, str], dict[str, Any]] = {}
    for item in fetched:
        entry = {"hub": item.repository, "revision": item.revision, "pinned": item.pinned is not None, "files": {}}
        united.setdefault((item.repository, item.revision), entry)["files"].update(item.files)
    first, *others = united.values()
    return {**first, "others": others} if others else first


def notes(fetched: Sequence[Fetched]) -> tuple[str, ...]:
    """Return notes for users on the origin of the data, for example an unpinned revision."""
    loose = dict.fromkeys((item.repository, item.revision) for item in fetched if item.pinned is None)
    return tuple(
        f"{repository} is not pinned: its main branch was read at commit {commit}; set revision to that commit to reproduce this"
        for repository, commit in loose
    )


_NAMED = 6
"""Maximum number of patterns that an error lists."""


def _chosen(repository: str, patterns: Sequence[str], listing: _Listing) -> tuple[str, ...]:
    names = best(listing.files, patterns)
    where = f"{repository} at {listing.commit}"
    if not names and not listing.whole:
        raise _not_cached(f"{' or '.join(patterns)} of {where}", repository)
    if not names:
        available = ", ".join(sorted(listing.files)[:12])
        raise UserError(
            f"the repository {repository} has no file {' or '.join(patterns[:_NAMED])}{' …' if len(patterns) > _NAMED else ''}",
            code="unknown-repository-file",
            where=where,
            try_this=f"it holds {available}" if available else "it is empty at this revision",
        )
    missing = missing_shards(names)
    if missing and not listing.whole:
        raise _not_cached(f"{names[0]} is there, but {missing} of {where}", repository)
    if missing:
        raise UserError(
            f"the repository lacks {missing} of {names[0]}",
            code="repository-file-missing",
            where=where,
            try_this="ask the owner of the repository",
        )
    if not listing.whole and not is_sharded(names) and names[0] not in patterns:
        raise UserError(
            f"cannot check offline whether {', '.join(names)} is all that {where} has of it",
            code="offline-incomplete",
            where=str(_folder(repository)),
            try_this="load it once without --offline: what the repository holds is remembered then",
        )
    return names


def _listing(repository: str, revision: str) -> _Listing:
    """Return the commit of a revision and its files, cached by commit."""
    known = offline() or _COMMIT.fullmatch(revision)
    commit = _remembered_commit(repository, revision) if known else _current_commit(repository, revision)
    record = _folder(repository) / "ragmeter" / f"{commit}.json"
    if record.is_file():
        return _Listing(commit, {n: ReportedFile(**reported) for n, reported in json.loads(record.read_text("utf-8")).items()})
    if offline():
        return _Listing(commit, _cached_files(repository, commit, revision), whole=False)
    files = _listed_files(repository, commit)
    fields = {name: {"size": item.size, "sha256": item.sha256, "git": item.git} for name, item in files.items()}
    _remember(record, json.dumps(fields, indent=0, sort_keys=True))
    return _Listing(commit, files)


def _current_commit(repository: str, revision: str) -> str:
    api, wanted = _api(), Wanted(repository, revision, endpoint())
    commit = ask(lambda: str(api.dataset_info(repository, revision=revision).sha), wanted)
    _remember(_folder(repository) / "refs" / revision, commit)
    return commit


def _listed_files(repository: str, commit: str) -> dict[str, ReportedFile]:
    api = _api()

    def listed() -> dict[str, ReportedFile]:
        entries = api.list_repo_tree(repository, recursive=True, revision=commit, repo_type="dataset")
        return {
            entry.path: ReportedFile(entry.size, entry.lfs.sha256 if entry.lfs else None, entry.blob_id)
            for entry in entries
            if hasattr(entry, "blob_id")
        }

    return ask(listed, Wanted(repository, commit, endpoint()))


def _remembered_commit(repository: str, revision: str) -> str:
    """Return the last known commit of a branch from huggingface_hub's cache."""
    if _COMMIT.fullmatch(revision):
        return revision
    reference = _folder(repository) / "refs" / revision
    if not reference.is_file():
        raise _not_cached(f"{repository} at revision {revision}", repository)
    return reference.read_text("utf-8").strip()


def _cached_files(repository: str, commit: str, revision: str) -> dict[str, ReportedFile]:
    """Return the cached files of a commit that other tools downloaded; a blob's name is its hash."""
    snapshot = _folder(repository) / "snapshots" / commit
    files = {}
    for path in sorted(snapshot.rglob("*")):
        if path.is_file():
            blob = path.resolve().name
            large = bool(re.fullmatch(r"[0-9a-f]{64}", blob))
            files[path.relative_to(snapshot).as_posix()] = ReportedFile(path.stat().st_size, blob if large else None, "" if large else blob)
    if not files:
        raise _not_cached(f"{repository} at revision {revision}", repository)
    return files


def _not_cached(what: str, repository: str) -> UserError:
    return UserError(
        f"{what} is not in the cache, and the hub is not asked (offline, or it has no address)",
        code="not-in-cache",
        where=str(_folder(repository)),
        try_this="fetch it once without --offline (RAGMETER_OFFLINE, HF_HUB_OFFLINE), or set path to the authors' file",
    )


def _file(repository: str, commit: str, name: str, reported: ReportedFile) -> Path:
    path = _folder(repository) / "snapshots" / commit / name
    fresh = not path.exists()
    if fresh:
        if offline():
            raise _not_cached(f"{name} of {repository} at {commit}", repository)
        path = _download(repository, commit, name, reported)
    wrong = _difference(path, reported)
    if wrong:
        if fresh:
            # Nothing else may take a bad download for the file.
            path.resolve().unlink()
            path.unlink(missing_ok=True)
        raise UserError(
            f"{name} is not the file that the hub lists: {wrong}",
            code="hub-hash-mismatch",
            where=str(path),
            try_this="fetch it again; if it stays so, the repository or the connection cannot be trusted"
            if fresh
            else "it was changed or damaged in the cache: remove it there and fetch it again",
        )
    return path


def _download(repository: str, commit: str, name: str, reported: ReportedFile) -> Path:
    library = _library()

    def downloaded() -> str:
        result: str = library.hf_hub_download(
            repository, name, repo_type="dataset", revision=commit, cache_dir=str(cache_folder()), endpoint=endpoint()
        )
        return result

    return Path(ask(downloaded, Wanted(repository, commit, endpoint(), name)))


def _difference(path: Path, reported: ReportedFile) -> str | None:
    """Describe how a file differs from the hub's size and hash; None if it does not differ."""
    if reported.sha256 is not None:
        result = file_sha256(path)
        return None if result == reported.sha256 else f"its SHA-256 is {result}, stated is {reported.sha256}"
    if not _COMMIT.fullmatch(reported.git):
        # A cache without links (Windows) that another tool filled: nothing is stated that could be compared.
        return None
    result = _git_hash(path)
    return None if result == reported.git else f"its git hash is {result}, stated is {reported.git}"


def _git_hash(path: Path) -> str:
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _check_room(repository: str, commit: str, wanted: Mapping[str, ReportedFile]) -> None:
    snapshot = _folder(repository) / "snapshots" / commit
    needed = sum(reported.size for name, reported in wanted.items() if not (snapshot / name).exists())
    folder = next(parent for parent in (snapshot, *snapshot.parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise Broke(
            f"the disk is too full for {repository}: {needed:,} bytes are needed, {free:,} are free",
            code="disk-full",
            where=str(cache_folder()),
            try_this="make room there, or set HF_HOME to a folder on another disk",
        )


def _folder(repository: str) -> Path:
    return cache_folder() / f"datasets--{repository.replace('/', '--')}"


def _remember(path: Path, text: str) -> None:
    """Cache an answer of the hub; failures to write are ignored."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, "utf-8")
        os.replace(partial, path)


def _library() -> Any:
    try:
        import huggingface_hub
        from huggingface_hub.utils import logging
    except ImportError as error:
        raise MissingPackage("huggingface_hub", "hub", "data from the hub") from error
    # It warns of each retry; `ask` reports the result.
    logging.set_verbosity_error()
    return huggingface_hub


def _api() -> Any:
    return _library().HfApi(endpoint=endpoint())


README = "README.md"


def stated_sizes(repository: str, revision: str | None = None) -> dict[str, dict[str, int]]:
    """Return the numbers of rows per split that a repository's README states.

    Args:
        repository: Repository id.
        revision: As in `hub.fetch`.

    Returns:
        Number of rows by configuration and split in the hub's terms (`distractor`, `validation`); empty if none are reported.

    Raises:
        UserError: The README is missing or cannot be parsed by `datasets`; also as in `fetch`.
        MissingPackage: `datasets` is not installed.
    """
    try:
        from datasets.info import DatasetInfosDict
        from huggingface_hub import DatasetCard
    except ImportError as error:
        raise MissingPackage("datasets", "hub", "the sizes that a repository states") from error
    (path,) = fetch(repository, [README], revision).paths
    try:
        infos = DatasetInfosDict.from_dataset_card_data(DatasetCard.load(path).data)
    except (YAMLError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"the metadata of {repository} cannot be read: {str(error).splitlines()[0]}", code="unreadable-model-metadata", where=str(path)
        ) from error
    return {config: {name: split.num_examples for name, split in info.splits.items()} for config, info in infos.items() if info.splits}
