"""Convert a model's response into thought, text, finish reason, refusal, served model and usage.

`completion_of` reads an endpoint's JSON into a `Completion`, which the cache stores with the unchanged content. Local
models and scripts create their own. `read` extracts the answer's text from a completion, or the reason why there is none.
A thought is never used as the answer.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from methods.api import CUT
from methods.models.usage import spent

READING = 7
"""Version of how replies become answers, by `read`, `thoughts` and `readers.extract`. Raise it if a reply may give another answer.

It is part of the identity of readers, programs, of other methods through `llm_hash`, and of all that a model writes and that is
stored (graphs, queries, questions, rewrites, labels, orders, teacher answers) through `ChatConfig.identity`.
"""
CACHED = {"text": str, "finish_reason": str, "prompt_tokens": int, "completion_tokens": int, "model": str}
"""Completion fields that are always cached, with their types."""
STATED = ("system_fingerprint", "version", "thought")
"""Optional text fields that are cached if the endpoint sent them."""
SPENT = {"cached_tokens": int, "cost_usd": float, "batched": bool}
"""Optional number fields that are cached if they differ from the default, with their types."""
SMALLEST_LIMIT = 64 * 1024
"""Minimum of the size limit of replies, in bytes."""
BYTES_PER_TOKEN = 32
"""Size limit of a reply in bytes per allowed token."""
UNSTATED_TOKENS = 32_768
"""Assumed token limit for the size limit of replies if `max_tokens` is null."""
FILTERED = frozenset({"content_filter", "safety", "prohibited_content", "recitation", "blocklist", "spii", "sensitive", "error_toxic"})
FILTERED |= {"content_filtered", "guardrail_intervened", "image_safety", "language", "model_armor", "blocked"}
"""Finish reasons, in lower case, of replies that a filter withheld; a cause may follow a colon."""
BROKEN = frozenset({"error", "abort", "aborted", "cancelled", "canceled", "user_cancel", "incomplete", "network_error", "other"})
BROKEN |= {"insufficient_system_resource", "time_limit", "timeout"}
"""Finish reasons, in lower case, of replies that a fault of the server ended."""
CALLS_TOOL = frozenset({"tool_calls", "tool_use", "function_call"})
"""Finish reasons, in lower case, of replies that call a tool."""
_THOUGHT_PARTS = frozenset({"thinking", "reasoning", "thought", "redacted_thinking"})
_TEXT_PARTS = frozenset({"text", "output_text"})
_TOOL_PARTS = frozenset({"tool_use", "tool_call", "function_call", "server_tool_use"})
_DEEPEST = 8


class ErrorReply(Exception):
    """Raised if an endpoint returns an error with HTTP status 200.

    Attributes:
        message: The endpoint's error message.
        code: The HTTP status that the error states; None if it states none.
    """

    def __init__(self, message: str, code: int | None) -> None:
        super().__init__(message)
        self.message, self.code = message, code


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log-probabilities of the tokens of a completion, in nats.

    Attributes:
        tokens: The tokens as the endpoint names them.
        values: Log-probability of each token; None for the first token of a repeated prompt.
        last: The most likely tokens at the last position, including the generated one.
    """

    tokens: tuple[str, ...]
    values: tuple[float | None, ...]
    last: Mapping[str, float]

    @classmethod
    def of(cls, logprobs: Any) -> Logprobs | None:
        """Parse the field `logprobs` of a text completion; None if absent.

        Raises:
            ValueError: The field is malformed.
        """
        if not isinstance(logprobs, dict) or "tokens" not in logprobs:
            return None
        tops = logprobs.get("top_logprobs") or [{}]
        tokens, values, last = logprobs["tokens"], logprobs.get("token_logprobs"), tops[-1] if isinstance(tops, list) else None
        shaped = isinstance(tokens, list) and isinstance(values, list) and len(tokens) == len(values) and isinstance(last or {}, dict)
        numbers = [value for value in (*(values or ()), *(last or {}).values()) if value is not None] if shaped else []
        if not shaped or not all(type(value) in (int, float) and math.isfinite(value) for value in numbers):
            raise ValueError("its log-probabilities are not one number per token")
        return cls(tuple(map(str, tokens)), tuple(values or ()), dict(last or {}))


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's unchanged reply. Two equal replies have equal completions.

    Attributes:
        text: The content as written, with white space and with thoughts in tags.
        finish_reason: `stop`, `length`, `content_filter` …
        prompt_tokens, completion_tokens: Counts of the endpoint; 0 if it reports none.
        model: The model as the endpoint names it.
        seconds: Its duration in seconds, if it differs from the wall time; not cached.
        system_fingerprint, version: Identification of the server, as the endpoint reports it; "" if it does not.
        thought: The thought, if it came in a separate field or part.
        refusal: The model's words in the field `refusal`; not cached, because such a reply failed.
        tool: Name of the tool that the model called; not cached.
        cached_tokens: Tokens of the prompt that the endpoint read from its own cache.
        cost_usd: Cost in dollars as the endpoint reports it, or None.
        batched: Whether the reply came from a batch, which may cost less.
        logprobs: Log-probabilities of its tokens, if requested and received.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    model: str
    seconds: float | None = None
    system_fingerprint: str = ""
    version: str = ""
    thought: str = ""
    refusal: str = ""
    tool: str = ""
    cached_tokens: int = 0
    cost_usd: float | None = None
    batched: bool = False
    logprobs: Logprobs | None = None

    @property
    def broken(self) -> bool:
        """Return whether a fault of the server ended the reply."""
        return self.finish_reason.lower() in BROKEN

    @property
    def counted(self) -> bool:
        """Return whether the endpoint reported token counts."""
        return self.prompt_tokens > 0 and (self.completion_tokens > 0 or not self.raw.strip())

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with every field that is cached."""
        optional = {name: value for name in STATED if (value := getattr(self, name))}
        optional |= {name: value for name in SPENT if (value := getattr(self, name)) is not None and (value or name == "cost_usd")}
        further = {"logprobs": asdict(self.logprobs)} if self.logprobs is not None else {}
        return {name: getattr(self, name) for name in CACHED} | optional | further

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Completion:
        """Restore a completion from `to_json`.

        Raises:
            ValueError: A field is missing, unknown or of the wrong type.
        """
        for name in CACHED.keys() ^ (row.keys() - {*STATED, *SPENT, "logprobs"}):
            raise ValueError(f"a reply's fields are {', '.join(CACHED)}; {name!r} is missing or unknown")
        further = {name: kind for name, kind in {**dict.fromkeys(STATED, str), **SPENT}.items() if name in row}
        for name, kind in {**CACHED, **further}.items():
            if type(row[name]) is not kind:
                raise ValueError(f"a reply's {name} must be {kind.__name__}, not {row[name]!r}")
        if (kept := row.get("logprobs")) is None:
            return cls(**row)
        return cls(**{**row, "logprobs": Logprobs(tuple(kept["tokens"]), tuple(kept["values"]), kept["last"])})

    @property
    def raw(self) -> str:
        """Return the whole reply as text; a separate thought precedes it in tags."""
        return f"<think>\n{self.thought.strip()}\n</think>\n\n{self.text}" if self.thought.strip() else self.text


@dataclass(frozen=True, slots=True)
class Content:
    """The parts of a completion.

    Attributes:
        text: The answer without the thought; "" if there is none.
        thought: The model's thought.
        failed: Why there is no answer; None if there is one.
    """

    text: str
    thought: str = ""
    failed: str | None = None


def read(completion: Completion, *, raw: bool = False, max_tokens: int | None = None) -> Content:
    """Extract answer and thought from a completion, or the reason why there is no answer.

    Args:
        completion: The completion.
        raw: Return the whole text, including the thought, for protocols that contain the thought.
        max_tokens: The requested limit of the reply; a reply far beyond it fails.
    """
    from methods.models.thoughts import INVISIBLE, split

    reason = completion.finish_reason
    most = max(SMALLEST_LIMIT, BYTES_PER_TOKEN * (max_tokens or UNSTATED_TOKENS))
    if (size := _bytes(completion.text) + _bytes(completion.thought)) > most:
        allowed = f"max_tokens {max_tokens:,}" if max_tokens else "a reply"
        return Content("", failed=f"the reply has {size:,} bytes, and {allowed} allows at most {most:,}")
    if completion.refusal:
        return Content("", completion.thought, f"refused: {completion.refusal}")
    if reason.lower() == "refusal":
        return Content("", completion.thought, f"refused: {' '.join(completion.text.split()) or 'the server gives no reason'}")
    if reason.lower().partition(":")[0] in FILTERED:
        return Content("", completion.thought, f"the endpoint's filter withheld the reply (finish reason: {reason})")
    if raw and not completion.tool:
        text = completion.raw.strip()
        return Content(text, failed=None if text or completion.logprobs else _empty(reason))
    parts = split(completion.text, reason)
    thought = "\n\n".join(filter(None, (completion.thought.strip(), parts.thought)))
    text = parts.text.strip()
    text = text if text.strip(INVISIBLE + string.whitespace) else ""
    called = _called(text)
    tool = completion.tool or parts.tool or called
    if called or (tool and (not text or reason.lower() in CALLS_TOOL or text.startswith(_CALL_MARKS))):
        return Content("", thought, f"the model called the tool {tool!r} in place of an answer")
    if text:
        return Content(text, thought)
    if parts.open or thought:
        if reason.lower() in CUT:
            return Content("", thought, "still thinking when max_tokens were used up")
        within = "the reply ends within a thought" if parts.open else "the reply holds a thought and no answer"
        return Content("", thought, f"{within} (finish reason: {reason})")
    return Content("", failed=_empty(reason))


_CALL_MARKS: tuple[str, ...] = ("<tool_call>", "[TOOL_CALLS]", "<|tool_call|>", "<|python_tag|>", "<function_calls>", "<function=")
_CALL_MARKS += ("<tool_code>", "<｜tool▁calls▁begin｜>", "<｜DSML｜function_calls>", "<|tool_calls_section_begin|>", "<minimax:tool_call>")
_CALL_MARKS += ("```tool_call", "```tool_code", "<search>", "<|begin_of_query|>")
"""Beginnings of texts that call a tool."""
_CALL_ENDS = {"<tool_call>": "</tool_call>", "<search>": "</search>", "<|begin_of_query|>": "<|end_of_query|>"}
_CALL_ENDS |= dict.fromkeys(("```tool_call", "```tool_code"), "```")
"""Ends of calls that may precede an answer."""
_LONGEST_CALL = 20_000
"""Maximum characters of a call in JSON."""
_CALL_FIELDS = frozenset({"name", "arguments", "parameters", "type", "id", "function"})
_GIVES_ANSWER = re.compile(r"(?:submit|give|provide)?(?:final|short)?answer|finish|submit")


def gives_answer(tool: str) -> bool:
    """Return whether the argument of a tool is the answer, by its name (`final_answer`, `Finish`)."""
    return _GIVES_ANSWER.fullmatch(re.sub(r"[\s_-]+", "", tool).lower()) is not None


def _called(text: str) -> str:
    """Return the tool that a text calls, or the mark of its call, if the text consists only of the call."""
    mark = next((mark for mark in _CALL_MARKS if text.startswith(mark)), "")
    if not mark:
        return _json_call(text)
    _, closed, rest = text[len(mark) :].rpartition(_CALL_ENDS.get(mark, mark))
    return "" if closed and rest.strip() else mark.strip("<>[]|｜=`")


def _json_call(text: str) -> str:
    """Return the function that a text calls in JSON: `{"name": …, "arguments": {…}}`, also with `parameters`, or in a list."""
    text = text.removeprefix("```json").strip("`").strip()
    if len(text) > _LONGEST_CALL or not text.startswith(("{", "[")):
        return ""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    call = value[0] if isinstance(value, list) and value else value
    if not isinstance(call, dict) or not call.keys() <= _CALL_FIELDS:
        return ""
    function = call["function"] if isinstance(call.get("function"), dict) else call
    name = function.get("name")
    arguments = isinstance(function.get("arguments", function.get("parameters")), dict | str)
    return name if isinstance(name, str) and arguments and not gives_answer(name) else ""


def _empty(reason: str) -> str:
    return f"the reply is empty (finish reason: {reason})"


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def known_reason(reason: str) -> str:
    """Return a finish reason in the spelling of the known ones (`ContentFilter`, `max-tokens`); unchanged if it is none of them."""
    name, colon, cause = reason.partition(":")
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])|[\s-]+", "_", name.strip()).lower()
    plain = re.sub(r"\Afinish_reason[._]", "", plain)  # a proxy in Python may send the name of an enum: FinishReason.MAX_TOKENS
    known = plain in FILTERED or plain in BROKEN or plain in CALLS_TOOL or plain in CUT
    return f"{plain}{colon}{cause}" if known and plain != name.lower() else reason


def completion_of(value: Any) -> Completion:
    """Parse the JSON body of an endpoint's response.

    Raises:
        ErrorReply: The body is an error despite HTTP status 200.
        LookupError: The body has no choices, or the server broke the reply off.
        ValueError: The body is not a chat completion.
    """
    item = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(item, dict):
        raise ValueError("it is not an object")
    choices = item.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    for holder in (item, choice):
        error = holder.get("error") if isinstance(holder, dict) else None
        if any(error.values()) if isinstance(error, dict) else error:
            raise ErrorReply(*_error(error))
    if isinstance(choices, list) and not choices:
        raise LookupError("the reply holds no choice")
    # A text completion has its text instead of a message.
    message = {"content": choice["text"]} if isinstance(choice, dict) and isinstance(choice.get("text"), str) else None
    message = message or (choice.get("message") if isinstance(choice, dict) else None)
    if message is None and isinstance(choice, dict) and known_reason(str(choice.get("finish_reason") or "stop")) != "stop":
        message = {}  # Gemini leaves it out if the thought used all tokens; at "stop" it is a fault, and the call is repeated
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise ValueError("it has no choices with a message")
    reason = known_reason(str(choice.get("finish_reason") or "unknown"))
    if reason.lower().partition(":")[0] in BROKEN:
        raise LookupError(f"the endpoint broke the reply off (finish reason: {reason})")
    text, thought, refusal, tool = content_of(message.get("content"))
    usage = spent(item.get("usage"))
    return Completion(
        text,
        reason,
        usage.prompt,
        usage.completion,
        str(item.get("model") or ""),
        system_fingerprint=str(item.get("system_fingerprint") or "")[:300],
        thought="\n\n".join(filter(None, (_field_thought(message), thought))),
        refusal=_texts(message.get("refusal")).strip() or refusal,
        tool=_tool(message) or tool,
        cached_tokens=usage.cached,
        cost_usd=usage.cost_usd,
        logprobs=Logprobs.of(choice.get("logprobs")),
    )


def _error(error: Any) -> tuple[str, int | None]:
    if not isinstance(error, dict):
        return str(error), None
    code = error.get("code") or error.get("status")
    number = int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdigit()) else None
    return str(error.get("message") or error), number


def _field_thought(message: Mapping[str, Any]) -> str:
    """Return the thought of the first field that has one, because endpoints repeat it in several."""
    for name in ("reasoning_content", "reasoning", "thinking", "reasoning_details"):
        if text := _texts(message.get(name)).strip():
            return text
    return ""


def _tool(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls") or message.get("function_call")
    call = calls[0] if isinstance(calls, list) and calls else calls
    if not call:
        return ""
    function = call.get("function", call) if isinstance(call, dict) else {}
    return str(function.get("name") or "unnamed") if isinstance(function, dict) else "unnamed"


def content_of(content: Any) -> tuple[str, str, str, str]:
    """Read a message's content, which may be in parts: its text, thought, refusal and tool.

    Raises:
        ValueError: It is neither a text nor a list of parts.
    """
    if content is None or isinstance(content, str):
        return content or "", "", "", ""
    if not isinstance(content, list | dict):
        raise ValueError("its content is neither text nor parts")
    texts, others, thoughts, refusals, tool = list[str](), list[str](), list[str](), list[str](), ""
    for part in content if isinstance(content, list) else [content]:
        kind = str(part.get("type", "text")) if isinstance(part, dict) else "text"
        if kind in _THOUGHT_PARTS or (isinstance(part, dict) and part.get("thought") is True):  # Gemini marks its thoughts
            thoughts.append(_texts(part))
        elif kind == "refusal":
            refusals.append(_texts(part))
        elif kind in _TOOL_PARTS:
            tool = str(part.get("name") or kind)
        elif isinstance(part, str | dict):
            (texts if kind in _TEXT_PARTS else others).append(_texts(part))
        else:
            raise ValueError("a part of its content is not an object")
    # Parts of unknown types (search results, citations) are the reply only if nothing else is.
    return "".join(texts if any(texts) else others), "\n\n".join(filter(None, thoughts)), "".join(refusals).strip(), tool


def _texts(value: Any, depth: int = 0) -> str:
    """Return the text of a part, or of parts within parts."""
    if isinstance(value, str):
        return value
    if depth > _DEEPEST:
        return ""
    if isinstance(value, list):
        return "".join(_texts(item, depth + 1) for item in value)
    if isinstance(value, dict):
        names = ("text", "thinking", "reasoning", "content", "summary", "refusal", "value")
        return next((text for name in names if (text := _texts(value.get(name), depth + 1))), "")
    return ""
