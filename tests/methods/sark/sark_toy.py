"""Rows about a few objects, a tiny base and options for training SARK in tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from methods.sark.config import SarkTrainingConfig
from methods.sark.loss import classified, list_terms, passage_terms, ranked
from methods.sark.model import encoder_of, new_reranker
from methods.sark.rows import SarkRow
from methods.sark.train import Objective, SarkTrainer
from methods.sark.validation import validator
from methods.training import TRAININGS, Silent
from methods.training.loop import LoopPlace

torch = pytest.importorskip("torch")

THINGS = ["bridge", "river", "town", "cabin", "moss", "stone"]
RANKED_TEXTS = ["the painter built it", "it was built long ago", "a cold north side", "old stone", "it grows", "town"]
"""Texts of a list's six passages, best first."""


def row(number: int, label: int | None = None, listed: bool = True) -> SarkRow:
    """Make a row about one object; better passages come earlier in `RANKED_TEXTS`."""
    thing = THINGS[number % len(THINGS)]
    label = number % 2 if label is None else label

    def in_both_styles(text: str, more: str) -> tuple[str, str]:
        return f"the {thing} : {text} {more}", f"{thing} ! {text} , not cold ? - {more} !"

    more = "year of the long cabin " * (number % 4)
    formal, informal = in_both_styles(RANKED_TEXTS[0 if label else 5], more)
    passages = tuple(in_both_styles(text, more) for text in RANKED_TEXTS) if listed else None
    return SarkRow(f"who built the {thing} ?", f"p{number}", formal, informal, label, passages, f"q{number}")


ROWS = [row(number) for number in range(8)]
CONTRARY = [replace(item, label=1 - (item.label or 0)) for item in ROWS]
"""Labels that contradict the lists, so that neither task's gradient helps the other and λ is between 0 and 1."""


def in_one_style(item: SarkRow) -> SarkRow:
    """Use the formal text for both styles."""
    return replace(item, informal=item.formal, list=tuple((formal, formal) for formal, _ in item.list or ()))


def save_base(style: str, tiny_models: ModuleType, folder: Path) -> str:
    """Save a tiny encoder with random weights."""
    import transformers

    torch.manual_seed(4)
    kind = style.capitalize()
    model = getattr(transformers, f"{kind}Model")(tiny_models.config(kind, len(tiny_models.tokenizer(style))))
    return str(tiny_models.save(folder, style, tiny_models.scaled(model, 2.0)))


def options(base: str, **more: Any) -> SarkTrainingConfig:
    model = {"max_length": 64, **more.pop("model", {})}
    train = {"epochs": 2, "learning_rate": 1e-3, "save_every": 2, **more.pop("train", {})}
    settings = {"data": ["worlds/style:train"], "base": base, "seed": 3, "model": model, "train": train, **more}
    return TRAININGS.get("sark").validate(settings)  # type: ignore[return-value]


def calm(base: str, **more: Any) -> SarkTrainingConfig:
    """Make options without dropout, so that a split batch is comparable with the whole."""
    model = {"dropout": 0.0, "backbone_dropout": 0.0, **more.pop("model", {})}
    return options(base, model=model, **more)


def trainer(
    config: SarkTrainingConfig,
    folder: Path,
    rows: Sequence[SarkRow] = ROWS,
    process: Any = None,
    validate: bool = False,
    progress: Any = None,
) -> SarkTrainer:
    objective = Objective(new_reranker(config, "cpu"), config, process)
    place = LoopPlace(folder, "same", progress or Silent(), process, validator(objective, rows, config) if validate else None)
    return SarkTrainer(objective, rows, config, place)


def weights(item: SarkTrainer) -> dict[str, Any]:
    return {name: value.clone() for name, value in item.objective.model.state_dict().items()}


def lines(item: SarkTrainer) -> list[dict[str, float]]:
    return [json.loads(line) for line in item.loop.curve.read_text().splitlines()]


def gradients(model: Any) -> dict[str, Any]:
    return {name: item.grad for name, item in model.named_parameters() if item.grad is not None}


def read(item: SarkTrainer, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Record the number of sequences and padded length of every forward pass."""
    seen: list[tuple[int, int]] = []
    logits = item.objective.logits

    def watched(pairs: Any) -> Any:
        seen.append((len(pairs), max(len(pair["input_ids"]) for pair in pairs)))
        return logits(pairs)

    monkeypatch.setattr(item.objective, "logits", watched)
    return seen


class Whole:
    """The losses of all rows in one pass by the equations; gradients by autograd."""

    def __init__(self, config: SarkTrainingConfig, rows: Sequence[SarkRow], styles: Sequence[int] = (0, 1)) -> None:
        self.model = new_reranker(config, "cpu").train()
        self.config, head = config, config.model.head
        passages, lists = [], []
        labeled = [item for item in rows if item.label is not None]
        listed = [item for item in rows if item.list is not None]
        for style in styles:
            scores = self.logits([(item.query, (item.formal, item.informal)[style]) for item in labeled])
            labels = torch.tensor([float(item.label or 0) for item in labeled])
            passages.append(passage_terms(classified(scores, head), labels).mean())
            scores = self.logits([(item.query, styled[style]) for item in listed for styled in item.list or ()])
            lists.append(list_terms(ranked(scores, head).reshape(-1, 6)).mean())
        self.passage, self.list = torch.stack(passages).mean(), torch.stack(lists).mean()

    def logits(self, pairs: Sequence[tuple[str, str]]) -> Any:
        queries, passages = map(list, zip(*pairs, strict=True))
        tokenizer = self.model.tokenizer
        features = tokenizer(queries, passages, truncation="only_second", max_length=64, padding=True, return_tensors="pt")
        return self.model(dict(features))["scores"]

    def flat(self, loss: Any, part: Any) -> np.ndarray:
        results = torch.autograd.grad(loss, list(part.parameters()), retain_graph=True, allow_unused=True)
        return np.concatenate([item.numpy().ravel() for item in results if item is not None]).astype(np.float64)

    def weight(self, part: Any = None) -> float:
        """Find λ by brute force."""
        part = encoder_of(self.model) if part is None else part
        item, other = self.flat(self.passage, part), self.flat(self.list, part)
        grid = np.linspace(0, 1, 10_001)
        gram = np.array([[item @ item, item @ other], [item @ other, other @ other]])
        points = np.stack([grid, 1 - grid], axis=1)
        return float(grid[np.argmin(np.einsum("ni,ij,nj->n", points, gram, points))])
