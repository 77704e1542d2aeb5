"""Named options of CLaRa's training: the paper's, those of the released scripts, and what worlds need on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STAGES = "clara_stages"
PAPER: Mapping[str, Any] = {
    "seed": 42,
    "data": {
        "scp": [f"{_STAGES}/pretraining:train"],
        "instruction": [f"{_STAGES}/instruction_tuning:train"],
        "joint": [f"{_STAGES}/e2e_training_hotpotqa_with_pos:train"],
    },
    "precision": "bf16",
    "joint": {"train": {"schedule": "cosine"}},
    "validate_on": {"held_out": 500, "every": 500},
}
"""With the rate of joint training falling (Table 11), and rows set aside for the curves of Figures 5 and 6."""
RELEASED: Mapping[str, Any] = {
    **PAPER,
    "model": {"mask": "algorithm"},
    "instruction": {"reinit_generator": True},
    "joint": {"train": {"schedule": "constant"}},
}
"""As the published scripts have it: a new generator behind pretraining, a rate that stays in joint training, the mask
of documents already taken as in algorithm 1."""


def worlds(
    train: int,
    questions: int,
    pretraining: Mapping[str, Any],
    instruction: Mapping[str, Any],
    joint: Mapping[str, Any],
    *,
    supervised: int | None = None,
    naming_only: int = 60,
    every: int | None = None,
) -> dict[str, Any]:
    """The pocket model on worlds, offline and on a CPU.

    A model of a few million parameters learns in hours what a large one has to be shown in days, if it is helped. What
    is not the paper's, each with its key: memory tokens stand all over the text, and have the length of embeddings
    (`model.positions`, `memory_init`, `memory_length`); they are first taught to name what they stand for (`naming`);
    a document's questions are asked one by one (`scp.asked`), and several of one reading (`instruction.together`);
    a fifth of the names are unheard, as they are in worlds to be asked about (`data.unheard`); simple questions alone,
    no paraphrases, no alignment loss (`mse`), no dropout, wider adapters, higher rates.

    Args:
        train: Train worlds.
        questions: About them.
        pretraining, instruction, joint: Steps of the stages.
        supervised: Steps of the baseline that learns from positives; None: as the paper trains the reasoner.
        naming_only: Steps of naming alone.
        every: Steps between validations; None: each epoch.
    """
    asked = {"worlds": {"worlds": train, "questions": questions, "candidates": 20, "mix": {"single": 1.0}}}
    held_out = {"worlds": {"questions": 200, "candidates": 20, "mix": {"single": 1.0}}}
    return {
        "model": {
            "base": "pocket",
            # Half of the documents have less than 43 tokens, one in a thousand has more than 96.
            "max_length": 96,
            "rate": 4,
            "lora": {"r": 64, "alpha": 128, "dropout": 0.0},
            "memory_init": "spread",
            "positions": "spread",
            "memory_length": "embedding",
            "max_prompt": 1024,
        },
        "data": {"scp": ["worlds:train"], "instruction": ["worlds:train"], "joint": ["worlds:train"], "options": asked, "unheard": 0.2},
        "validation": {"instruction": ["worlds:validation"], "joint": ["worlds:validation"], "options": held_out},
        "validate_on": {"questions": 200, "every": every},
        "scp": {
            "mse": 0.0,
            "naming": 0.3,
            "naming_only": naming_only,
            "naming_fades": 0.35,
            "asked": 4,
            "rows": {"mix": "simple"},
            "train": _steps(pretraining),
        },
        "instruction": {"mse": 0.0, "together": 8, "train": _steps({"batch_size": 4, **instruction})},
        "joint": {"train": _steps(joint) | {"schedule": "cosine"}},
        **(
            {}
            if supervised is None
            else {"supervised": {"train": _steps({"steps": supervised, "learning_rate": 5e-4}) | {"schedule": "cosine"}}}
        ),
    }


def _steps(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"batch_size": 16, "micro_batch": 8, "epochs": 100, **given}


_WORLDS = worlds(
    4,
    6000,
    {"steps": 500, "learning_rate": 2e-3},
    {"steps": 400, "learning_rate": 1e-3},
    {"steps": 40, "learning_rate": 5e-5},
    supervised=200,
)
WORLDS = {**_WORLDS, "stages": ("scp", "instruction", "supervised", "joint"), "joint": {**_WORLDS["joint"], "reasoner": "kept"}}
"""About a quarter of an hour on one core.

The supervised stage goes before joint training: on worlds a reasoner that begins as the compressor finds no more than
chance would, and answers alone do not teach it to (docs/methods/clara.md).
"""
WORLDS_LONG = worlds(
    40,
    60000,
    {"steps": 1500, "learning_rate": 2e-3, "floor": 0.02},
    {"steps": 1500, "learning_rate": 1e-3, "floor": 0.02, "batch_size": 8},
    {"steps": 300, "learning_rate": 5e-5},
    naming_only=250,
    every=250,
)
"""Hours. At another ratio: model.rate=16."""
DEMO = worlds(
    1,
    400,
    {"steps": 40, "learning_rate": 2e-3},
    {"steps": 10, "learning_rate": 1e-3},
    {"steps": 5, "learning_rate": 1e-4, "batch_size": 8},
    supervised=5,
    naming_only=20,
)
"""Every stage in about two minutes; it learns next to nothing."""
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": PAPER,
    "released": RELEASED,
    "worlds": WORLDS,
    "worlds-long": WORLDS_LONG,
    "demo": DEMO,
}
