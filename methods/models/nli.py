"""Natural language inference: probabilities that a premise entails, is neutral to, or contradicts a hypothesis.

Models order their labels differently (BART-MNLI: contradiction first; mDeBERTa-XNLI: entailment first), so labels are
found by the names in the model's config, never by position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.models import FrozenModel
from methods.models.complete import longest_input
from methods.models.likelihood import FILL, by_length
from methods.models.pretrained import device_of, load_pretrained

LABELS = ("entailment", "neutral", "contradiction")
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "bart-mnli": {"model": "facebook/bart-large-mnli"},
    "mdeberta-xnli": {"model": "MoritzLaurer/mDeBERTa-v3-base-xnli-multilingual-nli-2mil7"},
}
"""Published classifiers, as options."""


class NliConfig(FrozenModel):
    """Options of an NLI classifier."""

    model: str = Field(PRESETS["bart-mnli"]["model"], description="a folder or hub id of a three-way NLI classifier")
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="dtype of the weights")
    max_length: int = Field(512, ge=16, description="longest pair in tokens; the premise is cut, not the hypothesis")
    token_budget: int = Field(16384, ge=16, description="tokens per batch, including padding; limits memory")


@dataclass(frozen=True, slots=True)
class Inference:
    """Probabilities of entailment, neutral and contradiction, each of shape (pairs,); they sum to 1."""

    entailment: NDArray[np.float64]
    neutral: NDArray[np.float64]
    contradiction: NDArray[np.float64]


class NliModel:
    """A loaded NLI classifier.

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.

    Raises:
        UserError: The model cannot be loaded, or its labels are not those of NLI.
    """

    def __init__(self, config: NliConfig, device: str | None = None) -> None:
        self.config = config
        self.device = device_of(device)
        self._tokenizer, self._model = load_pretrained(
            "NLI classifier", "AutoModelForSequenceClassification", config.model, config.revision, config.dtype, self.device
        )
        self._length = min(config.max_length, longest_input(self._model) or config.max_length)
        self._columns = label_columns(self._model.config.id2label, config.model)

    def infer(self, premises: Sequence[str], hypotheses: Sequence[str]) -> Inference:
        """Classify pairs of premise and hypothesis.

        Raises:
            UserError: A hypothesis does not fit into `max_length`.
        """
        import torch

        if len(premises) != len(hypotheses):
            raise ValueError(f"{len(premises)} premises and {len(hypotheses)} hypotheses")
        encoded = [self._encode(premise, claim) for premise, claim in zip(premises, hypotheses, strict=True)]
        logits = np.empty((len(encoded), self._model.config.num_labels), dtype=np.float64)
        for positions in by_length([len(item["input_ids"]) for item in encoded], self.config.token_budget, fill=FILL):
            batch = self._tokenizer.pad([encoded[position] for position in positions], return_tensors="pt").to(self.device)
            with torch.inference_mode():
                logits[positions] = self._model(**batch).logits.float().cpu().numpy()
        odds = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
        shares = odds / odds.sum(axis=1, keepdims=True)
        return Inference(*(shares[:, column] for column in self._columns))

    def _encode(self, premise: str, hypothesis: str) -> Any:
        specials = self._tokenizer.num_special_tokens_to_add(pair=True)
        room = self._length - specials - len(self._tokenizer.tokenize(hypothesis))
        if room < 1:
            raise UserError(
                f"a hypothesis leaves no room for its premise in {self._length} tokens: {hypothesis[:60]!r}…",
                code="hypothesis-too-long",
                try_this="raise max_length, or split the hypothesis",
            )
        return self._tokenizer(premise, hypothesis, truncation="only_first", max_length=self._length)


def label_columns(names: Mapping[int, str], model: str) -> tuple[int, int, int]:
    """Return the output columns of entailment, neutral and contradiction, by the names in the model's config.

    Raises:
        UserError: The labels are not these three.
    """
    columns = {str(name).strip().lower(): int(column) for column, name in names.items()}
    if set(columns) != set(LABELS):
        raise UserError(
            f"the labels of {model!r} are {', '.join(map(str, names.values()))}, not {', '.join(LABELS)}",
            code="label-names-mismatch",
            where="id2label in its config.json",
            try_this="name a three-way NLI classifier, or correct the names in its config",
        )
    entailment, neutral, contradiction = (columns[label] for label in LABELS)
    return entailment, neutral, contradiction
