"""RankLLaMA: Llama-2 with a LoRA adapter and a scoring head scores query and passage.

The input is as on the model card: BOS `query: Q` BOS `document: TITLE TEXT`, without an end token; white space is kept
(collapsed for checkpoints trained by ragmeter). A base pretrained on another format can be used with that format.

Source: Ma et al. 2024, Fine-Tuning LLaMA for Multi-Stage Text Retrieval (arXiv:2310.08319).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from string import Template
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, field_validator

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.schema import Passage
from methods.api import Services
from methods.baselines.rerank.pairs import PairConfig, PairReranker, head_scores, pairs_work
from methods.models.adapters import adapted, check_adapter
from methods.models.complete import without_load_report
from methods.models.pretrained import device_of, load_pretrained, loading
from methods.models.weights import MissingWeights, files_of, locate, require_weights, weights_hash
from methods.registry import register
from methods.training.stages import card_of
from methods.work import Needs, needs_of

if TYPE_CHECKING:
    from torch import Tensor

NAME, HEAD = "rankllama", "score"
ADAPTER, BASE = "castorini/rankllama-v1-7b-lora-passage", "meta-llama/Llama-2-7b-hf"


class PairLengths(BaseModel):
    """Options with the maximum lengths of query and passage."""

    query_length: int = Field(32, ge=4, description="longest query in tokens; published 32")
    passage_length: int = Field(164, ge=8, description="longest passage in tokens; published 164")
    layout: str | None = Field(
        None,
        description="text of a pair, with $query and $passage, in a format that suits the base; null: the published format, or "
        "the checkpoint's own",
    )

    @field_validator("layout")
    @classmethod
    def _both(cls, value: str | None) -> str | None:
        if value is not None and (not Template(value).is_valid() or sorted(Template(value).get_identifiers()) != ["passage", "query"]):
            raise ValueError("layout must contain $query and $passage and no other placeholder ($$ for a dollar sign)")
        return value

    @property
    def max_length(self) -> int:
        """Return the maximum pair length in tokens."""
        return self.query_length + self.passage_length


class RankLlamaConfig(PairLengths, PairConfig):
    """Options of RankLLaMA."""

    adapter: str = Field(
        ADAPTER, description="a PEFT folder or hub id that contains the score head, for example one made by `ragmeter train`"
    )
    base: str | None = Field(
        None, description="base model of the adapter; null: Llama-2-7b, or the base of a checkpoint of `ragmeter train`"
    )
    revision: str | None = Field(None, description="revision of a hub id")

    @property
    def model(self) -> str:
        """Return the base model; for a checkpoint that is still to be trained, the checkpoint."""
        files = files_of(self.adapter, None, "adapter_config.json")
        to_come = self.adapter.startswith(("/", ".", "~")) and files_of(self.adapter, None) is None
        settings = files / "adapter_config.json" if files else None
        named = json.loads(settings.read_text("utf-8")).get("base_model_name_or_path") if settings and settings.is_file() else None
        return str(self.base or self._trained("base") or (self.adapter if to_come else named or BASE))

    @property
    def text(self) -> str | None:
        """Return the input format; None for the published one."""
        return self.layout or self._trained("layout")

    @property
    def ours(self) -> bool:
        """Return whether ragmeter trained the checkpoint."""
        return files_of(self.adapter, None) is not None and card_of(self.adapter) is not None

    def _trained(self, option: str) -> Any:
        """Return an option's value in the training of a checkpoint; None if ragmeter did not train it."""
        card = card_of(self.adapter) if files_of(self.adapter, None) else None
        return card.get("config", {}).get(option) if card else None

    def preflight(self) -> None:
        """Check that base and adapter exist, or can be downloaded."""
        for checkpoint in needs_of(self).checkpoints:
            try:
                require_weights(Needs((checkpoint,)))
            except MissingWeights as error:
                option = "adapter" if checkpoint.model == self.adapter else "base"
                raise UserError(error.what, code=error.code, where=f"{NAME}, option {option}", try_this=error.try_this) from None
        check_adapter(self.adapter, self.model, where=f"{NAME}, option adapter", head=HEAD)


@register(
    "rankllama",
    kind="reranker",
    summary="scores each passage with Llama-2, an adapter and a score head; or with another base that was trained the same way",
    paper="Ma et al. 2024, Fine-Tuning LLaMA for Multi-Stage Text Retrieval (arXiv:2310.08319)",
    training_data=("msmarco",),
    checkpoint_hash=lambda config: (
        fingerprint(weights_hash(config.model, config.revision), weights_hash(config.adapter)) + ("" if config.ours else "-kept")
    ),
    work=pairs_work,
)
class RankLlama(PairReranker):
    """Reranker role with a merged adapter.

    Args:
        config: Options.
        services: Services; the device is used.

    Raises:
        UserError: Base or adapter cannot be loaded, do not match, or have several labels.
    """

    def __init__(self, config: RankLlamaConfig, services: Services) -> None:
        device = device_of(services.device)
        tokenizer, model = classifier(config.model, config.revision, config.dtype, device)
        model = adapted(model, config.adapter, where=f"{NAME}, option adapter", head=HEAD).to(device).eval()
        if getattr(model, HEAD).out_features != 1:
            raise UserError(
                f"{config.adapter!r} gives {getattr(model, HEAD).out_features} scores per pair",
                code="wrong-score-count",
                where=f"{NAME}, option adapter",
            )
        super().__init__(config, tokenizer, model, device)
        self._layout = config.text

    def shown(self, passage: Passage) -> str:
        return passage.full_text if self.config.ours else f"{passage.title} {passage.text}"

    def encoded(self, query: str, passages: Sequence[str]) -> list[list[int]]:
        texts = [" ".join(passage.split()) for passage in passages] if self.config.ours else passages
        return pair_ids(self.tokenizer, self.tokens, self.config, self._layout, query, texts)

    def read(self, ids: Tensor, mask: Tensor) -> Tensor:
        return head_scores(self.model, ids, mask)


def classifier(base: str, revision: str | None, dtype: str | None, device: str, **options: Any) -> tuple[Any, Any]:
    """Load a base and its tokenizer as a one-label classifier with a random head.

    Raises:
        UserError: The model cannot be loaded, or has a head with several labels.
    """
    with loading("base", base):
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(locate(base), **({"revision": revision} if revision else {}))
        architectures = config.architectures or []
    if any("SequenceClassification" in name for name in architectures) and config.num_labels != 1:
        raise UserError(
            f"{base!r} gives {config.num_labels} scores per pair, but a reranker must give one",
            code="wrong-score-count",
            where=f"{NAME}, option base",
        )
    with without_load_report():  # it would say that the head is a random one
        return load_pretrained(
            "base", "AutoModelForSequenceClassification", base, revision, dtype, device, model_options={"num_labels": 1}, own=True
        )


def pair_ids(tokenizer: Any, tokens: Any, lengths: PairLengths, layout: str | None, query: str, passages: Sequence[str]) -> list[list[int]]:
    """Tokenize pairs in the published format, in which lengths include BOS and prefix, or in another format."""
    begin = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    if layout is not None:

        def cut(text: str, most: int) -> str:
            (ids,) = tokens([text], most + 1)
            return text if len(ids) <= most else str(tokenizer.decode(ids[:most]))

        shown = cut(query, lengths.query_length)
        texts = [Template(layout).substitute(query=shown, passage=cut(text, lengths.passage_length)) for text in passages]
        return [[*begin, *ids] for ids in tokens(texts, None)]
    (first,) = tokens([f"query: {query}"], lengths.query_length - len(begin))
    rest = tokens([f"document: {text}" for text in passages], lengths.passage_length - len(begin))
    return [[*begin, *first, *begin, *own] for own in rest]
