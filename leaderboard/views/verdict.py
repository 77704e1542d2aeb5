"""The first line of a board and of the report: the verdict, and what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from leaderboard.elements.formats import metric_label
from leaderboard.elements.nodes import Node, el
from results.boards.matrix import Matrix
from results.boards.verdict import BoardVerdict
from results.boards.verdict_text import Headline, Part, headline_parts, headlines, place_names
from results.errors import counted


def first_line(verdicts: Sequence[BoardVerdict]) -> Node | None:
    """Build the verdict of a suite or of its first benchmark; the others are in a fold. None without verdicts."""
    if not verdicts:
        return None
    main, *others = known = headlines([named_for_people(verdict) for verdict in verdicts])
    first, *names = place_names(known)
    where = first if others and not main.main.place.suite else ""
    below = [el("p", *_parts(headline_parts(other, where=name))) for other, name in zip(others, names, strict=True)]
    folded = counted(len(below), "benchmark" if main.main.place.suite else "other benchmark")
    unfolded = el("details", el("summary", folded), *below) if below else None
    return el("div", el("p", *_parts(headline_parts(main, where=where)), cls="verdict"), unfolded, cls="stack")


def one_line(headline: Headline) -> Node:
    """Build the verdict on one board, in one line."""
    named = Headline(named_for_people(headline.main), tuple(map(named_for_people, headline.others)))
    return el("p", *_parts(headline_parts(named)), cls="verdict")


def named_for_people(verdict: BoardVerdict) -> BoardVerdict:
    """Return the verdict with the metric's name as in the heads of tables, for example "cover EM"."""
    return replace(verdict, place=replace(verdict.place, name=metric_label(verdict.place.name)))


def _parts(parts: Sequence[Part]) -> list[Node | str]:
    return [part.text if part.kind == "words" else el("strong", part.text) for part in parts]


def facts(board: Matrix) -> list[str]:
    """Return the facts below a matrix: number of questions and clusters, and time of the last update."""
    data = {column.first.dataset_fingerprint: column.key for column in board.columns if column.key in board.questions}
    questions, clusters = board.size
    kinds = {board.sampled[key].kind for key in data.values()}
    kind = kinds.pop() if len(kinds) == 1 else "cluster"
    within = "" if clusters == questions else f" in {clusters:,} {kind}{'s' * (clusters != 1)}"
    whole = [f"{questions:,} question{'s' * (questions != 1)}{within}"] if data else []
    updated = max((row.last for row in board.rows), default=None)
    return whole + ([f"updated {updated:%Y-%m-%d %H:%M} UTC"] if updated is not None else [])
