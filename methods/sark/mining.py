"""What is learnt of a benchmark's questions on formal text: candidates, an order of six of them, and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from methods.api import Services
from methods.sark.candidates import Candidates, candidates_of
from methods.sark.data_config import SarkDataConfig
from methods.sark.labelling import Labelling
from methods.sark.lists import Lister, ListRequest, orderer_of, sampled
from methods.sark.rows import LENGTH, Mined
from methods.training import Progress


class Mining:
    """Mines questions, all at once or some at a time; what is needed for it is loaded when the first are mined.

    Args:
        config: Who answers and orders.
        benchmark: The formal data.
        questions: All that may be mined.
        services: Judge, cache of replies, device, folder of indexes.
        folder: Where answers and orders are kept.
        progress: Told of every step.
        counts: Told what became of questions, answers and lists.
    """

    def __init__(
        self,
        config: SarkDataConfig,
        benchmark: Benchmark,
        questions: Sequence[Question],
        services: Services,
        folder: Path,
        progress: Progress,
        counts: Counter[str],
    ) -> None:
        self._config, self._benchmark, self._questions = config, benchmark, questions
        self._services, self._folder, self._progress, self._counts = services, folder, progress, counts

    def mined(self, questions: Sequence[Question]) -> list[Mined]:
        """Labels and order of each question.

        Args:
            questions: Some of those that may be mined.

        Raises:
            UserError: The data have no candidates, or options do not allow it.
            Broke: A model that is needed cannot be used.
        """
        if not questions:
            return []
        config = self._config
        candidates = self._candidates(questions)
        lists = {one.id: sampled(one, candidates[one.id], config.lists.keep_evidence, config.candidates.depth) for one in questions}
        self._counts["lists_too_short"] += sum(len(ids) < LENGTH for ids in lists.values())
        orders = self._orders(questions, lists)
        # Too few candidates for a list are still worth a label each.
        tried = {one: lists[one] or ids for one, ids in candidates.items()} if self._of_list else candidates
        labels = self._labelling.labels(questions, tried, self._progress)
        return [Mined(one.id, one.text, labels[one.id], orders.get(one.id, ())) for one in questions]

    @property
    def _of_list(self) -> bool:
        """Whether the list's passages alone are labelled."""
        return self._config.labels.passages == "list"

    @cached_property
    def _candidates(self) -> Candidates:
        keep = self._config.rows is not None
        return candidates_of(self._benchmark, self._questions, self._config.candidates, self._services, keep=keep)

    @cached_property
    def _lister(self) -> Lister:
        return Lister(orderer_of(self._config.lists, self._services), self._folder / "lists.jsonl")

    @cached_property
    def _labelling(self) -> Labelling:
        return Labelling(self._config, self._benchmark, self._services, self._folder, self._counts)

    def _orders(self, questions: Sequence[Question], lists: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        corpus = self._benchmark.corpus
        requests = [ListRequest(one, tuple(corpus.get(lists[one.id]))) for one in questions if lists[one.id]]
        orders = self._lister.orders(requests, self._progress)
        self._counts.update(self._lister.taken_counts())
        return {one.question.id: order.ids for one, order in zip(requests, orders, strict=True)}
