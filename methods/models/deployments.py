"""Identify the deployment of a model behind an endpoint that reports no revision, by `created` in `/v1/models`.

Some servers fill `created` with the time of the request, so it is only used if two requests some seconds apart agree. Results
are stored with the reply cache, so that later runs need one quick request, or none if the server is gone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from methods.models.chat_config import ChatConfig
from methods.models.reply_cache import ResponseCache
from methods.models.revision import Answer, Unreachable, fetch

PAUSE_S = 2.0
"""Seconds between two requests whose `created` must agree."""
QUICK_S = 5.0
"""Timeout in seconds for the list of models."""
NO_TIME = frozenset({0, 1, -1, 1677610602})
"""Values of `created` that servers send without knowing the time; the last one is LiteLLM's."""
_JUST_NOW_S = 5.0
"""If `created` is within this many seconds of the server's clock, it is taken for the request time."""

Source = Literal["created", "per request", "nothing", "last known"]


@dataclass(frozen=True, slots=True)
class Deployment:
    """Known properties of a model's deployment.

    Attributes:
        revision: Identifier of the deployment; "" if unknown.
        source: Source of the revision.
        before: Revision in an earlier run, if different.
        seen: Time at which the revision was last seen, in seconds since 1970; None if unknown.
    """

    revision: str
    source: Source
    before: str = ""
    seen: float | None = None


def identify(config: ChatConfig, cache: ResponseCache, wait: Callable[[float], object] = time.sleep) -> Deployment:
    """Determine the deployment of a model behind an endpoint.

    Args:
        config: Options of the model, without a `revision`.
        cache: Reply cache, whose file stores the results.
        wait: Sleep function.
    """
    known = _seen(cache, config)
    try:
        created, now = _created(config)
        if created is None:
            return _entered(cache, config, "", "nothing", known)
        revision = f"created:{created}"
        if revision in known:
            return _entered(cache, config, revision, "created", known)
        if _fills_in(known) and abs(float(created) - now) <= _JUST_NOW_S:
            return _entered(cache, config, "", "per request", known)
        wait(PAUSE_S)
        again, _ = _created(config)
    except Unreachable:
        return _last_known(cache, config, known)
    if again != created:
        return _entered(cache, config, "", "per request", known)
    return _entered(cache, config, revision, "created", known)


def _created(config: ChatConfig) -> tuple[str | None, float]:
    """Fetch `created` of the model's entry (None if it identifies nothing), and the server's time.

    Raises:
        Unreachable: The server is unreachable or overloaded.
    """
    answer = fetch(f"{config.url}/models", config.authorization(), min(config.timeout_s, QUICK_S))
    if answer.status == 429 or answer.status >= 500:
        raise Unreachable(f"HTTP {answer.status}")
    try:
        answer.require()
        listed = answer.json()["data"]
        # Ollama leaves out the tag that it takes for granted.
        names = (config.model, f"{config.model}:latest")
        entries: list[dict[str, Any]] = [item for name in names for item in listed if item["id"] == name]
        created = entries[0]["created"]
    except (ValueError, KeyError, TypeError, IndexError):
        return None, 0.0
    if isinstance(created, bool) or not isinstance(created, int | float) or created in NO_TIME:
        return None, 0.0
    return json.dumps(created), _now(answer)


def _now(answer: Answer) -> float:
    """Return the server's clock, or the local one if it sends none."""
    try:
        return parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return time.time()


_Seen = dict[str, tuple[Source, float]]


def _seen(cache: ResponseCache, config: ChatConfig) -> _Seen:
    with cache.opened() as connection:
        rows = connection.execute(
            "SELECT revision, source, last_seen FROM deployments WHERE url = ? AND model = ? ORDER BY last_seen", (config.url, config.model)
        ).fetchall()
    return {revision: (source, last) for revision, source, last in rows}


def _fills_in(known: _Seen) -> bool:
    return "" in known and known[""][0] == "per request"


def _entered(cache: ResponseCache, config: ChatConfig, revision: str, source: Source, known: _Seen) -> Deployment:
    """Save the observed revision."""
    now = time.time()
    with cache.opened() as connection:
        connection.execute(
            "INSERT INTO deployments VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET source = excluded.source, "
            "last_seen = excluded.last_seen",
            (config.url, config.model, revision, source, now, now),
        )
    before = next(reversed(known), "")
    return Deployment(revision, source, before if before != revision else "")


def _last_known(cache: ResponseCache, config: ChatConfig, known: _Seen) -> Deployment:
    """Return the last observed revision; for imported replies, that of the newest one."""
    if known:
        revision = next(reversed(known))
        return Deployment(revision, "last known", seen=known[revision][1])
    with cache.opened() as connection:
        row = connection.execute(
            "SELECT json_extract(request, '$.revision'), created FROM replies "
            "WHERE model = ? AND json_extract(request, '$.endpoint') = ? ORDER BY created DESC LIMIT 1",
            (config.model, config.url),
        ).fetchone()
    return Deployment(row[0] or "", "last known", seen=row[1]) if row else Deployment("", "last known")
