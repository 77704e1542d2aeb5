"""What two towers in training are worth: on rows that are not trained on, and on questions over graphs not seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.errors import UserError
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark, load, resolve
from benchmarks.schema import Question
from methods.baselines.ranking import Rows, best_rows
from methods.gpr.config import GprTrainingConfig
from methods.gpr.loss import Cosines, row_losses
from methods.gpr.rows import Material
from methods.gpr.towers import Towers
from methods.knowledge.linearise import linearised
from methods.torch_loop import Validate


def validator(config: GprTrainingConfig, towers: Towers, material: Material) -> Validate | None:
    """What is asked after each epoch; None where there is nothing to ask.

    Raises:
        UserError: No question of the validation data has an answer in its graph.
    """
    rows = material.held_out()
    graphs = [_Graphs(load(one, _options(one, config)), config) for one in config.validation]
    if graphs and not any(one.asked for one in graphs):
        raise UserError(
            "no validation question has an answer in its graph, so there is no recall",
            where="validation",
            try_this="data of graph QA with its graphs, or none",
        )
    if not len(rows) and not graphs:
        return None

    def validate() -> Mapping[str, float]:
        figures = _of_rows(config, towers, material) if len(rows) else {}
        if graphs:
            recalls = [recall for one in graphs for recall in one.recalls(towers)]
            figures[f"validation_answer_recall@{config.validate_on.k}"] = float(np.mean(recalls))
        return figures

    return validate


def _options(reference: str, config: GprTrainingConfig) -> dict[str, Any]:
    return config.validation_options.get(resolve(reference)[0].name, {})


def _of_rows(config: GprTrainingConfig, towers: Towers, material: Material) -> dict[str, float]:
    """The loss of the rows that are watched, and the share whose cosines stand in order."""
    import torch

    texts = material.texts(material.held_out())
    asked, triples = towers.encoded("question", texts.questions), towers.encoded("triple", texts.triples)
    columns = (texts.anchor, texts.neighbour, texts.negative)
    found = Cosines(*(torch.from_numpy((asked[texts.question] * triples[one]).sum(1)) for one in columns))
    return {"validation_loss": float(row_losses(found, config.loss).mean()), "validation_ordered": float(found.ordered().float().mean())}


class _Graphs:
    """Questions with the graphs that hold their answers.

    Raises:
        UserError: The benchmark has no graphs.
    """

    def __init__(self, benchmark: Benchmark, config: GprTrainingConfig) -> None:
        corpus = benchmark.corpus
        if not isinstance(corpus, TripleCorpus):
            raise UserError(
                f"{benchmark.reference} has no graphs",
                where="validation",
                try_this="data of graph QA with its graphs: webqsp, cwq (layout rog), worlds/graph",
            )
        self._corpus, self._k, self._linearise = corpus, config.validate_on.k, config.linearise
        self._names = [name.casefold() for name in corpus.triples.entities.to_pylist()]
        questions = benchmark.questions[: config.validate_on.questions]
        found = [(question.text, rows := self._rows(question), self._answers(question, rows)) for question in questions]
        self.asked = [one for one in found if one[2]]

    def _rows(self, question: Question) -> Rows:
        if question.candidates is None:
            return np.arange(len(self._corpus))
        return self._corpus.rows_of(question.candidates).astype(np.int64)

    def _answers(self, question: Question, rows: Rows) -> set[int]:
        """Numbers of the entities of its graph that are answers."""
        answers = {answer.casefold() for answer in question.answers}
        return {number for number in self._entities(rows) if self._names[number] in answers}

    def _entities(self, rows: Rows) -> set[int]:
        part = self._corpus.triples.table[rows]
        return {*part["head"].tolist(), *part["tail"].tolist()}

    def recalls(self, towers: Towers) -> list[float]:
        """Of each question, the share of its graph's answers that its best triples name."""
        if not self.asked:
            return []
        needed = np.unique(np.concatenate([rows for _, rows, _ in self.asked]))
        triples = towers.encoded("triple", linearised(self._corpus.triples, needed, self._linearise))
        questions = towers.encoded("question", [text for text, _, _ in self.asked])
        recalls = []
        for asked, (_, rows, answers) in zip(questions, self.asked, strict=True):
            best = best_rows(_products(triples, asked, np.searchsorted(needed, rows)), self._k)
            recalls.append(len(answers & self._entities(rows[best])) / len(answers))
        return recalls


def _products(triples: NDArray[np.float32], asked: NDArray[np.float32], rows: Rows) -> NDArray[np.float32]:
    return triples[rows] @ asked
