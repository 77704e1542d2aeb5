"""The server's side of the OpenAI protocol, for what answers from this process: `/v1/models`, `/v1/chat/completions`
and `/v1/completions`, over the standard library's HTTP server, one thread a connection.
"""

from __future__ import annotations

import copy
import json
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.core.errors import UserError
from methods.models.causal import CausalConfig, CausalModel, Sampling

LONGEST_REQUEST = 64 * 2**20
"""Bytes; more is refused unread."""
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a client asks.

    Attributes:
        model: The name it asks for.
        messages: The conversation; for `/v1/completions`, one user message.
        raw_prompt: The prompt of `/v1/completions`, which no chat template touches; None for a chat.
        max_tokens: Longest reply, None where it does not say.
        body: Everything that was sent.
    """

    model: str
    messages: tuple[dict[str, str], ...]
    raw_prompt: str | None
    max_tokens: int | None
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        """The last message."""
        return self.messages[-1]["content"] if self.messages else ""


@dataclass(frozen=True, slots=True)
class Written:
    """What a server answers."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str = "stop"


class Refused(Exception):
    """A request that is answered by an error.

    Args:
        status: HTTP status.
        message: Of the error, for the client.
        code: The protocol's error code.
    """

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


class OpenAIServer(ThreadingHTTPServer):
    """An OpenAI-compatible endpoint.

    Args:
        model: The name that it goes by; requests for another are refused, unless `any_model`.
        answer: From a request to a reply; called from many threads at once. Raises `Refused`.
        host: Address to listen on.
        port: 0 takes a free one.
        any_model: Whether any model name is answered.
        intercept: Called with the handler and the request before `answer`; True means that it has replied itself.

    Raises:
        UserError: The address cannot be listened on.
    """

    daemon_threads = True
    request_queue_size = 512

    def __init__(
        self,
        model: str,
        answer: Callable[[ChatRequest], Written],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        any_model: bool = False,
        intercept: Callable[[Handler, ChatRequest], bool] | None = None,
    ) -> None:
        self.model = model
        self.answer = answer
        self.any_model = any_model
        self.intercept = intercept
        self.calls = 0
        self.lock = threading.Lock()
        try:
            super().__init__((host, port), Handler)
        except OSError as error:
            raise UserError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                where="--host, --port",
                try_this="another port, or end the program that listens there",
            ) from None

    @property
    def url(self) -> str:
        """The base URL for clients."""
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"http://{'127.0.0.1' if name == '0.0.0.0' else name}:{port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is no event."""

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve from a thread for the length of a block; gives the base URL."""
        thread = threading.Thread(target=self.serve_forever, args=(POLL_S,), name="openai-server", daemon=True)
        thread.start()
        try:
            yield self.url
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave in one packet; apart they would wait for each other's acknowledgement
    disable_nagle_algorithm = True
    server: OpenAIServer

    def do_GET(self) -> None:
        """List the model."""
        if self.path.rstrip("/") != "/v1/models":
            self.refuse(Refused(404, f"there is nothing at {self.path}"))
            return
        model = {"id": self.server.model, "object": "model", "created": 0, "owned_by": "ragmeter"}
        self.send(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        """Answer a conversation or continue a prompt."""
        try:
            request = self._request()
            with self.server.lock:
                self.server.calls += 1
            if self.server.intercept is not None and self.server.intercept(self, request):
                return
            written = self.server.answer(request)
        except Refused as refused:
            self.refuse(refused)
            return
        except Exception as error:  # a client must not wait for a reply that never comes
            self.refuse(Refused(500, f"{type(error).__name__}: {error}"))
            return
        self.send(200, self.completion(request, written))

    def _request(self) -> ChatRequest:
        try:
            length = int(self.headers["content-length"])
        except (TypeError, ValueError):
            self.close_connection = True
            raise Refused(411, "the request says no length") from None
        if not 0 <= length <= LONGEST_REQUEST:
            self.close_connection = True
            raise Refused(413, f"a request may have {LONGEST_REQUEST:,} bytes")
        raw = self.rfile.read(length)
        path = self.path.split("?")[0].rstrip("/")
        if path not in ("/v1/chat/completions", "/v1/completions"):
            raise Refused(404, f"there is nothing at {self.path}")
        try:
            body = json.loads(raw)
        except ValueError:
            raise Refused(400, "the request is not JSON") from None
        if not isinstance(body, dict):
            raise Refused(400, "the request is not an object")
        if body.get("model") != self.server.model and not self.server.any_model:
            raise Refused(404, f"the model {body.get('model')!r} does not exist", "model_not_found")
        for name, only in (("stream", (None, False)), ("n", (None, 1)), ("logprobs", (None, False)), ("tools", (None,))):
            if body.get(name) not in only:
                raise Refused(400, f"this server does not know {name}={body[name]!r}")
        chat = path == "/v1/chat/completions"
        messages = _messages(body.get("messages")) if chat else _prompt(body.get("prompt"))
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise Refused(400, f"max_tokens must be a positive whole number, not {limit!r}")
        raw_prompt = None if chat else messages[0]["content"]
        return ChatRequest(str(body.get("model")), messages, raw_prompt, limit, body)

    def completion(self, request: ChatRequest, written: Written) -> dict[str, Any]:
        """The reply as the protocol has it."""
        chat = request.raw_prompt is None
        choice: dict[str, Any] = {"index": 0, "finish_reason": written.finish_reason, "logprobs": None}
        choice |= {"message": {"role": "assistant", "content": written.text}} if chat else {"text": written.text}
        prompt, wrote = written.prompt_tokens, written.completion_tokens
        return {
            "id": "ragmeter",
            "object": "chat.completion" if chat else "text_completion",
            "created": int(time.time()),
            "model": self.server.model,
            "choices": [choice],
            "usage": {"prompt_tokens": prompt, "completion_tokens": wrote, "total_tokens": prompt + wrote},
        }

    def refuse(self, refused: Refused) -> None:
        """Send an error."""
        kind = "server_error" if refused.status >= 500 else "invalid_request_error"
        error = {"message": refused.message, "type": kind, "param": None, "code": refused.code}
        self.send(refused.status, {"error": error})

    def send(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
        """Send a value as JSON; bytes as they are."""
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, text)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        """Say nothing: conversations are nobody's business."""


def _messages(options: Any) -> tuple[dict[str, str], ...]:
    if not isinstance(options, Sequence) or isinstance(options, str) or not options:
        raise Refused(400, "messages must be a list of at least one message")
    messages = []
    for message in options:
        if not isinstance(message, dict) or message.get("role") not in ("system", "developer", "user", "assistant"):
            raise Refused(400, "a message is an object with a role (system, user, assistant) and a content")
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        if not isinstance(content, str):
            raise Refused(400, "a message's content must be text")
        role = "system" if message["role"] == "developer" else message["role"]
        messages.append({"role": role, "content": content})
    return tuple(messages)


def _prompt(options: Any) -> tuple[dict[str, str], ...]:
    if isinstance(options, list) and len(options) == 1:
        options = options[0]
    if not isinstance(options, str):
        raise Refused(400, "prompt must be one text")
    return ({"role": "user", "content": options},)


# -- A local language model as an OpenAI-compatible endpoint --
# Requests that arrive together are generated together; what a request is answered does not depend on its company.


GATHER_S = 0.005
"""How long the first request of a batch waits for others."""


@dataclass(frozen=True)
class _Job:
    """A request on its way through the model."""

    prompt: str
    max_tokens: int
    sampling: Sampling | None
    seed: int | None
    done: Future[Written] = field(default_factory=Future)


class LocalServer:
    """Answers requests with a local model.

    Args:
        config: The model, and the defaults of a request: `max_new_tokens` is the longest reply of all.
        name: What the model is called; the last part of its path when absent.
        device: "cpu", "cuda" …; None chooses.

    Raises:
        UserError: The model cannot be loaded.
    """

    def __init__(self, config: CausalConfig, name: str | None = None, device: str | None = None) -> None:
        self.model = CausalModel(config, device)
        self.name = name or config.model.rstrip("/").rsplit("/", 1)[-1]
        self._jobs: queue.Queue[_Job | None] = queue.Queue()
        self._worker = threading.Thread(target=self._work, name="generate", daemon=True)
        self._worker.start()

    def server(self, host: str = "127.0.0.1", port: int = 0) -> OpenAIServer:
        """An endpoint of this model.

        Raises:
            UserError: The address cannot be listened on.
        """
        return OpenAIServer(self.name, self.answer, host=host, port=port)

    def close(self) -> None:
        """End the worker after what it is at."""
        self._jobs.put(None)
        self._worker.join()

    def answer(self, request: ChatRequest) -> Written:
        """Answer one request; called from many threads.

        Raises:
            Refused: The prompt is too long, or an option is unknown.
        """
        if request.raw_prompt is None:
            prompt = self.model.render_chat(request.messages)
        else:
            prompt = request.raw_prompt
        most = self.model.config.max_new_tokens
        tokens = len(self.model.encode(prompt))
        if tokens > self.model.room:
            raise Refused(
                400,
                f"the model's maximum context length is {self.model.room + most} tokens, of which {most} are kept for "
                f"the reply; the prompt has {tokens}",
                "context_length_exceeded",
            )
        if tokens == 0:
            raise Refused(400, "the prompt is empty")
        sampling, seed = _sampling(request)
        job = _Job(prompt, min(request.max_tokens or most, most), sampling, seed)
        self._jobs.put(job)
        return _stopped(job.done.result(), request.body.get("stop"))

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            batch = [first]
            while len(batch) < self.model.config.batch_size:
                try:
                    job = self._jobs.get(timeout=GATHER_S)
                except queue.Empty:
                    break
                if job is None:
                    self._jobs.put(None)
                    break
                batch.append(job)
            groups: dict[Any, list[_Job]] = defaultdict(list)
            for job in batch:
                groups[job.max_tokens, job.sampling, job.seed is None].append(job)
            for jobs in groups.values():
                self._generate(jobs)

    def _generate(self, jobs: list[_Job]) -> None:
        """Generate for requests of equal options."""
        first = jobs[0]
        # The same weights with another longest reply.
        model = copy.copy(self.model)
        model.config = self.model.config.model_copy(update={"max_new_tokens": first.max_tokens})
        seeds = None if first.seed is None else [int(job.seed or 0) for job in jobs]
        try:
            generations = model.generate([job.prompt for job in jobs], sampling=first.sampling, seeds=seeds)
        except Exception as error:
            for job in jobs:
                job.done.set_exception(error)
            return
        for job, generation in zip(jobs, generations, strict=True):
            tokens = generation.completion_tokens
            reason = "length" if tokens >= job.max_tokens else "stop"
            job.done.set_result(Written(generation.text, generation.prompt_tokens, tokens, reason))


def _sampling(request: ChatRequest) -> tuple[Sampling | None, int | None]:
    """How tokens are drawn, and the seed; greedily unless a temperature is asked for."""
    body = request.body
    for name in ("frequency_penalty", "presence_penalty", "logit_bias", "response_format"):
        if body.get(name):
            raise Refused(400, f"this server does not know {name}")
    temperature = body.get("temperature") or 0.0
    if not isinstance(temperature, int | float) or not 0 <= temperature <= 2:
        raise Refused(400, "temperature must lie between 0 and 2")
    if temperature == 0:
        return None, None
    seed = body.get("seed")
    if seed is not None and not isinstance(seed, int):
        raise Refused(400, "seed must be a whole number")
    try:
        return Sampling(temperature=float(temperature), top_p=float(body.get("top_p") or 1.0)), seed
    except (TypeError, ValueError) as error:
        raise Refused(400, str(error)) from None


def _stopped(written: Written, stop: Any) -> Written:
    """The reply up to the first stop text."""
    stops = [stop] if isinstance(stop, str) else list(stop or ())
    positions = [position for text in stops if text and (position := written.text.find(str(text))) >= 0]
    if not positions:
        return written
    return Written(written.text[: min(positions)], written.prompt_tokens, written.completion_tokens, "stop")
