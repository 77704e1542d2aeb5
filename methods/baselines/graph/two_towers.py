"""Bi-encoders over triples without graph training: any encoder, or DPR's encoders (trained on Natural Questions passages).

Source: Karpukhin et al. 2020, Dense Passage Retrieval (arXiv:2004.04906); including its text preprocessing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from methods.api import Services
from methods.graphs.triples import LinearizeConfig
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.encoder_presets import PRESETS
from methods.models.towers import Vectors
from methods.registry import register
from methods.retrieval.triples import TripleRetriever, TripleSearchConfig, open_towers, triples_work

PUBLISHED = PRESETS["dpr-nq"]


class DprTriplesConfig(TripleSearchConfig):
    """Options of DPR's encoders over triples."""

    model: str = Field(PUBLISHED["model"], description="folder or hub id of the passage encoder")
    revision: str | None = Field(None, description="revision of a hub id")
    query_model: str = Field(PUBLISHED["query_model"], description="folder or hub id of the question encoder")
    query_revision: str | None = Field(None, description="commit, tag or branch of query_model on the hub")
    similarity: Literal["cosine", "dot"] = Field(
        "dot", description="similarity of a question and a triple; DPR was trained with the dot product"
    )
    max_length: int = Field(256, ge=8, description="longest text in tokens")
    title: Literal["none", "head"] = Field("none", description="title of a triple for the passage encoder: none, or the triple's head")
    linearize: LinearizeConfig = LinearizeConfig.model_validate({})

    @property
    def encoder(self) -> EncoderConfig:
        return EncoderConfig.preset(
            "dpr-nq",
            model=self.model,
            revision=self.revision,
            query_model=self.query_model,
            query_revision=self.query_revision,
            max_length=self.max_length,
            normalize=self.similarity == "cosine",
            batch_size=self.batch_size,
            dtype=self.dtype,
        )


class DprEncoder(Encoder):
    """DPR's encoders with their authors' text preprocessing."""

    def queries(self, texts: Sequence[str], instruction: str | None = None) -> Vectors:
        """Encode questions, with curly apostrophes replaced by straight ones."""
        return super().queries([text.replace("’", "'") for text in texts], instruction)

    def passages(self, texts: Sequence[str], titles: Sequence[str] | None = None, *, cached: bool = True) -> Vectors:
        """Encode texts without line breaks and enclosing quotation marks."""
        return super().passages([_prepared(text) for text in texts], titles, cached=cached)


def _prepared(text: str) -> str:
    text = text.replace("\n", " ")
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


@register(
    "dpr_nq",
    kind="retriever",
    summary="triples ranked by the two encoders of DPR, which were trained on Natural Questions; dot product",
    paper="Karpukhin et al. 2020, Dense Passage Retrieval (arXiv:2004.04906)",
    training_data=("nq:train",),
    work=triples_work,
)
class DprTriples(TripleRetriever):
    """Retriever role: ranks triples with DPR's encoders.

    Args:
        config: Options with the encoders and search settings.
        services: Services; device and embedding cache are used.
    """

    def __init__(self, config: DprTriplesConfig, services: Services) -> None:
        super().__init__(*open_towers(config, services, DprEncoder), "dpr_nq", titled=config.title == "head")


# Both towers are copies of one encoder. First-token vectors of a language model that was never trained to compare texts
# are all similar, so `pooling: first`, which is GPR's own, is necessarily weak; `mean` is the fairer comparison.


Pooling = Literal["first", "mean"]
POOLINGS: dict[Pooling, Any] = {"first": "cls", "mean": "mean"}
"""Pooling names of `EncoderConfig` for each option value."""


class TwoTowerConfig(TripleSearchConfig):
    """Options of encoders without graph training."""

    model: str = Field("distilbert-base-uncased", description="folder or hub id of an encoder; minilm is available offline")
    revision: str | None = Field(None, description="revision of a hub id")
    pooling: Pooling = Field("first", description="the vector of a text: its first token's (paper), or the tokens' mean")
    max_length: int = Field(64, ge=8, description="longest text in tokens")
    linearize: LinearizeConfig = LinearizeConfig.model_validate({})

    @property
    def encoder(self) -> EncoderConfig:
        pooling = POOLINGS[self.pooling]
        return self.towers(model=self.model, revision=self.revision, pooling=pooling, max_length=self.max_length)


@register(
    "two_tower",
    kind="retriever",
    summary="triples ranked by an encoder that was not trained on any graph; weak with first-token vectors",
    paper="Wang et al. 2025, GPR: Empowering Generation with Graph-Pretrained Retriever (baseline Two Tower)",
    presets={"mean": {"pooling": "mean"}, "minilm": {"model": "minilm", "pooling": "mean"}},
    work=triples_work,
)
class TwoTower(TripleRetriever):
    """Retriever role: ranks triples with any encoder, without graph training.

    Args:
        config: Options with the encoder and search settings.
        services: Services; device and embedding cache are used.
    """

    def __init__(self, config: TwoTowerConfig, services: Services) -> None:
        super().__init__(*open_towers(config, services), "two_tower")
