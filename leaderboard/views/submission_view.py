"""The cards of a method that was sent in: who sent what, what it was trained on, and what the check found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.flattening import flat, shown
from leaderboard.elements.nodes import Node, badge, el, is_web_address, link, prose
from leaderboard.elements.plain_table import facts
from leaderboard.views.method_view import paper
from results.queries import RunRow

_METHOD = frozenset({"name", "version", "description", "authors", "url", "paper", "licence", "parameters", "open_weights"})
"""What of a card's `method` is told in words."""
_SEVERITIES = {"error": "failed", "warning": "failed", "note": ""}
_NOT_STATED = "not stated"


def cards(method: str, runs: Sequence[RunRow]) -> Node:
    """What was sent with a method's runs: one card for all runs of which the same is told, the newest first.

    Args:
        method: Its id.
        runs: Its runs; those without a card are left out.
    """
    told: dict[str, list[RunRow]] = {}
    for run in sorted(runs, key=lambda run: run.updated_at, reverse=True):
        if run.card:
            same = (_part(run, "method"), run.card.get("contact"), run.card.get("training_data"))
            told.setdefault(_key(same), []).append(run)
    return el("div", *(_card(method, same) for same in told.values()), cls="stack")


def _card(method: str, runs: Sequence[RunRow]) -> Node:
    said, sent = _part(runs[0], "method"), runs[0].card or {}
    name, version = (str(said.get(key) or "") for key in ("name", "version"))
    paragraphs = [part for part in str(said.get("description") or "").split("\n\n") if part.strip()]
    trained = [_training(one) for one in sent.get("training_data") or () if isinstance(one, Mapping)]
    url = str(said.get("url") or "")
    return el(
        "section",
        el("p", "Sent in; what it says of itself is the sender's word.", cls="note"),
        *(el("p", *prose(part)) for part in paragraphs),
        facts(
            [
                ("Name", f"{name or method}, version {version}" if version else name or method),
                ("Sent in by", ", ".join(map(str, said.get("authors") or ())) or _NOT_STATED),
                ("Contact", str(sent.get("contact") or "")),
                ("URL", link(url, url) if is_web_address(url) else url),
                ("Paper", paper(str(said.get("paper") or "")) or "none given"),
                ("Parameters", _size(said)),
                ("Licence", str(said.get("licence") or "")),
                ("Trained on", el("ul", *trained) if trained else "nothing that it declares"),
                ("Found by the check", _findings(runs)),
            ]
        ),
        *(_rest(run, len(runs) > 1) for run in runs),
        cls="stack",
    )


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _part(run: RunRow, key: str) -> Mapping[str, Any]:
    part = (run.card or {}).get(key)
    return part if isinstance(part, Mapping) else {}


def _size(said: Mapping[str, Any]) -> str:
    number, stated = said.get("parameters"), said.get("open_weights")
    weights = "" if stated is None or number == 0 else "open weights" if stated else "closed weights"
    return ", ".join(filter(None, (formats.parameters(number) if number is not None else _NOT_STATED, weights)))


def _training(one: Mapping[str, Any]) -> Node:
    name, url = str(one.get("reference") or one.get("name") or _NOT_STATED), str(one.get("url") or "")
    asked = len(one.get("question_ids") or ())
    more = [
        str(one["name"]) if one.get("reference") and one.get("name") else "",
        "" if is_web_address(url) else url,
        f"seeds {one['seeds']}" if one.get("seeds") else "",
        f"{asked:,} question{'s' * (asked != 1)} of it" if asked else "",
        str(one.get("note") or ""),
    ]
    beside = "; ".join(filter(None, more))
    return el("li", link(name, url) if is_web_address(url) else name, el("span", f" {beside}", cls="aside") if beside else None)


def _findings(runs: Sequence[RunRow]) -> Node | str:
    """The sentences of what the check found, each once for runs that share it."""
    where: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for run in runs:
        for one in _part(run, "submission").get("findings") or ():
            if isinstance(one, Mapping):
                where.setdefault(_key(one), (one, []))[1].append(f"{run.dataset} · {run.setting}")
    lines = [_finding(one, on if len(runs) > 1 else ()) for one, on in where.values()]
    return el("ul", *lines) if lines else "nothing"


def _finding(one: Mapping[str, Any], on: Sequence[str]) -> Node:
    severity, count = str(one.get("severity") or ""), one.get("count") or 0
    details = [str(place.get("detail") or "") for place in one.get("places") or () if isinstance(place, Mapping)]
    beside = [f"{count:,} times" if count > 1 else "", *details, f"on {', '.join(on)}" if on else ""]
    told = "; ".join(filter(None, beside))
    return el(
        "li",
        el("span", str(one.get("what") or "")),
        badge(severity, _SEVERITIES.get(severity, "")) if severity else None,
        el("span", f" {told}", cls="aside") if told else None,
        tip=str(one.get("try") or ""),
    )


def _rest(run: RunRow, several: bool) -> Node | None:
    """What else was sent with a run, folded; None where nothing is left."""
    card = run.card or {}
    left = {key: value for key, value in card.items() if key not in ("method", "contact", "training_data")}
    left["method"] = {key: value for key, value in _part(run, "method").items() if key not in _METHOD}
    left["submission"] = {key: value for key, value in _part(run, "submission").items() if key != "findings"}
    left["training_data"] = [
        {"question_ids": one.get("question_ids")} for one in card.get("training_data") or () if isinstance(one, Mapping)
    ]
    rows: list[tuple[str, Node | str]] = [(key, shown(value)) for key, value in flat(left) if value != ""]
    if not rows:
        return None
    title = f"All else that was sent for {run.dataset} · {run.setting}" if several else "All else that was sent"
    head = el(
        "summary", el("span", title, cls="name"), el("span", f"{len(rows):,} {'entry' if len(rows) == 1 else 'entries'}", cls="aside")
    )
    return el("details", head, facts(rows), cls="evidence", key=f"sent-{run.run}")
