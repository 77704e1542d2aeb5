"""How well an encoder in training finds the evidence of held-out questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.errors import UserError
from methods.ark.config import ArkTrainingConfig
from methods.ark.material import Document, documents_of, load_benchmarks
from methods.ark.tower import Prompts
from methods.torch_loop import Validate


def validator(config: ArkTrainingConfig, model: Any, prompts: Prompts) -> Validate:
    """Recall of evidence among the passages of its document, over the validation questions.

    Raises:
        UserError: No question of the validation data has evidence.
    """
    k = config.train.validate_k
    benchmarks = load_benchmarks(config.validation, config.validation_options)
    documents = [one for benchmark in benchmarks for one in documents_of(benchmark, "passages")]
    if not any(question.evidence for document in documents for question in document.questions):
        raise UserError(
            "no validation question has evidence, so there is no recall",
            where="validation",
            try_this="data with evidence (worlds, hotpotqa), or none",
        )

    def validate() -> Mapping[str, float]:
        found = [recall for document in documents for recall in _recalls(document, model, prompts, k)]
        return {f"validation_recall@{k}": float(np.mean(found))}

    return validate


def _recalls(document: Document, model: Any, prompts: Prompts, k: int) -> list[float]:
    asked = [question for question in document.questions if question.evidence]
    options: dict[str, Any] = {"normalize_embeddings": True, "show_progress_bar": False}
    passages = model.encode([piece.text for piece in document.pieces], prompt=prompts.passage or None, **options)
    queries = model.encode([question.text for question in asked], prompt=prompts.query or None, **options)
    best = np.argsort(-(queries @ passages.T), axis=1, kind="stable")[:, :k]
    recalls = []
    for question, places in zip(asked, best.tolist(), strict=True):
        top = {document.pieces[place].id for place in places}
        recalls.append(float(np.mean([one in top for one in question.evidence])))
    return recalls
