"""Read what a reply states about itself: an error, why its answer ends, and whether a stream is complete.

Applications pass on replies of chat APIs, so this module knows the fields of OpenAI's two APIs, Anthropic, Gemini and Ollama, and
the events of Dify.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from methods.apps.paths import Path
from methods.models.reply import BROKEN, CALLS_TOOL, FILTERED, Completion, completion_of, content_of, known_reason

_FAILED = frozenset({"error", "failed", "failure", "fail", "timeout", "timed_out", "aborted", "cancelled", "canceled"})
"""Values of the field `status`, in lower case, of replies that failed."""
_STATUSES = ("status", "status_code", "statusCode")
"""Fields that may hold an HTTP status; `code` does so only together with a message."""
_SHORTEST = 4
"""Minimum characters of a repeated answer."""
_NO_ERROR = frozenset({"none", "null", "false"})
"""Texts of an error field, in lower case, that mean that no error occurred."""
_ENDS = {"message_start": ("message_stop",), "response.created": ("response.completed", "response.incomplete", "response.failed")}
_ENDS |= dict.fromkeys(("dify message", "dify agent_message"), ("dify message_end",))
_ENDS |= {"dify text_chunk": ("dify workflow_finished",)}
"""Kinds of events that begin a stream of Anthropic's API, of OpenAI's Responses or of Dify, with those that end it."""
_REPLACES = "dify message_replace"
_PARTS = frozenset({"text", "output_text", "thinking", "refusal"})
"""Types of parts; a list of parts contains at least one of them."""
_GEMINI = frozenset({"text", "thought", "thoughtSignature", "functionCall", "partMetadata"})
"""Fields of Gemini's parts, which have no type field."""
_CHAT = ("choices", 0, "message", "content")
_OTHER = re.compile(r"reason|think|thought|tool|function", re.IGNORECASE)
"""Pattern of the types of events that hold a thought or a tool call: those of OpenAI, Vercel's AI SDK, AG-UI and Dify."""
_ERROR_EVENTS = frozenset({"error", "run_error", "response.failed"})
_ERROR_TEXT = re.compile(
    r"""[\W_]{0,4}(?:(?:sorry\W+)?(?:an?\ )?(?:\w{1,20}\ )?error(?:\ (?:has\ )?occurred)?[\W_]{1,4}){0,3}
    (?: \*\*ERROR\*\*:
      | error\ code:\ [45]\d\d\b
      | traceback\ \(most\ recent\ call\ last\)
      | (?:\w{1,30}\.){0,6}(?:rate_?limit|api_?connection|api_?timeout|api_?status|authentication|bad_?request|internal_?server
        |connect(?:ion)?|http|timeout|(?:read|connect)_?timeout|service_?unavailable|context_?window_?exceeded|permission_?denied)_?(?:error|exception)\b[:(]
      | (?:(?:HTTP|status)?\W{0,2}[45]\d\d\W{1,3})?
        (?:internal\ server\ error|bad\ gateway|service\ unavailable|gateway\ time-?out|too\ many\ requests)\W*\Z
      | (?:connection\ error|request\ timed\ out)\W*\Z
      | agent\ stopped\ due\ to\ (?:iteration\ limit|max\ iterations)
    )
    | (?:sorry\W+)?an?\ (?:\w{1,20}\ )?error\ (?:has\ )?occurred(?:[.!]|\W*\Z)""",
    re.IGNORECASE | re.VERBOSE,
)
"""Pattern of errors that apps return as the answer: of RAGFlow, of Python, of clients of chat APIs, of proxies and of agents."""


def stated_error(document: Mapping[str, Any], *, event: bool = False) -> Any:
    """Return the error that a document or an event of a stream states; None if it states none.

    Args:
        document: The document, the event, or the object in it that holds the answer.
        event: Whether it is an event. A status in an event may concern a step on which the answer does not depend.
    """
    error, errors = document.get("error"), document.get("errors")
    if error is True:
        return document
    if isinstance(error, str) and error.strip().lower() in _NO_ERROR:
        error = None
    if (isinstance(error, str | list) and error) or (isinstance(error, Mapping) and any(error.values())):
        return error
    finish = finish_reason(document).lower()
    if (name := finish.partition(":")[0]) in BROKEN or name in FILTERED or name == "refusal":
        return {"finish_reason": finish}
    if event:
        inner = document.get("data") if _kind(document) == "dify workflow_finished" else None
        failed = any(str(document.get(name)).lower() in _ERROR_EVENTS for name in ("type", "event"))
        failed = failed or (isinstance(inner, Mapping) and bool(inner.get("error")))
        return document if failed else None
    if isinstance(errors, Mapping | list) and any(errors):
        return errors
    flags = (document.get(name) for name in ("success", "ok"))
    failed = any(flag is False or str(flag).lower() == "false" for flag in flags)
    failed = failed or any(document.get(name) is True for name in ("is_error", "isError"))
    failed = failed or str(document.get("status")).lower() in _FAILED
    statuses = (*_STATUSES, "code") if "msg" in document or "message" in document else _STATUSES
    failed = failed or any(re.fullmatch(r"[45]\d\d", str(document.get(name))) for name in statuses)
    return document if failed else None


def finish_reason(document: Any) -> str:
    """Return why the answer in a chat API's document or event ends; "" if unknown."""

    def inside(*steps: str | int) -> Any:
        values = replace(_ANY, steps=steps).find(document)
        return values[0] if values else None

    reasons = (
        inside("choices", 0, "finish_reason"),
        inside("candidates", 0, "finishReason"),
        inside("promptFeedback", "blockReason"),
        inside("stop_reason"),
        inside("delta", "stop_reason") if inside("type") == "message_delta" else None,
        inside("response", "incomplete_details", "reason"),
        inside("incomplete_details", "reason"),
        inside("done_reason"),
    )
    return next((known_reason(reason) for reason in reasons if isinstance(reason, str) and reason), "")


_ANY = Path("", (), optional=True)


def unfinished(events: Sequence[Any], ended: bool) -> bool:
    """Return whether the stream of a chat API ends before the event that says that it is complete.

    Args:
        events: The events of the stream.
        ended: Whether `[DONE]` follows them.
    """
    known = [event for event in events if isinstance(event, Mapping)]
    choices = [event["choices"][0] for event in known if isinstance(event.get("choices"), list) and event["choices"]]
    chunks = [choice for choice in choices if isinstance(choice, Mapping) and ("finish_reason" in choice or "delta" in choice)]
    done = [event["done"] for event in known if isinstance(event.get("done"), bool)]
    types = {_kind(event) for event in known}
    cut = any(begin in types and not types.intersection(ends) for begin, ends in _ENDS.items())
    # A stream that never names a finish reason may still end with [DONE].
    cut = cut or (bool(chunks) and not any(chunk.get("finish_reason") for chunk in chunks) and (not ended or _names_reason(chunks)))
    return cut or (bool(done) and not any(done))


def _names_reason(chunks: Sequence[Mapping[str, Any]]) -> bool:
    return any("finish_reason" in chunk for chunk in chunks)


def _kind(event: Mapping[str, Any]) -> str:
    """Return the type of an event. Dify's events, which have a task, state it in another field."""
    if "task_id" in event and isinstance(event.get("event"), str):
        return f"dify {event['event']}"
    return str(event.get("type", ""))


def answering(events: Sequence[Any]) -> list[Any]:
    """Return the events that may hold pieces of the answer: not those of another sample, a thought or a tool call.

    An event of Dify's moderation replaces what is before it.
    """
    answers = [event for event in events if not (isinstance(event, Mapping) and _holds_other(event))]
    replaced = (at for at in range(len(answers) - 1, 0, -1) if isinstance(answers[at], Mapping) and _kind(answers[at]) == _REPLACES)
    return answers[next(replaced, 0) :]


def _holds_other(event: Mapping[str, Any]) -> bool:
    choices = event.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    kind = _kind(event)
    other = kind.startswith("response.") and kind.endswith(".delta") and kind != "response.output_text.delta"
    return other or bool(_OTHER.search(kind)) or (isinstance(first, Mapping) and first.get("index") not in (None, 0))


def is_error(answer: str) -> bool:
    """Return whether an answer is an error message of software, not of a model."""
    return _ERROR_TEXT.match(answer) is not None


def repeats_itself(pieces: Sequence[str]) -> bool:
    """Return whether the pieces of a stream are the answer so far, or the last one is the whole answer again."""
    texts = [piece for piece in pieces if piece]
    if len(texts) < 2 or len(texts[-1].strip()) < _SHORTEST:
        return False
    grown = sum(later.startswith(earlier) for earlier, later in pairwise(texts))
    # Apps may change the last text, for example by adding citations.
    whole = len(texts) > 2 and texts[-1].strip() == "".join(texts[:-1]).strip()
    return whole or grown == len(texts) - 1 or (len(texts) > 3 and grown == len(texts) - 2)


def holders(document: Any, path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the objects on the way from a document to its answer, the whole document first."""
    for length in range(len(path.steps) + 1):
        for value in Path(path.text, path.steps[:length], optional=True).find(document):
            if isinstance(value, Mapping):
                yield value


def chat_completion(document: Any, path: Path) -> Completion | None:
    """Return the completion of a chat endpoint that a path to the answer points into; None if it points elsewhere.

    Raises:
        ValueError: There is no such completion.
        LookupError: It has no choice.
    """
    if path.steps[-len(_CHAT) :] != _CHAT:
        return None
    whole = Path(path.text, path.steps[: -len(_CHAT)], path.optional).find(document)
    return completion_of(whole[0]) if whole else None


def parts_completion(document: Any, value: Any) -> Completion | None:
    """Return an answer in typed parts (Anthropic's `content`, the `output` of OpenAI's Responses, Gemini's `parts`) as a completion.

    Args:
        document: The reply.
        value: What is at the path to the answer; None is returned unless it is a list of such parts.
    """
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        return None
    parts = [part for item in value for part in (item["content"] if isinstance(item.get("content"), list) else [item])]
    kinds = {item.get("type") for item in (*value, *parts) if isinstance(item, Mapping)}
    if not kinds & _PARTS and not (parts and all(isinstance(part, Mapping) and part.keys() <= _GEMINI for part in parts)):
        return None
    text, thought, refusal, tool = content_of(parts)
    return Completion(text, finish_reason(document), 0, 0, "", thought=thought, refusal=refusal, tool=tool)


def completion_with(text: str, reason: str) -> Completion:
    """Return an answer's text as a completion with a finish reason."""
    return Completion(text, reason, 0, 0, "", tool="a tool" if reason.lower() in CALLS_TOOL else "")
