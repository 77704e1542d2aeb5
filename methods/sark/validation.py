"""Compute validation metrics of a reranker in training: labels, orders, and sensitivity to style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import UserError
from methods.sark.config import SarkTrainingConfig
from methods.sark.loss import classified, ranked
from methods.sark.objective import FORMAL, INFORMAL, Group, Objective, groups_of
from methods.sark.rows import SarkRow
from methods.training.loop import Validate

Scores = NDArray[np.float64]


def validator(objective: Objective, rows: Sequence[SarkRow], config: SarkTrainingConfig) -> Validate:
    """Build the function that computes validation metrics of held-out rows, each over both styles:

    `validation_f1`: F1 of label 1, predicted if σ(z) > ½. `validation_order`: fraction of a list's pairs that are scored in its
    order. `validation_style_gap`: mean |Δz| between both styles of a passage, divided by the standard deviation of all scores.

    Raises:
        UserError: The rows lack the data for the metric that selects the best epoch.
    """
    labeled = [row for row in rows if row.label is not None]
    lists = list({(row.question_id, row.query): row for row in rows if row.list is not None}.values())
    if config.keep == "f1" and not any(row.label for row in labeled):
        raise _without("a passage labeled 1", "order")
    if config.keep == "order" and not lists:
        raise _without("a list", "f1")

    styles = (FORMAL, INFORMAL)
    queries, ordered = groups_of("passage", labeled, styles), groups_of("list", lists, styles)

    def validate() -> Mapping[str, float]:
        result = _Scores(objective, [*queries, *ordered])
        figures: dict[str, float] = {}
        if queries:
            correct = np.concatenate([result.classified(group) for group in queries]) > 0
            figures["validation_f1"] = f1(correct, np.array([group.label == 1 for group in queries]))
        if ordered:
            figures["validation_order"] = float(np.mean([share_in_order(result.ranked(group)) for group in ordered]))
        gaps = [*_gaps(list(map(result.ranked, queries))), *_gaps(list(map(result.ranked, ordered)))]
        spread = result.spread
        if gaps and spread > 0:
            figures["validation_style_gap"] = float(np.concatenate(gaps).mean()) / spread
        return figures

    return validate


def _without(what: str, other: str) -> UserError:
    return UserError(
        f"the validation data have no row with {what}, which select the best epoch",
        code="validation-rows-missing",
        where="validation",
        try_this=f"more validation data; or --set train.keep={other} or last",
    )


def _gaps(scores: Sequence[Scores]) -> list[Scores]:
    """Return |Δz| between both styles; formal groups come first."""
    half = len(scores) // 2
    return [np.abs(item - other) for item, other in zip(scores[:half], scores[half:], strict=True)]


def f1(responses: NDArray[np.bool_], true: NDArray[np.bool_]) -> float:
    """Compute F1 of the positive class; 0 if no label and no prediction is positive."""
    hits = float((responses & true).sum())
    positives = float(responses.sum() + true.sum())
    return 2 * hits / positives if positives else 0.0


def share_in_order(scores: Scores) -> float:
    """Return the fraction of pairs (i before j in the list) with a higher score of i; ties count half."""
    first, second = np.triu_indices(len(scores), 1)
    gaps = scores[first] - scores[second]
    return float(((gaps > 0) + 0.5 * (gaps == 0)).mean())


class _Scores:
    """Scores of groups' texts, with every distinct pair scored once."""

    def __init__(self, objective: Objective, groups: Sequence[Group]) -> None:
        import torch

        pairs = dict.fromkeys((group.query, text) for group in groups for text in group.texts)
        singles = [Group(query, (text,), None) for query, text in pairs]
        encoded = [objective.encoded(single) for single in singles]
        self._rows: dict[tuple[str, str], int] = {pair: row for row, pair in enumerate(pairs)}
        self._logits = np.zeros((len(singles), 2))
        head = objective.config.model.head
        with torch.inference_mode():
            for positions in objective.batched(encoded):
                result = objective.logits([pair for position in positions for pair in encoded[position]])
                self._logits[positions, 0] = classified(result, head).cpu().numpy()
                self._logits[positions, 1] = ranked(result, head).cpu().numpy()

    def classified(self, group: Group) -> Scores:
        """Return the logits of the positive class."""
        return self._of(group, 0)

    def ranked(self, group: Group) -> Scores:
        """Return the ranking scores."""
        return self._of(group, 1)

    def _of(self, group: Group, column: int) -> Scores:
        result: Scores = self._logits[[self._rows[group.query, text] for text in group.texts], column]
        return result

    @property
    def spread(self) -> float:
        """Return the standard deviation of the ranking scores."""
        return float(self._logits[:, 1].std())
