"""vLLM's server of the OpenAI protocol on loopback: model list, refusals, guided JSON, log-probabilities and prefix cache.

In conversations, tokens are words. The prefix cache works like vLLM's: blocks of tokens are identified by all tokens up to
their end, and the least recently used block is dropped when the cache is full. `/v1/completions` is strict, and runs a local
model: greedy text, or the prompt itself (`echo`), with real log-probabilities.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.server import ChatRequest, Handler, OpenAIServer, Refused, Written

BLOCK = 16
"""Tokens of a block, vLLM's default."""
TOO_LONG = (
    "This model's maximum context length is {limit} tokens. However, you requested {most} output tokens and your prompt contains {prompt} "
    "input tokens, for a total of {total} tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
    "This model's maximum context length is {limit} tokens. However, you requested {total} tokens ({prompt} in the messages, {most} in the "
    "completion). Please reduce the length of the messages or completion.",
    "'max_tokens' or 'max_completion_tokens' is too large: {most}. This model's maximum context length is {limit} tokens and your request "
    "has {prompt} input tokens ({most} > {limit} - {prompt}).",
    "The decoder prompt (length {prompt}) is longer than the maximum model length of {limit}. Make sure that `max_model_len` is no smaller "
    "than the number of text tokens.",
)
"""Error messages of vLLM versions for a prompt that does not fit."""


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
"""Permitted fields of a text completion."""
MOST_LOGPROBS = 20


class Weights:
    """A checkpoint that continues and scores token ids.

    Args:
        folder: The checkpoint.
        most: Maximum log-probabilities that are returned per token.
        ids: Whether tokens can be named by their ids on request, as only vLLM does.
        echo: Whether prompts can be echoed on request.
        begin: Token ids that the server adds before every prompt, which vLLM never does.

    Attributes:
        requests: Request bodies in order of arrival.
    """

    def __init__(self, folder: str, most: int = MOST_LOGPROBS, ids: bool = True, echo: bool = True, begin: tuple[int, ...] = ()) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.most, self.ids, self.echo, self.begin = most, ids, echo, list(begin)
        self.requests: list[dict[str, Any]] = []
        self.lock = threading.Lock()

    def complete(self, body: Mapping[str, Any], room: int) -> dict[str, Any]:
        """Return the choice and the usage of a response, unless prompt and reply exceed the context.

        Raises:
            Refused: A field is unknown, of the wrong type or out of range.
        """
        import torch

        for name, value in body.items():
            if name not in FIELDS or not isinstance(value, (int, float) if FIELDS[name] is float else FIELDS[name]):
                raise Refused(400, f"unsupported field {name}={value!r}")
        prompt, stop, most = [*self.begin, *body["prompt"]], body.get("stop", []), body["max_tokens"]
        echo = self.echo and body.get("echo", False)
        if not prompt or not all(0 <= number < len(self.tokenizer) for number in prompt):
            raise Refused(400, "a prompt is a list of token ids of the vocabulary")
        if most < 0 or (most == 0 and not echo):
            raise Refused(400, f"max_tokens must be at least 1, got {most}.")
        if len(prompt) + max(1, most) > room:
            raise Refused(400, TOO_LONG[0].format(limit=room, most=most, prompt=len(prompt), total=len(prompt) + most))
        if body.get("temperature") != 0 or not 0 <= body.get("logprobs", 0) <= MOST_LOGPROBS:
            raise Refused(400, f"this server decodes greedily and returns at most {MOST_LOGPROBS} log-probabilities")
        written: list[int] = []
        finish = "length"
        with self.lock, torch.inference_mode():
            while len(written) < most and finish == "length":
                written.append(int(self.model(torch.tensor([[*prompt, *written]])).logits[0, -1].argmax()))
                if written[-1] == self.tokenizer.eos_token_id or any(mark in self.tokenizer.decode(written) for mark in stop):
                    finish = "stop"
            ids = [*prompt, *written]
            table = self.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        first = 0 if echo else len(prompt)
        text = self.tokenizer.decode(ids[first:], skip_special_tokens=body.get("skip_special_tokens", True))
        text = text[: min((at for mark in stop if (at := text.find(mark)) >= 0), default=len(text))]
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
        usage = {"prompt_tokens": len(prompt), "completion_tokens": max(1, len(written)), "total_tokens": len(ids)}
        return {"choices": [choice], "usage": usage}

    def name(self, token: int, body: Mapping[str, Any]) -> str:
        """Return the name of a token in a response."""
        return f"token_id:{token}" if self.ids and body.get("return_tokens_as_token_ids") else str(self.tokenizer.decode([token]))


@dataclass(frozen=True, slots=True)
class _Served(Written):
    """A reply with fields that only vLLM sends."""

    cached: int = 0
    scored: bool = False


class VLLM(OpenAIServer):
    """A server like `vllm serve m --enable-prompt-tokens-details`.

    Args:
        model: Its name.
        answer: Maps a request to the reply text; a request for JSON gets an instance of its schema instead.
        max_model_len: Maximum tokens of prompt and reply together.
        blocks: Size of the prefix cache.
        nested: Whether an error is an object under `error`, as newer versions send it, or the whole body.
        too_long: Error message for a prompt that does not fit.
        weights: Checkpoint for text completions; None refuses them.

    Attributes:
        requests: Conversations in order of arrival.
        cached: Tokens of each prompt that were in the cache.
    """

    def __init__(
        self,
        model: str = "m",
        answer: Callable[[ChatRequest], str] = lambda request: "Ann",
        *,
        max_model_len: int = 4096,
        blocks: int = 1000,
        nested: bool = True,
        too_long: str = TOO_LONG[0],
        weights: Weights | None = None,
    ) -> None:
        super().__init__(model, self._written)
        self.RequestHandlerClass = _Handler
        self.text, self.max_model_len, self.blocks, self.nested = answer, max_model_len, blocks, nested
        self.too_long, self.weights = too_long, weights
        self.requests: list[ChatRequest] = []
        self.cached: list[int] = []
        self._cache: OrderedDict[tuple[str, ...], None] = OrderedDict()

    def _written(self, request: ChatRequest) -> Written:
        tokens = [word for message in request.messages for word in (message["role"], *message["content"].split())]
        most = request.max_tokens or 0
        if request.body.get("top_logprobs") and not request.body.get("logprobs"):
            raise Refused(400, "when using `top_logprobs`, `logprobs` must be set to true.")
        if len(tokens) + most > self.max_model_len:
            filled = {"limit": self.max_model_len, "most": most, "prompt": len(tokens), "total": len(tokens) + most}
            raise Refused(400, self.too_long.format(**filled))
        with self.lock:
            self.requests.append(request)
            cached = self._cached(tokens)
            self.cached.append(cached)
        schema = schema_of(request.body)
        text = self.text(request) if schema is None else json.dumps(instance(schema, schema))
        return _Served(text, len(tokens), len(text.split()), cached=cached, scored=bool(request.body.get("logprobs")))

    def _cached(self, tokens: list[str]) -> int:
        ends = [tuple(tokens[:end]) for end in range(BLOCK, len(tokens) + 1, BLOCK)]
        hits = next((number for number, block in enumerate(ends) if block not in self._cache), len(ends))
        for block in ends:
            self._cache[block] = None
            self._cache.move_to_end(block)
        while len(self._cache) > self.blocks:
            self._cache.popitem(last=False)
        return hits * BLOCK


class _Handler(Handler):
    server: VLLM
    only = (("stream", (None, False)), ("n", (None, 1)), ("tools", (None,)))

    def do_GET(self) -> None:
        server = self.server
        card = {"id": server.model, "object": "model", "created": 0, "owned_by": "vllm", "root": server.model, "parent": None}
        self.send(200, {"object": "list", "data": [{**card, "max_model_len": server.max_model_len, "permission": []}]})

    def do_POST(self) -> None:
        weights = self.server.weights
        if weights is None or self.path != "/v1/completions":
            super().do_POST()
            return
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        try:
            if body.get("model") != self.server.model:
                raise Refused(404, f"The model `{body.get('model')}` does not exist.", "model_not_found")
            with self.server.lock:
                weights.requests.append(body)
            value = weights.complete(body, self.server.max_model_len)
        except Refused as refused:
            self.refuse(refused)
            return
        self.send(200, {"id": "cmpl-1", "object": "text_completion", "created": 0, "model": self.server.model, **value})

    def completion(self, written: Written) -> dict[str, Any]:
        assert isinstance(written, _Served)
        value = super().completion(written)
        value["usage"]["prompt_tokens_details"] = {"cached_tokens": written.cached}
        message = value["choices"][0]["message"]
        value["choices"][0]["message"] = {**message, "refusal": None, "tool_calls": [], "reasoning": None}
        value["choices"][0] |= {"stop_reason": None, "token_ids": None}
        if written.scored:
            token = {"token": written.text, "logprob": -0.25, "bytes": list(written.text.encode())}
            value["choices"][0]["logprobs"] = {"content": [{**token, "top_logprobs": [token]}]}
        return value | {"system_fingerprint": None, "prompt_logprobs": None, "kv_transfer_params": None}

    def refuse(self, refused: Refused) -> None:
        unknown = refused.status == 404 and refused.code == "model_not_found"
        kind = {400: "BadRequestError", 404: "NotFoundError"}.get(refused.status, "InternalServerError")
        error = {
            "message": "The model `other` does not exist." if unknown else refused.message,
            "type": kind,
            "param": "model" if unknown else None,
            "code": refused.status,
        }
        self.send(refused.status, {"error": error} if self.server.nested else {"object": "error", **error})


def schema_of(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the JSON schema that a request wants its reply to have, in the field of any version of vLLM."""
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        return dict(form["json_schema"]["schema"])
    return body.get("guided_json") or (body.get("structured_outputs") or {}).get("json")


def instance(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """Return the first instance of a JSON schema, as guided decoding would produce."""
    if "$ref" in schema:
        return instance(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    if "anyOf" in schema:
        return instance(schema["anyOf"][0], root)
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object":
        return {name: instance(schema["properties"][name], root) for name in schema.get("required", ())}
    plain: dict[str, Any] = {"array": [], "integer": 0, "number": 0, "boolean": True, "null": None}
    return plain.get(str(schema.get("type")), "text")
