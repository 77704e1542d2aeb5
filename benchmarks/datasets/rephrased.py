"""Paraphrasing task over the documents of another dataset: `rephrased:test` over `base`.

It measures how much information a compressor loses (CLaRa's fidelity, table 17): a document is compressed, paraphrased from its
memory tokens, and compared with the original.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from benchmarks import registry
from benchmarks.core.errors import UserError
from benchmarks.core.random import Draws
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, register
from benchmarks.schema import Question

VERSION = 1
INSTRUCTION = "Tell this document in other words."

CARD = DatasetCard(
    title="Rephrased",
    task="paraphrase",
    description="The documents of another dataset, each with one question: to tell it in other words. The document is the "
    "only candidate, and its text is the answer.",
    hub_id=None,
    revision=None,
    license="that of the base",
    citation="@article{he2025clara, title={CLaRa: Bridging Retrieval and Generation with Continuous Latent Reasoning}, "
    "author={He, Jie and others}, journal={arXiv:2511.18659}, year={2025}}",
    languages=("en",),
    splits=dict.fromkeys(("train", "validation", "dev", "test")),
    metrics=("rouge(type=rouge1)", "rouge(type=rougeL)", "entity_preservation"),
    settings=("distractor", "gold_only"),
    notes="The paper uses 4,000 documents of pretraining (seen) and positives of the question sets (unseen); the released script "
    "uses 2,000 and the remaining ones. Documents are sampled by the seed.",
)


class RephrasedConfig(DatasetConfig):
    """Options of documents to be paraphrased."""

    base: str = Field("worlds/multihop", description="the dataset; the split that you ask for is a split of this dataset")
    base_config: dict[str, Any] = Field(default={}, description="options of the base dataset")
    documents: int | None = Field(None, ge=1, description="number of documents, sampled at random; null: all. Paper: 4,000")
    positives: bool = Field(False, description="use only documents that contain a question's evidence")
    seed: int = Field(0, description="random seed")


@register("rephrased", card=CARD, version=VERSION, config=RephrasedConfig, default_split="test")
def load(reference: DataReference, config: RephrasedConfig) -> Benchmark:
    """Load the base dataset and create one question per document.

    Raises:
        UserError: The base is invalid, or lacks a requested document.
    """
    base = DataReference.parse(config.base)
    if base.name == reference.name or base.split not in (None, reference.split):
        raise UserError(
            f"{config.base} cannot be the base of {reference}",
            code="unsuitable-base",
            where="base",
            try_this="another dataset, without a split",
        )
    resolved, _ = registry.resolve(f"{config.base.partition(':')[0]}:{reference.split}", where="base")
    loaded = registry.load(resolved, {"skip_bad": config.skip_bad, **config.base_config})
    ids = list(loaded.corpus.ids)
    if config.positives:
        wanted = {item for question in loaded.questions for item in question.evidence}
        ids = [identifier for identifier in ids if identifier in wanted]
    if not ids:
        raise UserError(
            f"{resolved} has no document to be paraphrased",
            code="no-document-to-paraphrase",
            where="positives" if config.positives else "base",
        )
    if config.documents is not None and config.documents < len(ids):
        chosen = Draws("rephrased", config.seed).sample(range(len(ids)), config.documents)
        ids = [ids[position] for position in sorted(chosen)]
    questions = [
        Question(f"rephrased-{item.id}", INSTRUCTION, (item.full_text,), evidence=(item.id,), candidates=(item.id,))
        for item in loaded.corpus.get(ids)
    ]
    variant = f"{resolved}, positives" if config.positives else str(resolved)
    return Benchmark(reference, VERSION, CARD, questions, loaded.corpus, loaded.skipped, {"variant": variant})
