"""Register ARK's retriever: dense retrieval with a fine-tuned checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.datasets import fold_of
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.registry import MethodConfig, register
from methods.retrieval.dense import Dense, DenseConfig, dense_work
from methods.training.stages import card_of
from methods.work import Lengths, Needs, Work, needs_of, total


def trained_by_ark(model: str) -> bool:
    """Return whether a model is an ARK checkpoint."""
    card = card_of(model)
    return card is not None and card.get("method") == "ark"


class ArkConfig(DenseConfig):
    """Options of dense retrieval; prompts, pooling and length are those saved with the checkpoint."""

    model: str = Field(description="folder of a checkpoint that `ragmeter train ark` made")

    def preflight(self) -> None:
        """Check that the model is an ARK checkpoint."""
        super().preflight()
        if not trained_by_ark(self.model):
            raise UserError(
                f"{self.model!r} is not a checkpoint of ARK",
                code="not-checkpoint-ark",
                where="ark, option model",
                try_this="a folder that `ragmeter train ark` wrote; for other encoders: dense",
            )


@register(
    "ark",
    kind="retriever",
    summary="dense retrieval with an encoder that ARK tuned",
    config=ArkConfig,
    paper="ARK: answer-centric retriever tuning with a knowledge-graph curriculum (2025)",
    work=dense_work,
)
class Ark(Dense):
    """Retriever role: dense retrieval with an ARK checkpoint.

    Args:
        config: Options with the checkpoint and search settings.
        services: As in `Dense`.
    """


class ArkFoldsConfig(MethodConfig):
    """Options for cross-validation: one checkpoint per fold of the questions."""

    default_extra = "models"

    models: tuple[str, ...] = Field(
        min_length=2, description="folders of the checkpoints of N trainings; the K-th was trained with `fold: -K/N` of its data"
    )
    max_length: int | None = Field(None, ge=8, description="longest text in the models' tokens; null: the models' own limit")

    @property
    def parts(self) -> list[ArkConfig]:
        """Return the retriever options of each fold."""
        return [ArkConfig.model_validate({"model": model, "max_length": self.max_length}) for model in self.models]

    def checkpoint_hash(self) -> str:
        """Return the hashes of all checkpoints in order, so that leaderboards find the one that answered a question."""
        return "-".join(part.checkpoint_hash() for part in self.parts)

    def needed_models(self) -> Needs | None:
        """Return the required checkpoints."""
        return needs_of(*self.parts)

    def preflight(self) -> None:
        """Check that each model is an ARK checkpoint that was trained without its fold."""
        for number, part in enumerate(self.parts, 1):
            part.preflight()
            expected = f"-{number}/{len(self.models)}"
            card = card_of(part.model) or {}
            options = [options.get("fold") for options in card.get("config", {}).get("data_options", {}).values()]
            if not options or any(fold != expected for fold in options):
                raise UserError(
                    f"checkpoint {number} was not trained with fold {expected}, so it may have been trained on the question",
                    code="checkpoint-of-other-fold",
                    where=f"ark_folds, models.{number - 1}: {part.model}",
                    try_this=f"a training whose data_options have fold: {expected}",
                )


def _folds_work(config: ArkFoldsConfig, lengths: Lengths) -> Work:
    return total(dense_work(part, lengths) for part in config.parts)


@register(
    "ark_folds",
    kind="retriever",
    summary="ARK by cross-validation: the checkpoint that was not trained on a question's fold answers the question",
    config=ArkFoldsConfig,
    paper="ARK: answer-centric retriever tuning with a knowledge-graph curriculum (2025)",
    work=_folds_work,
)
class ArkFolds:
    """Retriever role with cross-validation: each question uses the checkpoint that was trained without its fold.

    Folds are computed from the question's text, so questions must not be rewritten.

    Args:
        config: The checkpoints.
        services: As in `Dense`.
    """

    def __init__(self, config: ArkFoldsConfig, services: Services) -> None:
        self._parts = [Ark(part, services) for part in config.parts]

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Build or open the index of each checkpoint."""
        folders = [None if folder is None else folder / f"fold{number}" for number in range(1, len(self._parts) + 1)]
        return FoldsIndex([part.index(corpus, place) for part, place in zip(self._parts, folders, strict=True)])


class FoldsIndex:
    """Indexes of all folds, in order.

    Args:
        parts: The indexes.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts
        self.notes: Mapping[str, Any] = parts[0].notes

    def _own(self, queries: Sequence[Query]) -> dict[int, list[int]]:
        """Return the positions of the queries of each fold, from 1."""
        results: dict[int, list[int]] = {}
        for position, query in enumerate(queries):
            results.setdefault(fold_of(query.text, len(self._parts)), []).append(position)
        return results

    def build_for(self, queries: Sequence[Query]) -> None:
        """Divide the queries of each fold into batches."""
        for fold, positions in self._own(queries).items():
            self._parts[fold - 1].build_for([queries[position] for position in positions])

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rank passages for each query with the checkpoint that was trained without its fold."""
        results: dict[int, Ranking] = {}
        for fold, positions in self._own(queries).items():
            rankings = self._parts[fold - 1].retrieve([queries[position] for position in positions], k)
            results |= dict(zip(positions, rankings, strict=True))
        return [results[position] for position in range(len(queries))]
