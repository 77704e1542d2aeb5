"""Conversion of replies: every format of thoughts and every failure, against a loopback endpoint."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from benchmarks.schema import Passage, Query
from methods.api import FAILED, SUPPORT, Context, Services
from methods.flow import each, stream, trace
from methods.models.chat import ChatModel, Reply
from methods.models.chat_config import ChatConfig
from methods.models.reply import Completion, completion_of, known_reason, read
from methods.models.reply_cache import Call, shared
from methods.models.thoughts import Split, opening_of, split
from methods.readers.extract import short_answer
from methods.registry import Component
from tests.support.errors import raises
from tests.support.server import Handler, OpenAIServer, Written

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}]


def body(content: Any = "Lyon", finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    """A chat completion; `message` adds fields to its message."""
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return {"model": "served", "choices": [{"message": message, "finish_reason": finish}], "usage": usage, **more}


class Sends:
    """Endpoint that sends the result of a function of the request: a value, or (status, value)."""

    def __init__(self, made: Callable[[dict[str, Any]], Any]) -> None:
        self.made, self.requests, self.seen = made, list[dict[str, Any]](), list[tuple[str, dict[str, str]]]()

    @contextmanager
    def running(self) -> Iterator[str]:
        def send(handler: Handler, request: Any) -> bool:
            self.requests.append(dict(request.body))
            self.seen.append((handler.path, dict(handler.headers)))
            value = self.made(dict(request.body))
            status, value = value if isinstance(value, tuple) else (200, value)
            handler.send(status, value)
            return True

        with OpenAIServer("m", lambda _: Written(""), any_model=True, intercept=send).running() as url:
            yield url


def chat(url: str, cache: Path | None = None, **options: Any) -> ChatModel:
    config = {"model": "m", "base_url": url, "key_variable": None, "backoff_s": 0.001, "attempts": 2, **options}
    return ChatModel(ChatConfig(**config), cache=cache)


def reply_to(sent: Any, raw: bool = False, **options: Any) -> Reply:
    """Return the reply of an endpoint that sends this."""
    with Sends(lambda _: sent).running() as url:
        model = chat(url, **options)
        (_, reply), *_ = _asked(model, raw)
        return reply


def _asked(model: ChatModel, raw: bool = False) -> list[tuple[Any, Reply]]:
    async def one(_: str) -> tuple[Any, Reply]:
        reply = await model.ask(ASKED, raw=raw)
        return trace().calls[-1], reply

    return list(stream(one, ["q"], 1))


ANSWERED = {
    "tags": body("<think>\nOkay. Look at [1].\n</think>\n\nLyon"),
    "orphan closing tag": body("Okay, the user asks.\n</think>\n\nLyon"),
    "field": body("Lyon", message={"reasoning_content": "because"}),
    "field of another name": body("Lyon", message={"reasoning": "because", "reasoning_details": [{"text": "because"}]}),
    "details": body("Lyon", message={"reasoning_details": [{"type": "reasoning.text", "text": "because"}]}),
    "parts": body([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Lyon"}]),
    "further parts": body([{"type": "reasoning", "summary": [{"text": "hm"}]}, {"type": "output_text", "text": "Lyon"}]),
    "harmony": body("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Lyon<|return|>"),
    "parts that are marked": body([{"text": "Paris?", "thought": True}, {"text": "Lyon"}]),
    "brackets": body("[THINK]hm[/THINK]Lyon"),
    "a part of an unknown type": body(
        [
            {"type": "reasoning", "text": "hm"},
            {"type": "search_results", "content": [{"type": "text", "text": "Paris"}]},
            {"type": "text", "text": "Lyon"},
        ]
    ),
    "notes of its own": body("<scratchpad>Paris?</scratchpad>\nLyon"),
    "a thought within a line": body("Paris?<think>hm</think>Lyon"),
    "tokens": body("<|thinking|>hm<|/thinking|>Lyon"),
    "attributes": body('<Reasoning effort="low">hm</Reasoning>\nLyon'),
    "LongCat": body("<longcat_think>\nhm\n</longcat_think>\n\nLyon"),
    "Apertus": body("<|inner_prefix|>hm<|inner_suffix|>Lyon"),
    "ollama run": body("Thinking...\nParis?\n...done thinking.\n\nLyon"),
    "harmony without tokens": body("assistantanalysisParis?assistantfinalLyon"),
    "a byte order mark": body("\ufeff<think>\nhm\n</think>\n\nLyon"),
    "an empty thought": body("<think>\n\n</think>\n\nLyon", message={"reasoning_content": "hm"}),
}


@pytest.mark.parametrize("family", ANSWERED)
def test_thought_is_separated_from_the_answer(family: str) -> None:
    reply = reply_to(ANSWERED[family])
    assert (reply.text, reply.failed, reply.finish_reason, reply.model) == ("Lyon", None, "stop", "served")
    assert reply.thought
    assert reply.raw.endswith(("Lyon", "Lyon<|return|>"))


FAILED_REPLIES: dict[str, tuple[Any, str]] = {
    "thought that never ends": (body("<think>\nOkay, and on", "length"), "still thinking when max_tokens were used up"),
    "thought cut by another name": (body("<think>\nOkay, and on", "MAX_TOKENS"), "still thinking when max_tokens were used up"),
    "thought cut in a field": (body(None, "length", message={"reasoning_content": "Lyon"}), "still thinking when max_tokens were used up"),
    "thought and no answer": (body(None, message={"reasoning_content": "Lyon"}), "thought and no answer"),
    "harmony cut": (body("<|channel|>analysis<|message|>hm", "length"), "still thinking"),
    "harmony without tokens, cut": (body("analysisWe need to", "length"), "still thinking"),
    "tool call in harmony without tokens": (body("analysisWe search.assistantcommentary to=functions.search json{}"), "'functions.search'"),
    "thought and no visible answer": (body("<think>hm</think>\n\n\u200b"), "thought and no answer"),
    "nothing visible": (body("\u200b\ufeff"), "empty"),
    "refusal": (body(None, message={"refusal": "I can't help."}), "refused: I can't help."),
    "refusal in a part": (body([{"type": "refusal", "refusal": "I can't help."}]), "refused: I can't help."),
    "tool call": (body(None, "tool_calls", message={"tool_calls": [{"function": {"name": "search"}}]}), "tool 'search'"),
    "tool call of DeepSeek": (body("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search"), "tool"),
    "tool call as XML": (body('<function_calls><invoke name="search"></invoke></function_calls>'), "function_calls"),
    "function call": (body(None, "function_call", message={"function_call": {"name": "search"}}), "tool 'search'"),
    "tool call in JSON": (body('{"name": "search", "arguments": {"query": "Lyon"}}'), "tool 'search'"),
    "tool call in JSON with parameters": (body('[{"name": "search", "parameters": {"query": "Lyon"}}]'), "tool 'search'"),
    "tool call in fenced JSON": (body('```json\n{"type": "function", "function": {"name": "search", "arguments": "{}"}}\n```'), "'search'"),
    "tool call in a fence": (body("```tool_code\nprint(search('Lyon'))\n```"), "tool 'tool_code'"),
    "search in a tag": (body("<think>hm</think>\n<search> Lyon </search>"), "tool 'search'"),
    "filter": (body(None, "content_filter"), "filter"),
    "empty": (body(""), "empty"),
    "far too long": (body("x" * 1_000_000), "1,000,000 bytes"),
    "far too long a thought": (body("Lyon", message={"reasoning": "x" * 1_000_000}), "bytes"),
    "error with status 200": ({"error": {"message": "Provider returned error", "code": 502}}, "Provider returned error"),
    "error in a choice": ({"choices": [{"error": {"message": "overloaded"}, "finish_reason": "error"}]}, "overloaded"),
    "error beside an answer": (body("Lyo", error={"message": "upstream cut", "code": 502}), "upstream cut"),
    "error as finish reason": (body("Lyo", "error"), "finish reason: error"),
    "error of the server's resources": (body("Lyo", "insufficient_system_resource"), "insufficient_system_resource"),
    "error of a partial reply": ((206, body("Ly")), "HTTP 206"),
    "job": ((202, body("Ly")), "HTTP 202"),
    "filter with its cause": (body("Ly", "content_filter: RECITATION"), "filter"),
    "errors as a list": ((429, [{"error": {"code": 429, "message": "current quota"}}]), "current quota"),
    "errors as a list with status 200": ([{"error": {"code": 503, "message": "busy now"}}], "busy now"),
}


@pytest.mark.parametrize("kind", FAILED_REPLIES)
def test_reply_without_an_answer_fails_with_its_reason(kind: str, tmp_path: Path) -> None:
    sent, reason = FAILED_REPLIES[kind]
    reply = reply_to(sent, cache=tmp_path / "cache.sqlite")
    assert reply.text == ""
    assert reason in (reply.failed or "")
    assert len(shared(tmp_path / "cache.sqlite")) == 0
    assert reply.calls == (2 if "error" in kind else 1)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "final_answer", "arguments": {"answer": "Lyon"}}',
        '{"name": "Lyon", "population": 500000}',
        "<search>city</search>\nLyon",
        "```tool_code\nprint(1)\n```\nLyon",
    ],
)
def test_text_that_gives_an_answer_is_no_tool_call(text: str) -> None:
    assert reply_to(body(text)).text == text


def test_empty_error_next_to_an_answer_is_ignored() -> None:
    assert reply_to(body("Lyon", error={"code": 0, "message": ""})).text == "Lyon"


@pytest.mark.parametrize(
    ("stated", "known"),
    [
        *(("content-filter", "content_filter"), ("ContentFilter", "content_filter"), ("FINISH_REASON_MAX_TOKENS", "max_tokens")),
        *(("FinishReason.MAX_TOKENS", "max_tokens"), ("FinishReason.SAFETY", "safety"), ("FinishReason.STOP", "FinishReason.STOP")),
        *(("max-tokens", "max_tokens"), ("tool-calls", "tool_calls"), ("SAFETY", "SAFETY"), ("eos", "eos"), ("error: gone", "error: gone")),
    ],
)
def test_finish_reasons_in_other_spellings_are_known(stated: str, known: str) -> None:
    assert known_reason(stated) == known


def test_reply_that_a_filter_or_fault_ended_fails_in_any_spelling() -> None:
    for finish in ("content-filter", "ContentFilter", "guardrail_intervened", "IMAGE_SAFETY"):
        assert read(completion_of(body("Lyo", finish))).failed
    for finish in ("error: gone", "TIMEOUT"):
        with pytest.raises(LookupError):
            completion_of(body("Lyo", finish))
    cut = read(completion_of(body("<think>Is it", "max-tokens")))
    assert cut.failed is not None
    assert "max_tokens" in cut.failed


def test_usage_under_other_names_is_counted() -> None:
    counted = completion_of(body() | {"usage": {"input_tokens": 10, "output_tokens": 5}})
    assert (counted.prompt_tokens, counted.completion_tokens) == (10, 5)


def test_choice_without_a_message_is_an_empty_reply_if_it_states_why() -> None:
    cut = completion_of({"choices": [{"finish_reason": "length"}], "usage": {"prompt_tokens": 5, "total_tokens": 55}})
    assert (cut.text, cut.finish_reason, cut.completion_tokens) == ("", "length", 50)
    assert read(cut).failed
    with pytest.raises(ValueError, match="message"):
        completion_of({"choices": [{"index": 0}]})


def test_missing_usage_and_finish_reason_are_unknown_instead_of_errors() -> None:
    reply = reply_to(body("Lyon", None, usage=None))
    assert (reply.text, reply.prompt_tokens, reply.finish_reason) == ("Lyon", 0, "unknown")


USAGES = {
    "openai": ({"prompt_tokens_details": {"cached_tokens": 6}}, 10, 6, None),
    "anthropic": ({"cache_read_input_tokens": 4}, 10, 4, None),
    "anthropic apart": ({"cache_read_input_tokens": 40}, 50, 40, None),
    "deepseek": ({"prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2}, 10, 8, None),
    "openrouter": ({"cost": 0.25, "prompt_tokens_details": {"cached_tokens": 0}}, 10, 0, 0.25),
    "own key": ({"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}}, 10, 0, 0.51),
    "perplexity": ({"cost": {"total_cost": 0.125}}, 10, 0, 0.125),
    "free": ({"cost": 0}, 10, 0, 0.0),
    "negative": ({"prompt_tokens": -10}, 0, 0, None),
    "nonsense": ({"cost": "much", "prompt_tokens_details": None, "cache_read_input_tokens": -3}, 10, 0, None),
}


@pytest.mark.parametrize("kind", USAGES)
def test_cached_tokens_and_reported_cost_are_parsed_and_cached(kind: str) -> None:
    usage, prompt, cached, cost = USAGES[kind]
    made = completion_of(body(usage={"prompt_tokens": 10, "completion_tokens": 5, **usage}))
    assert (made.prompt_tokens, made.cached_tokens) == (prompt, cached)
    assert made.cost_usd == (None if cost is None else pytest.approx(cost))
    assert Completion.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_reported_cost_overrides_prices_and_cached_tokens_have_their_own_price() -> None:
    config = ChatConfig(
        model="m", usd_per_million_prompt_tokens=2e6, usd_per_million_completion_tokens=0.0, usd_per_million_cached_tokens=1e6
    )
    made = completion_of(body(usage={"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 6}}))
    assert config.cost(made) == pytest.approx(14.0)
    assert config.model_copy(update={"usd_per_million_cached_tokens": None}).cost(made) == pytest.approx(20.0)
    assert config.cost(completion_of(body(usage={"prompt_tokens": 10, "completion_tokens": 5, "cost": 3.0}))) == 3.0


def test_cost_is_unknown_without_usage_or_price_and_zero_for_a_server_without_a_key() -> None:
    silent, counted = completion_of(body(usage=None)), completion_of(body())
    prices = {"usd_per_million_prompt_tokens": 1.0, "usd_per_million_completion_tokens": 1.0}
    assert ChatConfig(model="m", **prices).cost(silent) is None
    assert ChatConfig(model="m").cost(counted) is None
    assert ChatConfig(model="m", key_variable=None).cost(silent) == 0.0
    assert ChatConfig(model="m", key_variable=None, headers={"api-key": "${AZURE_KEY}"}).cost(counted) is None
    assert ChatConfig(model="m", **dict.fromkeys(prices, 0.0)).cost(silent) == 0.0


def test_call_keeps_every_field_of_its_reply() -> None:
    with Sends(lambda _: body("<think>hm</think>Lyo", "length")).running() as url:
        ((call, _),) = _asked(chat(url))
    assert (call.reply, call.thought, call.raw, call.finish_reason, call.model) == ("Lyo", "hm", "<think>hm</think>Lyo", "length", "served")
    with Sends(lambda _: body(None, message={"refusal": "No."})).running() as url:
        ((call, _),) = _asked(chat(url))
    assert (call.reply, call.refusal, call.failed, call.raw) == ("refused: No.", "No.", True, "")


def test_raw_text_includes_the_thought_from_text_or_field() -> None:
    assert reply_to(body("<think>hm</think><search>x</search>"), raw=True).text == "<think>hm</think><search>x</search>"
    assert reply_to(body("<search>x</search>", message={"reasoning": "hm"}), raw=True).text == "<think>\nhm\n</think>\n\n<search>x</search>"
    assert reply_to(body("<think>cut", "length"), raw=True).failed is None


def test_reply_cached_with_an_unsplit_thought_is_split_on_reading(tmp_path: Path) -> None:
    model = chat("http://127.0.0.1:1/v1", cache=tmp_path / "cache.sqlite")
    call = Call("http://127.0.0.1:1/v1", "m", ASKED, {"temperature": 0.0, "max_tokens": 64})
    old = {"text": "<think>hm</think>\nLyon", "finish_reason": "stop", "prompt_tokens": 1, "completion_tokens": 1, "model": "m"}
    shared(tmp_path / "cache.sqlite").put(call, old)
    ((_, reply),) = _asked(model)
    assert (reply.text, reply.thought, reply.cached) == ("Lyon", "hm", True)


def test_thought_from_a_separate_field_is_cached(tmp_path: Path) -> None:
    with Sends(lambda _: body("Lyon", message={"reasoning_content": "because"})).running() as url:
        replies = [_asked(chat(url, cache=tmp_path / "cache.sqlite"))[0][1] for _ in range(2)]
    assert [(reply.thought, reply.cached) for reply in replies] == [("because", False), ("because", True)]


PLAIN = [
    "Lyon",
    "42",
    "$5",
    "yes",
    "M*A*S*H",
    "__init__",
    "U.S.",
    "[1994]",
    "C++",
    "12 May 1994",
    "Use the <think> tag.",
    "The tag is </think>",
    "Use <think> and </think> tags.",
    'It writes "</think>" last.',
    "Write `<think>` and `</think>`.",
    "First:\n```\n<think>\nx\n</think>\n```\nDone",
    "First:\n```xml\n<think>\nx",
    '{"text": "a </think> b"}',
    "I think, therefore I am",
    "  two\n\n  lines ",
]


@pytest.mark.parametrize("text", PLAIN)
@pytest.mark.parametrize("finish", ["stop", "length", ""])
def test_plain_text_never_changes(text: str, finish: str) -> None:
    parts = split(text, finish)
    assert (parts.text, parts.thought, parts.open) == (text, "", False)


ANSWERS = [
    "Lyon",
    "yes",
    "42",
    "3.14",
    "12 May 1994",
    "Robert Downey Jr.",
    "U.S.",
    "São Paulo",
    "北京",
    "M*A*S*H",
    "C++",
    "AC/DC",
    "$5 million",
]
ANSWERS += ["Ann, Bob", "the Élysée Palace", "O'Neill", "#9 Dream", "-5", "R2-D2", "No. 5"]
THOUGHTS = [
    "Okay, the user asks.",
    "Is it Paris?\n\nI doubt it. [1] says so.",
    "x < y and `code`",
    "",
    "Answer: Paris\n```py\nprint(1)\n```",
]
FAMILIES: list[Callable[[str, str], Any]] = [
    lambda thought, text: body(text),
    *(lambda thought, text, t=tag: body(f"<{t}>\n{thought}\n</{t}>\n\n{text}") for tag in ("think", "THINKING", "thought", "reasoning")),
    lambda thought, text: body(f"{thought}\n</think>\n{text}"),
    lambda thought, text: body(f"[THINK]{thought}[/THINK]{text}"),
    lambda thought, text: body(f"◁think▷{thought}◁/think▷{text}"),
    lambda thought, text: body(
        f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant<|channel|>final<|message|>{text}<|return|>"
    ),
    lambda thought, text: body(
        f'<details type="reasoning" done="true" duration="2">\n<summary>Thought for 2 seconds</summary>\n> {thought}\n</details>\n{text}'
    ),
    lambda thought, text: body(f":::thinking\n{thought}\n:::\n\n{text}"),
    lambda thought, text: body(f"Here is my thought process:\n{thought}\nHere is my response:\n{text}"),
    lambda thought, text: body("*Thinking...*\n\n" + "".join(f"> {line}\n" for line in thought.split("\n")) + f"\n{text}"),
    lambda thought, text: body(text, message={"reasoning_content": thought}),
    lambda thought, text: body(text, message={"reasoning": thought}),
    lambda thought, text: body([{"type": "thinking", "thinking": thought}, {"type": "text", "text": text}]),
]
FORMS: list[Callable[[str], str]] = [
    lambda answer: answer,
    lambda answer: f"**{answer}**",
    lambda answer: f"**Answer:** {answer}",
    lambda answer: f"Answer: {answer}",
    lambda answer: f"**Answer: {answer}**",
    lambda answer: f"### Final answer\n\n{answer}",
    lambda answer: f"Based on the passages:\n\n{answer}",
    lambda answer: f"{answer} [1]",
    lambda answer: f"{answer} [2][1]",
    lambda answer: f"```\n{answer}\n```",
    lambda answer: f"```json\n{json.dumps({'answer': answer})}\n```",
    lambda answer: json.dumps({"final_answer": answer}),
    lambda answer: f"The answer is $\\boxed{{{answer}}}$",
    lambda answer: f"<answer>{answer}</answer>",
    lambda answer: f"{answer}<|im_end|>",
    lambda answer: f'"{answer}"',
]


def test_answer_is_extracted_from_200_wrappings_and_a_plain_one_is_unchanged() -> None:
    draws = random.Random(7)
    wrappings = [
        (draws.choice(FAMILIES), draws.choice(FORMS), draws.choice(THOUGHTS), draws.choice(("stop", "length"))) for _ in range(200)
    ]
    for answer in ANSWERS:
        assert short_answer(answer) == answer
        for family, form, thought, finish in wrappings:
            sent = family(thought, form(answer))
            sent["choices"][0]["finish_reason"] = finish
            content = read(completion_of(sent), max_tokens=64)
            assert content.failed is None
            assert short_answer(content.text, lambda number: number <= 2) == answer, (sent, content)
            assert thought.strip().partition("\n")[0] in content.thought or family is FAMILIES[0]


@pytest.mark.parametrize(
    "unit",
    ["<think>", "</think>", "x\n<think>\n", "<think></think>", "a <think> b</think> ", "`", '"', "[", "{", "```\n", "<|channel|>", "**",
     "\n", '{"/*', "{,", '<details type="reasoning"></details>', "Here is my thought process:", "*Thinking...*\n>"],
)  # fmt: skip
def test_parsing_takes_linear_time(unit: str) -> None:
    began = time.process_time()
    for start in ("", "Lyon ", "<think>", "*Thinking...*"):
        split(start + unit * 30_000, "length")
        short_answer(start + unit * 30_000)
    assert time.process_time() - began < 4


@pytest.mark.parametrize("begin", ["Here is my thought process:", "Here's my thought process:"])
def test_answer_that_begins_with_words_of_granite_is_a_thought_only_with_its_end(begin: str) -> None:
    answer = f"{begin}\n1. [2] names the river.\n\n**Final answer:** Lyon"
    assert split(answer) == split(answer, "stop") == Split("", answer)
    assert split(answer, "length").open
    closed = split(f"{begin}\n1. [2] names the river.\n\n**Here is my answer:** Lyon")
    assert (closed.thought, closed.text.strip()) == ("1. [2] names the river.", "Lyon")


def test_template_that_opens_a_thought_is_detected() -> None:
    assert opening_of("<|im_start|>assistant\n<think>\n") == "<think>"
    assert opening_of("<think>\n\n</think>\n\n") == ""
    assert read(Completion("<think>and on", "length", 1, 1, "m")).failed == "still thinking when max_tokens were used up"


def refuses(message: str, status: int = 400, **more: Any) -> tuple[int, Any]:
    return status, {"error": {"message": message, "type": "invalid_request_error", **more}}


def o3_like(request: dict[str, Any]) -> Any:
    if "max_tokens" in request:
        return refuses("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")
    if request.get("temperature", 1) != 1:
        return refuses("Unsupported value: 'temperature' does not support 0 with this model.", param="temperature")
    return body("Lyon")


def _without(name: str, refusal: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda request: refusal if name in request else body("Lyon")


REFUSING: dict[str, tuple[Callable[[dict[str, Any]], Any], set[str]]] = {
    "o3": (o3_like, {"max_completion_tokens", "seed", "top_k"}),
    "deprecated": (_without("temperature", refuses("`temperature` is deprecated for this model.")), {"max_tokens", "seed", "top_k"}),
    "unknown": (_without("seed", refuses("Unrecognized request argument supplied: seed")), {"temperature", "max_tokens", "top_k"}),
    "Moonshot": (
        _without("temperature", refuses("invalid temperature: only 1 is allowed for this model")),
        {"max_tokens", "seed", "top_k"},
    ),
    "Anthropic": (
        _without("temperature", refuses("`temperature` may only be set to 1 when thinking is enabled.")),
        {"max_tokens", "seed", "top_k"},
    ),
    "another value": (
        _without("temperature", refuses("invalid temperature: only 0.6 is allowed for this model")),
        {"max_tokens", "seed", "top_k"},
    ),
    "extra": (_without("seed", refuses("seed: Extra inputs are not permitted")), {"temperature", "max_tokens", "top_k"}),
    "pydantic": (
        _without(
            "top_k", (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "top_k"], "msg": "Extra inputs are not permitted"}]})
        ),
        {"temperature", "max_tokens", "seed"},
    ),
}


@pytest.mark.parametrize("kind", REFUSING)
def test_refused_parameter_is_dropped_or_renamed_with_one_warning(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    made, left = REFUSING[kind]
    server = Sends(made)
    with server.running() as url:
        for _ in range(2):  # another client of the same model has learned it, too
            model = chat(url, parameters={"seed": 1, "top_k": 5, "top_p": None})
            reply = _asked(model)[0][1]
            assert (reply.text, reply.version) == ("Lyon", f"sent without {' '.join({'temperature', 'seed', 'top_k'} - left)}")
    assert set(server.requests[-1]) - {"model", "messages"} == left
    refusals = 2 if kind == "o3" else 1
    assert len(server.requests) == 2 + refusals
    assert capsys.readouterr().err.count("note: ") == refusals


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (64 in max_tokens).",
        "max_tokens is too large: 64. This model supports at most 16 completion tokens",
        "temperature must be between 0 and 2",
        "bad request",
    ],
)
def test_refusal_without_an_unknown_parameter_fails_the_call(message: str) -> None:
    server = Sends(lambda _: refuses(message, param="max_tokens"))
    with server.running() as url:
        reply = _asked(chat(url))[0][1]
    assert message[:20] in (reply.failed or "")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "message",
    [
        "System role not supported",
        "Only user and assistant roles are supported!",
        "Developer instruction is not enabled for models/gemma",
        "messages[0].role does not support 'system'",
        "'messages[0].role' must be one of: 'user', 'assistant'",
        "Input should be 'user' or 'assistant'",
    ],
)
def test_system_message_is_folded_if_the_endpoint_refuses_its_role(message: str) -> None:
    server = Sends(lambda request: refuses(message) if request["messages"][0]["role"] == "system" else body("Lyon"))
    with server.running() as url:
        model = chat(url)
        assert model.preflight().text == "Lyon"
        assert _asked(model)[0][1].text == "Lyon"
    assert [[item["role"] for item in request["messages"]] for request in server.requests] == [["system", "user"], ["user"], ["user"]]
    assert server.requests[-1]["messages"][0]["content"] == "Be brief.\n\nWhere?"


def test_preflight_request_equals_a_real_request_in_form() -> None:
    server = Sends(lambda _: body("Lyon"))
    with server.running() as url:
        model = chat(url, temperature=None, max_tokens=None, parameters={"seed": 3})
        model.preflight()
        _asked(model)
    first, second = server.requests
    assert {name: first[name] for name in first if name != "messages"} == {"model": "m", "seed": 3}
    assert first.keys() == second.keys()
    assert [item["role"] for item in first["messages"]] == [item["role"] for item in second["messages"]]


def test_header_and_query_secrets_come_from_the_environment_and_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "s3cret-value")
    options = {"headers": {"api-key": "${MY_SECRET}", "x-team": "rag"}, "query": {"api-version": "2024-10-21"}}
    server = Sends(lambda _: refuses("bad key s3cret-value"))
    with server.running() as url:
        reply = _asked(chat(url, **options))[0][1]
        config = ChatConfig(model="m", base_url=url, **options)
    path, headers = server.seen[0]
    sent = {name.lower(): value for name, value in headers.items()}
    assert (sent["api-key"], sent["x-team"], "authorization" in sent) == ("s3cret-value", "rag", False)
    assert path.endswith("?api-version=2024-10-21")
    assert "***" in (reply.failed or "")
    assert "s3cret" not in (reply.failed or "") + config.model_dump_json()
    assert not {"headers", "query"} & config.model_dump().keys()
    monkeypatch.delenv("MY_SECRET")
    with raises("missing-variable"):
        chat("http://127.0.0.1:1/v1", **options)
    with raises("missing-variable"):
        Component.of("chat", {"llm": {"model": "m", "key_variable": None, **options}}).preflight()
    with pytest.raises(ValueError, match="not \\$"):
        ChatConfig(model="m", headers={"x-team": "${my-team}"})
    with pytest.raises(ValueError, match="api-key") as caught:
        ChatConfig(model="m", headers={"api-key": "s3cret-value"})
    assert "s3cret" not in str(caught.value)


def test_error_names_proxy_and_certificate_variables_without_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hidden@proxy.example:3128")
    monkeypatch.setenv("ALL_PROXY", "me:hidden@proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(UserError) as caught:
        chat("http://127.0.0.1:1/v1").preflight()
    assert "HTTPS_PROXY=http://***@proxy.example:3128" in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_reader_keeps_the_raw_reply_and_its_citations_as_support() -> None:
    passages = (Passage("p1", "Works", "A plant in Lyon."), Passage("p2", "", "Nothing."))
    server = Sends(lambda request: body("<think>hm</think>**Answer:** Lyon [1][7]" if "cites" in str(request) else "Lyon [2]."))
    with server.running() as url:
        options = {"llm": {"model": "m", "base_url": url, "key_variable": None}}
        reader = Component.of("chat", options).build(Services())
        whole = Component.of("chat", {**options, "extract": "none"}).build(Services())
        lost = Component.of("chat", {**options, "extract": {"regex": r"#(\d+)"}}).build(Services())
        queries = [Query("q1", "who cites?"), Query("q2", "who?")]
        contexts = [Context(query.id, passages) for query in queries]
        cites, plain = each(reader, "read", queries, contexts)
        (kept,) = each(whole, "read", queries[1:], contexts[1:])
        (missed,) = each(lost, "read", queries[1:], contexts[1:])
    assert (cites.text, cites.raw, SUPPORT in cites.notes) == ("Lyon [1][7]", "<think>hm</think>**Answer:** Lyon [1][7]", False)
    assert (plain.text, plain.raw, plain.notes[SUPPORT]) == ("Lyon", "Lyon [2].", ["p2"])
    assert (kept.text, kept.raw) == ("Lyon [2].", "")
    assert (missed.text, FAILED in missed.notes) == ("", True)


def test_reader_description_includes_the_extraction() -> None:
    llm = {"model": "m", "key_variable": None}
    fingerprints = {
        Component.of("chat", {"llm": llm, **more}).fingerprint
        for more in ({}, {"extract": "none"}, {"extract": "last_line"}, {"extract": {"regex": "a"}}, {"extract": {"regex": "b"}})
    }
    assert len(fingerprints) == 5
    with pytest.raises(ValueError, match="regular expression"):
        Component.of("chat", {"llm": llm, "extract": {"regex": "("}})
