"""vLLM's side of the OpenAI protocol on loopback: its lists, refusals, guided JSON, log-probabilities and prefix cache.

Tokens are words. The prefix cache works as vLLM's does: blocks of tokens, known by all tokens up to their end, of which the
least recently used one is dropped when the cache is full.
"""

from __future__ import annotations

import json
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
"""How versions of vLLM refuse a prompt that does not fit."""


@dataclass(frozen=True, slots=True)
class _Served(Written):
    """A reply with what only vLLM tells of it."""

    cached: int = 0
    scored: bool = False


class VLLM(OpenAIServer):
    """A server like `vllm serve m --enable-prompt-tokens-details`.

    Args:
        model: Its name.
        answer: From a request to the text of the reply; a request for JSON gets an instance of its schema instead.
        max_model_len: Longest prompt and reply together, in tokens.
        blocks: Size of the prefix cache.
        nested: Whether an error is an object under `error`, as newer versions send it, or the whole body.
        too_long: How a prompt that does not fit is refused.

    Attributes:
        requests: In the order of their arrival.
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
    ) -> None:
        super().__init__(model, self._written)
        self.RequestHandlerClass = _Handler
        self.text, self.max_model_len, self.blocks, self.nested = answer, max_model_len, blocks, nested
        self.too_long = too_long
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
    """Return the first instance of a JSON schema, as guided decoding would end with."""
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
