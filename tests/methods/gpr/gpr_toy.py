"""A small graph, a tiny base and options for pretraining GPR in tests."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.graphs import TripleCorpus
from benchmarks.schema import Triple
from methods.gpr.config import GprTrainingConfig
from methods.gpr.data import Material
from methods.gpr.questions import questions_of
from methods.gpr.train import GprTrainer, Towers
from methods.gpr.wordings import TemplateQuestions
from methods.graphs.triples import PretrainingGraph
from methods.training import TRAININGS, Silent
from methods.training.loop import LoopPlace

WORLD = {"entities": 120, "community": 60, "triples": 40, "questions": 12}
OWNERS = ["painter", "river", "bridge", "north", "moss", "stone", "town"]
ALONE = ("un", "x.y.not", "used")


def save_base(tiny_models: ModuleType, folder: Path) -> str:
    """Save a tiny encoder with random weights."""
    import torch
    import transformers

    torch.manual_seed(1)
    size = len(tiny_models.tokenizer("bert"))
    tiny_models.save(folder, "bert", transformers.BertModel(tiny_models.config("Bert", size)))
    tiny_models.layout(folder, 64, [tiny_models.pooling("mean")], {})
    return str(folder)


def toy_graph() -> PretrainingGraph:
    """Return owners with three facts each, which share their owner; one triple has no neighbor."""
    triples: list[Triple] = []
    for number, owner in enumerate(OWNERS):
        triples += [
            (owner, relation, f"{value} {number}")
            for relation, value in (("a.b.born", "year"), ("a.b.lived_by", "side"), ("a.b.built", "cabin"))
        ]
    result = TripleCorpus.of_triples([*triples, ALONE]).triples
    heads, relations, tails = (np.ascontiguousarray(result.table[name]) for name in ("head", "relation", "tail"))
    return PretrainingGraph(result, heads, relations, tails, ("toy:train",), "toy", ("f",), (), {})


def options(base: str, **more: Any) -> GprTrainingConfig:
    train = {"epochs": 2, "batch_size": 8, "micro_batch": 3, "learning_rate": 1e-3, "save_every": 2, **more.pop("train", {})}
    settings = {
        "graph": ["worlds/graph:train"],
        "graph_options": {"worlds": WORLD},
        "base": base,
        "pooling": "mean",
        "questions": {"triples": 80},
        "seed": 3,
        "train": train,
        **more,
    }
    return TRAININGS.get("gpr").validate(settings)  # type: ignore[return-value]


def material(config: GprTrainingConfig) -> Material:
    graph = toy_graph()
    return Material(graph, questions_of(graph, config.questions, TemplateQuestions()), config)


def trainer(config: GprTrainingConfig, folder: Path, process: Any = None) -> GprTrainer:
    towers = Towers.load(config, "cpu", process)
    return GprTrainer(towers, material(config), config, LoopPlace(folder, "same", Silent(), process))


def without_dropout(towers: Towers) -> Towers:
    import torch

    for model in towers.modules.values():
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
    return towers


def weights(towers: Towers) -> dict[str, Any]:
    return {f"{name}.{key}": value for name, model in towers.modules.items() for key, value in model.state_dict().items()}


def lines(item: GprTrainer) -> list[dict[str, float]]:
    return [json.loads(line) for line in item.loop.curve.read_text().splitlines()]
