"""The server of OpenAI's batch API on loopback, with strict checks of requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email import message_from_bytes
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STEPS = ("validating", "in_progress", "finalizing")


class Batches(ThreadingHTTPServer):
    """An endpoint with `/files` and `/batches`; each status request advances a batch by one step.

    Attributes:
        final: Final status of batches.
        held: If set, batches stay in progress.
        refuse: Maps method and path to an error status, or None for a normal reply.
        unanswered: Whether a request, given its prompt, is missing when a batch expires.
        cut: Number of bytes missing at the end of output files.
        usage: Usage of every reply.
        live: Prompts of live calls.
        batches, files: Created objects by id.
    """

    daemon_threads = True

    def __init__(self, reply: Callable[[str], str] = str.upper) -> None:
        self.reply = reply
        self.final = "completed"
        self.held = threading.Event()
        self.refuse: Callable[[str, str], int | None] = lambda method, path: None
        self.failing: Callable[[str], bool] = lambda prompt: False
        self.unanswered: Callable[[str], bool] = lambda prompt: False
        self.cut = 0
        self.twice = False
        self.usage: Mapping[str, Any] = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        self.live: list[str] = []
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def requests(self) -> list[str]:
        """Return the prompts of all batches in order."""
        lines = [line for batch in self.batches.values() for line in self.files[batch["input_file_id"]].splitlines()]
        return [json.loads(line)["body"]["messages"][-1]["content"] for line in lines]

    def store(self, content: bytes) -> str:
        name = f"file-{len(self.files) + 1}"
        self.files[name] = content
        return name

    def advance(self, batch: dict[str, Any]) -> None:
        """Advance a batch by one step."""
        if batch["status"] not in STEPS or (self.held.is_set() and batch["status"] == "in_progress"):
            return
        following = STEPS.index(batch["status"]) + 1
        batch["status"] = STEPS[following] if following < len(STEPS) else self.final
        if batch["status"] == self.final:
            self.finish(batch)

    def finish(self, batch: dict[str, Any]) -> None:
        """Write the files of a batch, in another order than its requests."""
        if self.final == "failed":
            batch["errors"] = {
                "object": "list",
                "data": [{"code": "x", "message": "enqueued token limit reached", "line": None, "param": None}],
            }
            return
        output, errors = [], []
        for line in reversed(self.files[batch["input_file_id"]].splitlines()):
            request = json.loads(line)
            prompt = request["body"]["messages"][-1]["content"]
            row: dict[str, Any] = {"id": "req", "custom_id": request["custom_id"], "error": None}
            if self.final in ("expired", "cancelled") and self.unanswered(prompt):
                errors.append({**row, "response": None, "error": {"code": f"batch_{self.final}", "message": "not executed in time"}})
            elif self.failing(prompt):
                error = {"error": {"message": "content policy", "type": "invalid_request_error", "param": None, "code": None}}
                errors.append({**row, "response": {"status_code": 400, "request_id": "r", "body": error}})
            else:
                output.append({**row, "response": {"status_code": 200, "request_id": "r", "body": self.completion(request["body"])}})
        content = b"".join(json.dumps(row).encode() + b"\n" for row in output)
        if self.twice:  # a second line about each request, without a reply
            content += b"".join(json.dumps({**row, "response": {"status_code": 500, "body": {}}}).encode() + b"\n" for row in output)
        batch["output_file_id"] = self.store(content[: len(content) - self.cut]) if output else None
        batch["error_file_id"] = self.store(b"".join(json.dumps(row).encode() + b"\n" for row in errors)) if errors else None
        batch["request_counts"] |= {"completed": len(output), "failed": len(errors)}

    def completion(self, body: Mapping[str, Any]) -> dict[str, Any]:
        text = self.reply(body["messages"][-1]["content"])
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        return {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice], "usage": self.usage}

    @contextmanager
    def running(self) -> Iterator[Batches]:
        thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class _Refused(Exception):
    pass


def _require(condition: bool, why: str) -> None:
    if not condition:
        raise _Refused(why)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave in one packet
    disable_nagle_algorithm = True
    server: Batches

    def do_GET(self) -> None:
        self.handled(b"")

    def do_POST(self) -> None:
        self.handled(self.rfile.read(int(self.headers.get("content-length") or 0)))

    def handled(self, raw: bytes) -> None:
        path = self.path.split("?")[0].removeprefix("/v1")
        with self.server.lock:
            if (status := self.server.refuse(self.command, path)) is not None:
                self.out(status, {"error": {"message": "refused", "type": "x", "param": None, "code": None}})
                return
            try:
                self.out(200, self.answer(self.command, path, raw))
            except _Refused as refused:
                self.out(400, {"error": {"message": str(refused), "type": "invalid_request_error", "param": None, "code": None}})
            except KeyError as error:
                self.out(
                    404, {"error": {"message": f"no such object: {error}", "type": "invalid_request_error", "param": None, "code": None}}
                )

    def answer(self, method: str, path: str, raw: bytes) -> Any:
        server = self.server
        match method, path.strip("/").split("/"):
            case "POST", ["chat", "completions"]:
                body = json.loads(raw)
                server.live.append(body["messages"][-1]["content"])
                return server.completion(body)
            case "POST", ["files"]:
                return self.upload(raw)
            case "GET", ["files", name, "content"]:
                return server.files[name]
            case "POST", ["batches"]:
                return self.create(json.loads(raw))
            case "GET", ["batches"]:
                return {"object": "list", "data": list(reversed(server.batches.values())), "has_more": False}
            case "GET", ["batches", name]:
                server.advance(server.batches[name])
                return server.batches[name]
            case "POST", ["batches", name, "cancel"]:
                server.batches[name]["status"] = "cancelled"
                return server.batches[name]
        raise KeyError(path)

    def upload(self, raw: bytes) -> dict[str, Any]:
        kind = self.headers["content-type"]
        _require(kind.startswith("multipart/form-data"), "a file must be sent as multipart/form-data")
        message = message_from_bytes(b"content-type: " + kind.encode() + b"\r\n\r\n" + raw, policy=HTTP)
        parts = {part.get_param("name", header="content-disposition"): part.get_payload(decode=True) for part in message.iter_parts()}
        _require(parts.get("purpose") == b"batch", "purpose must be batch")
        content = parts["file"]
        assert isinstance(content, bytes)
        _require(len(content) <= 200_000_000, "a file may have 200 MB")
        name = self.server.store(content)
        return {
            "id": name,
            "object": "file",
            "bytes": len(content),
            "created_at": 1,
            "filename": "f",
            "purpose": "batch",
            "status": "processed",
        }

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        _require(body.get("completion_window") == "24h", "completion_window must be 24h")
        _require(body.get("endpoint") == "/v1/chat/completions", "unknown endpoint")
        lines = self.server.files[body["input_file_id"]].splitlines()
        rows = [json.loads(line) for line in lines]
        _require(0 < len(rows) <= 50_000, "a batch has 1 to 50,000 requests")
        _require(len({row["custom_id"] for row in rows}) == len(rows), "custom_id must be unique")
        for row in rows:
            _require(set(row) == {"custom_id", "method", "url", "body"}, "a line has custom_id, method, url and body")
            _require(row["method"] == "POST" and row["url"] == body["endpoint"], "method and url must be those of the batch")
            _require(isinstance(row["custom_id"], str) and len(row["custom_id"]) <= 64, "custom_id is a text of at most 64 characters")
        _require(len({row["body"]["model"] for row in rows}) == 1, "a batch asks one model")
        name = f"batch_{len(self.server.batches) + 1}"
        empty = dict.fromkeys(("errors", "output_file_id", "error_file_id"))
        counts = {"total": len(rows), "completed": 0, "failed": 0}
        stated = {**body, "id": name, "object": "batch", "status": "validating", "created_at": 4_000_000_000, "request_counts": counts}
        self.server.batches[name] = {**stated, **empty}
        return self.server.batches[name]

    def out(self, status: int, value: Any) -> None:
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/octet-stream" if isinstance(value, bytes) else "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""
