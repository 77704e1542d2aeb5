"""Adapt requests to what an endpoint accepts: rejected parameters, name of the token limit, and system role.

Each rejection costs one request. The result is shared by all clients of the model in this process, and reported once on stderr.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

LIMITS = ("max_tokens", "max_completion_tokens")
"""Names under which endpoints accept the maximum reply length."""
_KEPT = frozenset({"model", "messages", "stream", "response_format"})
"""Fields that are never dropped."""
_REFUSED = (400, 404, 405, 415, 422, 501)
_UNSUPPORTED = re.compile(
    r"unsupported|(?:not|n't) (?:\w+ )?(?:support|permit|allow|recogni[sz]|accept)|not (?:yet )?available|deprecated|unknown"
    r"|unrecogni[sz]ed|unexpected|extra (?:fields|inputs)|extra_forbidden|cannot (?:both )?be (?:set|specified|used)|no longer"
    r"|invalid (?:parameter|argument)\b|\buse [^.]{1,60} instead|only [\d.]+ is allowed|may only be set to 1 when|must be 1 when",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(r"context (?:length|window)|maximum context|too (?:large|long|many)|exceeds?\b", re.IGNORECASE)
_BOTH = re.compile(r"\bboth\b", re.IGNORECASE)
_NO_SYSTEM = re.compile(
    r"\bsystem\b[\w'\"` ]{0,40}\b(?:role|message|prompt|instruction)|role[\w'\"`: ]{0,30}\bsystem\b|\bsystem['\"`]? with this model"
    r"|\brole['\"`]? must be one of|should be 'user' or 'assistant'"
    r"|developer instruction|roles must alternate|support ['\"`]system['\"`]|only user and assistant roles are supported(?!,)",
    re.IGNORECASE,
)


class Dialect:
    """Request features that the endpoint of one model accepts.

    Args:
        name: The model, for messages.

    Attributes:
        dropped: Parameters to omit.
        limit: Required name of the token limit; "" if the configured one works.
        folds: Whether system messages are prepended to the first user message.
        answered: Whether it has answered a call: then a refused connection may be an outage, and a 404 a lost replica.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.dropped: set[str] = set()
        self.limit = ""
        self.folds = False
        self.answered = False
        self._refused_limits: set[str] = set()
        self._lock = threading.Lock()

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Convert a request body to what this endpoint accepts."""
        sent = {name: value for name, value in body.items() if name not in self.dropped}
        if self.limit:
            sent = {self.limit if name in LIMITS else name: value for name, value in sent.items()}
        if self.folds:
            sent["messages"] = folded(sent["messages"])
        return sent

    def unsent(self, options: Mapping[str, Any]) -> str:
        """Return a note about options that are not sent; "" if there are none."""
        names = sorted(self.dropped & options.keys())
        return f"sent without {', '.join(names)}" if names else ""

    def learn(self, sent: Mapping[str, Any], status: int | None, parameter: str, message: str) -> bool:
        """Update the dialect from a rejected request; returns whether a retry would be sent differently.

        Args:
            sent: The request body that was sent.
            status: HTTP status of the refusal.
            parameter: Parameter that the endpoint's error names; "" if none.
            message: The endpoint's error message.
        """
        with self._lock:
            if self.body(sent) != sent:  # another request learned it meanwhile
                return True
            if status in (*_REFUSED, 500) and self._is_about_system(sent, message):
                self.folds = True
                self._say("takes no system message; it now goes to the head of the user's message", message)
                return True
            if status not in _REFUSED or not _UNSUPPORTED.search(message):
                return False
            name = _find_named_parameter(sent, parameter, message) or _replaced(sent, message)
            if name is None:
                return False
            if name not in LIMITS:
                self.dropped.add(name)
                self._say(f"refuses `{name}`, which is now left out", message)
                return True
            other = LIMITS[1 - LIMITS.index(name)]
            self._refused_limits.add(name)
            if other in self._refused_limits:
                return False
            self.limit = other
            self._say(f"refuses `{name}`; the limit is now sent as `{other}`", message)
            return True

    def _is_about_system(self, sent: Mapping[str, Any], message: str) -> bool:
        has = any(item.get("role") == "system" for item in sent["messages"])
        return has and bool(_NO_SYSTEM.search(message)) and not _TOO_LONG.search(message)

    def _say(self, what: str, message: str) -> None:
        sys.stderr.write(f"note: the endpoint of {self.name} {what} (it says: {message})\n")


def _find_named_parameter(sent: Mapping[str, Any], parameter: str, message: str) -> str | None:
    """Return the request parameter that an error names; None if it names none, or is about prompt length."""
    if _TOO_LONG.search(message):
        return None
    names = [name for name in sent if name not in _KEPT]
    if parameter in names:
        return parameter
    named = {name: place for name in names if (place := _place(name, message)) >= 0}
    if not named:
        return None
    # Of two parameters that exclude each other the second one goes.
    return (max if _BOTH.search(message) else min)(named, key=named.__getitem__)


def _replaced(sent: Mapping[str, Any], message: str) -> str | None:
    """Return the limit in a request if the endpoint requires it under its other name."""
    return next((name for name, other in zip(LIMITS, LIMITS[::-1], strict=True) if name in sent and _place(other, message) >= 0), None)


def _place(name: str, message: str) -> int:
    """Return the position at which a message names a parameter; -1 if it does not."""
    word = re.escape(name)
    hinted = (
        rf"(?:parameter|argument|field|option|input|supplied|property)s?\W{{0,4}}{word}\b|\b{word}\b\W{{0,3}} ?(?:is|does|are|parameter)\b"
    )
    patterns = [rf"['\"`]{word}['\"`]", hinted, rf"(?<![\w.]){word}: Extra inputs"]
    if "_" in name or name == "temperature":
        patterns.append(rf"(?<![\w.]){word}(?!\w)")
    return min((match.start() for pattern in patterns if (match := re.search(pattern, message))), default=-1)


def folded(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Move system messages to the beginning of the first user message."""
    system = [message["content"] for message in messages if message["role"] == "system" and message["content"]]
    turns = [dict(message) for message in messages if message["role"] != "system"]
    if not system:
        return turns
    first = next((turn for turn in turns if turn["role"] == "user"), None)
    if first is None:
        return [{"role": "user", "content": "\n\n".join(system)}, *turns]
    first["content"] = "\n\n".join([*system, first["content"]])
    return turns


_known: dict[tuple[str, str], Dialect] = {}
_known_lock = threading.Lock()


def dialect_of(url: str, model: str) -> Dialect:
    """Return the dialect of a model at an endpoint: one object per process."""
    with _known_lock:
        return _known.setdefault((url, model), Dialect(model))
