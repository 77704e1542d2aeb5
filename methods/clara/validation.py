"""What a model in training is worth on held-out rows: losses, answers from memory, what the reasoner finds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from benchmarks.text import cover_em
from methods.clara.compressor import Encoded
from methods.clara.config import Adapter
from methods.clara.lessons import Lesson
from methods.clara.model import Clara
from methods.clara.prompting import Prompt, answer
from methods.clara.retrieving import candidates_of, recalls
from methods.clara.rows import JointRow
from methods.clara.training_config import ValidateOptions
from methods.torch_loop import Validate

RECALLS = (1, 3, 5)
"""How many of the best candidates recall is told of."""


def validator(
    clara: Clara, lessons: Sequence[Lesson], questions: Sequence[JointRow], options: ValidateOptions, *, selects: bool
) -> Validate | None:
    """The figures of held-out rows; None where there are none.

    `validation_loss` and `validation_mse` of lessons; `validation_answer_loss` (per token) and `validation_cover_em` of
    questions answered from all their documents, or, where the model selects, from those that it chose, with
    `validation_recall@k` of the choice.

    Args:
        clara: The model.
        lessons: Held-out rows of pretraining.
        questions: Held-out questions.
        options: How they are answered.
        selects: Whether the reasoner chooses among the documents.
    """
    if not lessons and not questions:
        return None

    def validate() -> Mapping[str, float]:
        figures: dict[str, float] = {}
        with torch.inference_mode(), clara.evaluating():
            if lessons:
                figures |= losses(clara, lessons, options.batch_size)
            if questions:
                figures |= answered(clara, questions, options, selects=selects)
        return {f"validation_{name}": value for name, value in figures.items()}

    return validate


def losses(clara: Clara, lessons: Sequence[Lesson], batch_size: int) -> dict[str, float]:
    """Cross-entropy per token of replies, and the alignment loss."""
    entropy = mse = tokens = documents = 0.0
    for start in range(0, len(lessons), batch_size):
        some = lessons[start : start + batch_size]
        encoded: Encoded = clara.encode([text for one in some for text in one.documents])
        memory = encoded.memory.split([len(one.documents) for one in some])
        asked = [(one, own) for lesson, own in zip(some, memory, strict=True) for one in lesson.exchanges]
        prompts, targets = [one.prompt for one, _ in asked], [one.target for one, _ in asked]
        entropy += float(clara.cross_entropy(prompts, [own for _, own in asked], targets, "row_sums").sum())
        tokens += sum(len(clara.generator.target_ids(target)) for target in targets)
        mse += float(clara.alignment(encoded)) * len(encoded.memory)
        documents += len(encoded.memory)
    return {"loss": entropy / tokens, "mse": mse / documents}


def answered(clara: Clara, questions: Sequence[JointRow], options: ValidateOptions, *, selects: bool) -> dict[str, float]:
    """Share of questions whose answer covers a gold one, loss per token of answers, recall of documents chosen."""
    documents = dict.fromkeys(text for row in questions for text in row.documents)
    memory = clara.encode(list(documents)).memory
    places = {text: place for place, text in enumerate(documents)}

    def of(texts: Sequence[str]) -> Any:
        return memory[[places[text] for text in texts]]

    figures: dict[str, float] = {}
    chosen = [list(range(len(row.documents))) for row in questions]
    if selects:
        chosen, figures = _selected(clara, questions, of, options.batch_size)
    kept = [[row.documents[place] for place in best] for row, best in zip(questions, chosen, strict=True)]
    prompts = [answer(row.question, len(texts)) for row, texts in zip(questions, kept, strict=True)]
    own = list(map(of, kept))
    entropy = {"answer_loss": _loss(clara, prompts, own, [row.answer for row in questions], options.batch_size)}
    return figures | entropy | {"cover_em": covered(clara, questions, prompts, own, options)}


def _loss(clara: Clara, prompts: Sequence[Prompt], memory: Sequence[Any], answers: Sequence[str], batch_size: int) -> float:
    """Cross-entropy per token of answers."""
    total = 0.0
    for start in range(0, len(prompts), batch_size):
        end = start + batch_size
        told = clara.cross_entropy(prompts[start:end], memory[start:end], answers[start:end], "row_sums")
        total += float(told.sum())
    return total / sum(len(clara.generator.target_ids(one)) for one in answers)


def covered(
    clara: Clara,
    questions: Sequence[JointRow],
    prompts: Sequence[Prompt],
    memory: Any,
    options: ValidateOptions,
    adapter: Adapter | None = "generator",
) -> float:
    """Share of questions whose reply covers a gold answer."""
    replies = clara.generate(prompts, memory, options.max_new_tokens, options.batch_size, adapter)
    scores = [cover_em(reply.text, row.golds) for reply, row in zip(replies, questions, strict=True)]
    return math.fsum(scores) / len(scores)


def _selected(clara: Clara, questions: Sequence[JointRow], of: Any, batch_size: int) -> tuple[list[list[int]], dict[str, float]]:
    """The k best documents of each question, and recall over questions that have a positive."""
    chosen: list[list[int]] = []
    found: dict[int, list[float]] = {k: [] for k in RECALLS}
    for start in range(0, len(questions), batch_size):
        rows = questions[start : start + batch_size]
        scored = candidates_of(clara, rows, of, learns=False)
        order = scored.scores.masked_fill(~scored.mask, -torch.inf).sort(dim=-1, descending=True, stable=True).indices
        for k in RECALLS:
            found[k] += recalls(order[:, :k], scored.positive).tolist()
        chosen += [best[: min(clara.config.k, len(row.documents))] for best, row in zip(order.tolist(), rows, strict=True)]
    judged = {k: [one for one in values if not math.isnan(one)] for k, values in found.items()}
    return chosen, {f"recall@{k}": math.fsum(values) / len(values) for k, values in judged.items() if values}
