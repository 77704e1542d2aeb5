"""vLLM's dialect of `/v1/completions` on loopback, strict, over a local model: greedy text with its real log-probabilities."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FIELDS = {
    "model": str,
    "prompt": list,
    "temperature": float,
    "max_tokens": int,
    "logprobs": int,
    "stop": list,
    "skip_special_tokens": bool,
    "return_tokens_as_token_ids": bool,
    "echo": bool,
}
MOST_LOGPROBS = 20


class CompletionsServer(ThreadingHTTPServer):
    """A server of one checkpoint.

    Args:
        folder: The checkpoint.
        most: Most log-probabilities per token that are returned, however many are asked for.
        ids: Whether tokens are named by their ids on request, as only vLLM does.
    """

    daemon_threads = True

    def __init__(self, folder: str, most: int = MOST_LOGPROBS, ids: bool = True) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.most, self.ids = most, ids
        self.requests: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve for the length of a block; gives the base URL."""
        thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{self.server_address[1]}/v1"
        finally:
            self.shutdown()
            thread.join()
            self.server_close()

    def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the response to a request.

        Raises:
            ValueError: A field is unknown, of the wrong type or out of range.
        """
        import torch

        for name, value in body.items():
            if name not in FIELDS or not isinstance(value, (int, float) if FIELDS[name] is float else FIELDS[name]):
                raise ValueError(f"unsupported field {name}={value!r}")
        prompt, stop = body["prompt"], body.get("stop", [])
        if not prompt or not all(0 <= number < len(self.tokenizer) for number in prompt):
            raise ValueError("a prompt is a list of token ids of the vocabulary")
        if body.get("temperature") != 0 or not 0 <= body.get("logprobs", 0) <= MOST_LOGPROBS:
            raise ValueError(f"this server decodes greedily and returns at most {MOST_LOGPROBS} log-probabilities")
        ends = self.tokenizer.eos_token_id
        written: list[int] = []
        finish = "length"
        with self.lock, torch.inference_mode():
            while len(written) < body["max_tokens"] and finish == "length":
                written.append(int(self.model(torch.tensor([[*prompt, *written]])).logits[0, -1].argmax()))
                if written[-1] == ends or any(mark in self.tokenizer.decode(written) for mark in stop):
                    finish = "stop"
            ids = [*prompt, *written]
            table = self.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        text = self.tokenizer.decode(written, skip_special_tokens=body.get("skip_special_tokens", True))
        text = text[: min((at for mark in stop if (at := text.find(mark)) >= 0), default=len(text))]
        first = 0 if body.get("echo") else len(prompt)
        number = min(body.get("logprobs", 0), self.most)
        values = [None if place == 0 else float(table[place - 1, ids[place]]) for place in range(first, len(ids))]
        tops: list[dict[str, float] | None] = []
        for place in range(first, len(ids)):
            likeliest = [] if place == 0 else [*table[place - 1].topk(min(number, table.shape[1])).indices.tolist(), ids[place]]
            tops.append({self.name(token, body): float(table[place - 1, token]) for token in likeliest} or None)
        logprobs = {
            "tokens": [self.name(token, body) for token in ids[first:]],
            "token_logprobs": values,
            "top_logprobs": tops,
            "text_offset": [],
        }
        choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": logprobs if "logprobs" in body else None}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(written), "total_tokens": len(ids)}
        return {"id": "cmpl-1", "object": "text_completion", "model": body["model"], "choices": [choice], "usage": usage}

    def name(self, token: int, body: Mapping[str, Any]) -> str:
        """Return how a token is named in a response."""
        return f"token_id:{token}" if self.ids and body.get("return_tokens_as_token_ids") else str(self.tokenizer.decode([token]))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CompletionsServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, value = 404, {"error": {"message": f"there is nothing at {self.path}", "code": 404}}
        if self.path == "/v1/completions":
            self.server.requests.append(body)
            try:
                status, value = 200, self.server.complete(body)
            except (KeyError, ValueError) as error:
                status, value = 400, {"error": {"message": str(error), "code": 400}}
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
