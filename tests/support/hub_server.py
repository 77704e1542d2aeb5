"""A loopback hub: the part of the hub's protocol that `huggingface_hub` uses to list and fetch files.

Dataset and model repositories are given as files by revision; faults can be enabled while it runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, unquote, urlsplit

LARGE = (".parquet", ".zip", ".gz", ".safetensors", ".bin", ".arrow")
"""Suffixes of files in large-file storage, served from another host by redirect."""
POLL_S = 0.01
_HIDDEN = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_OFFLINE")


class Repository:
    """Repository of the hub.

    Args:
        files: Its files, or its files by branch.
        gated: Whether its owner grants access individually.
        private: Whether it is visible only with access.
        granted: Tokens with access.
        page: Files per page of its listing.

    Attributes:
        commits: Files by commit.
        branches: Commit by branch.
    """

    def __init__(
        self,
        files: Mapping[str, bytes] | Mapping[str, Mapping[str, bytes]],
        *,
        gated: bool = False,
        private: bool = False,
        granted: Sequence[str] = (),
        page: int = 1000,
    ) -> None:
        self.gated, self.private, self.granted, self.page = gated, private, tuple(granted), page
        self.commits: dict[str, dict[str, bytes]] = {}
        self.branches: dict[str, str] = {}
        branched = all(isinstance(content, Mapping) for content in files.values())
        for branch, tree in (files if branched else {"main": files}).items():
            self.commit(tree, branch)  # type: ignore[arg-type]

    def commit(self, files: Mapping[str, bytes], branch: str = "main") -> str:
        """Make files the newest state of a branch; the commit id is a hash of them."""
        digest = hashlib.sha1(usedforsecurity=False)
        for name, content in sorted(files.items()):
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        self.commits[digest.hexdigest()] = dict(files)
        self.branches[branch] = digest.hexdigest()
        return digest.hexdigest()

    def resolved(self, revision: str) -> str | None:
        """Return the commit of a revision."""
        return self.branches.get(revision, revision if revision in self.commits else None)


@dataclass
class HubFaults:
    """Faults of the hub, which may change while it runs.

    Attributes:
        unavailable: Number of first requests that are answered with 503.
        limited: Number of first requests that are answered with 429.
        cuts: Number of transfers that end after `cut_after` bytes.
        cut_after: See `cuts`.
        altered: Files whose content is changed in transfer, with equal length.
        forgets_ranges: Whether range requests are answered with the whole file.
    """

    unavailable: int = 0
    limited: int = 0
    cuts: int = 0
    cut_after: int = 0
    altered: set[str] = field(default_factory=set)
    forgets_ranges: bool = False


class HubServer(ThreadingHTTPServer):
    """The hub.

    Args:
        datasets: Dataset repositories by id.
        models: Model repositories by id.
        moved: New id by old id of renamed repositories; requests are redirected.

    Attributes:
        faults: Its faults.
        requests: Count of requests by method and path.
        ranges: The `Range` headers of transfers, in order ("" without one).
    """

    daemon_threads = True

    def __init__(
        self, datasets: Mapping[str, Repository], models: Mapping[str, Repository] | None = None, *, moved: Mapping[str, str] | None = None
    ) -> None:
        self.moved = dict(moved or {})
        self.repositories = {"datasets": dict(datasets), "models": dict(models or {})}
        self.faults = HubFaults()
        self.requests: Counter[str] = Counter()
        self.ranges: list[str] = []
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        """Return the value for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def store(self) -> str:
        """Return the host of large files: the same server under another name, because clients compare host names."""
        return f"http://localhost:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect during a transfer."""

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve from a thread for the length of a block; yield the URL."""
        thread = threading.Thread(target=self.serve_forever, args=(POLL_S,), name="hub-server", daemon=True)
        thread.start()
        try:
            yield self.url
        finally:
            self.shutdown()
            thread.join()
            self.server_close()

    @contextmanager
    def as_hub(self, home: Path) -> Iterator[str]:
        """Serve, and make this the hub of this process, with a cache in `home`; yield the URL."""
        with self.running() as url, hub_at(url, home):
            yield url


@contextmanager
def hub_at(url: str, home: Path) -> Iterator[None]:
    """Configure a hub for this process and its children, with a separate cache and without a token."""
    import huggingface_hub
    from huggingface_hub import constants

    kept = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    kept |= {"HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "RAGMETER_OFFLINE": "0"}
    # huggingface_hub read the environment when it was imported.
    read = {
        "ENDPOINT": url,
        "HUGGINGFACE_CO_URL_TEMPLATE": f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
        "HF_HOME": str(home),
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_TOKEN_PATH": str(home / "token"),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_TELEMETRY": True,
    }
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, kept, clear=True))
        for name, value in read.items():
            stack.enter_context(patch.object(constants, name, value))
        try:
            yield
        finally:
            huggingface_hub.close_session()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: HubServer

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        address = urlsplit(self.path)
        parts = [unquote(part) for part in address.path.strip("/").split("/")]
        with self.server.lock:
            self.server.requests[f"{self.command} {address.path}"] += 1
            fault = self._fault()
        old = next((name for name in self.server.moved if f"/{name}/" in f"{address.path}/"), None)
        if fault:
            self._refuse(fault, None, "try again later", {"Retry-After": "0"})
        elif old is not None:
            self._send(307, b"", {"Location": self.path.replace(old, self.server.moved[old], 1)})
        elif parts[0] == "store":
            self._transfer(parts)
        elif parts[0] == "api" and len(parts) >= 4:
            self._api(parts[1], "/".join(parts[2:4]), parts[4:], address.query)
        elif "resolve" in parts:
            kind = "datasets" if parts[0] == "datasets" else "models"
            at = parts.index("resolve")
            self._resolve(kind, "/".join(parts[at - 2 : at]), parts[at + 1], "/".join(parts[at + 2 :]))
        else:
            self._refuse(404, None, f"there is nothing at {address.path}")

    def _fault(self) -> int:
        faults = self.server.faults
        if faults.unavailable:
            faults.unavailable -= 1
            return 503
        if faults.limited:
            faults.limited -= 1
            return 429
        return 0

    def _open(self, kind: str, name: str, revision: str, *, files: bool) -> tuple[str, dict[str, bytes]] | None:
        """Return a commit and its files, or None if the request was refused."""
        repository = self.server.repositories[kind].get(name)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if repository is None or (repository.private and token not in repository.granted):
            # Without access, the hub does not say whether a repository exists.
            self._refuse(404 if token else 401, "RepoNotFound", "Repository not found")
            return None
        commit = repository.resolved(revision)
        if commit is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        if files and repository.gated and token not in repository.granted:
            self._refuse(403 if token else 401, "GatedRepo", f"Access to {name} is restricted")
            return None
        return commit, repository.commits[commit]

    def _api(self, kind: str, name: str, rest: Sequence[str], query: str) -> None:
        if kind not in self.server.repositories:
            self._refuse(404, None, f"there is nothing at {self.path}")
            return
        if not rest or rest[0] == "revision":
            result = self._open(kind, name, "/".join(rest[1:]) or "main", files=False)
            if result:
                commit, files = result
                siblings = [{"rfilename": file} for file in files]
                gated = "manual" if self.server.repositories[kind][name].gated else False
                self._json({"id": name, "sha": commit, "gated": gated, "tags": [], "siblings": siblings})
        elif rest[0] == "tree":
            result = self._open(kind, name, rest[1], files=True)
            if result:
                self._tree(result[1], "/".join(rest[2:]), parse_qs(query), self.server.repositories[kind][name].page)
        else:
            self._refuse(404, None, f"there is nothing at {self.path}")

    def _tree(self, files: Mapping[str, bytes], folder: str, query: Mapping[str, list[str]], page: int) -> None:
        head = f"{folder}/" if folder else ""
        inside = {name: content for name, content in files.items() if name.startswith(head)}
        if folder and not inside:
            self._refuse(404, "EntryNotFound", f"{folder} does not exist")
            return
        deep = query.get("recursive", ["false"])[0].lower() == "true"
        entries = {name: _entry(name, content) for name, content in sorted(inside.items())}
        if not deep:
            parts = {name: name.removeprefix(head).partition("/") for name in entries}
            folders = {f"{head}{first}" for first, slash, _ in parts.values() if slash}
            entries = {name: entry for name, entry in entries.items() if not parts[name][1]}
            entries |= {name: {"type": "directory", "path": name, "size": 0, "oid": "0" * 40} for name in folders}
        start = int(query.get("cursor", ["0"])[0])
        headers = {}
        if start + page < len(entries):
            address = urlsplit(self.path)
            following = f"{self.server.url}{address.path}?recursive={deep}&cursor={start + page}"
            headers["Link"] = f'<{following}>; rel="next"'
        self._json(list(entries.values())[start : start + page], headers)

    def _resolve(self, kind: str, name: str, revision: str, file: str) -> None:
        result = self._open(kind, name, revision, files=True)
        if not result:
            return
        commit, files = result
        if file not in files:
            self._refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
            return
        content = files[file]
        if not file.endswith(LARGE):
            self._content(content, file, {"X-Repo-Commit": commit, "ETag": f'"{_git_hash(content)}"'})
            return
        headers = {
            "X-Repo-Commit": commit,
            "X-Linked-ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Linked-Size": str(len(content)),
            "ETag": f'"{_git_hash(_pointer(content))}"',
            "Location": f"{self.server.store}/store/{kind}/{name}/{commit}/{file}",
        }
        self._send(302, b"", headers)

    def _transfer(self, parts: Sequence[str]) -> None:
        """Send a large file to anyone with its address."""
        kind, name, commit, file = parts[1], "/".join(parts[2:4]), parts[4], "/".join(parts[5:])
        if self.headers.get("Authorization"):
            self._refuse(400, None, "a token was carried to another host")
            return
        self._content(self.server.repositories[kind][name].commits[commit][file], file, {})

    def _content(self, content: bytes, file: str, headers: dict[str, str]) -> None:
        faults = self.server.faults
        if file in faults.altered:
            content = bytes(byte ^ 1 for byte in content[:1]) + content[1:]
        wanted = self.headers.get("Range", "")
        status, total = 200, len(content)
        if self.command == "GET":
            with self.server.lock:
                self.server.ranges.append(wanted)
        if wanted.startswith("bytes=") and not faults.forgets_ranges:
            start = int(wanted.removeprefix("bytes=").partition("-")[0])
            headers["Content-Range"] = f"bytes {start}-{total - 1}/{total}"
            status, content = 206, content[start:]
        self._send(status, content, {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes"} | headers)

    def _json(self, value: Any, headers: Mapping[str, str] | None = None) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _refuse(self, status: int, code: str | None, message: str, headers: Mapping[str, str] | None = None) -> None:
        reported = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **(headers or {})}
        self._send(status, json.dumps({"error": message}).encode(), reported)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        faults = self.server.faults
        with self.server.lock:
            cut = status in (200, 206) and "Accept-Ranges" in headers and faults.cuts > 0
            faults.cuts -= cut
        self.wfile.write(body[: faults.cut_after] if cut else body)
        if cut:
            self.close_connection = True


def _entry(name: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": name, "size": len(content)}
    if not name.endswith(LARGE):
        return {**entry, "oid": _git_hash(content)}
    pointer = _pointer(content)
    large = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": len(pointer)}
    return {**entry, "oid": _git_hash(pointer), "lfs": large}


def _pointer(content: bytes) -> bytes:
    """Return git's pointer for a large file."""
    digest = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(content)}\n".encode()


def _git_hash(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()
