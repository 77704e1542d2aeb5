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
}
"""With the rate of joint training falling (Table 11)."""
RELEASED: Mapping[str, Any] = {
    **PAPER,
    "instruction": {"reinit_generator": True},
    "joint": {"train": {"schedule": "constant"}},
}
"""As the published scripts have it: a new generator behind pretraining, a rate that stays in joint training."""


def worlds(
    train: int, questions: int, pretraining: Mapping[str, Any], instruction: Mapping[str, Any],
    joint: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """The pocket model on worlds, offline and on a CPU.

    Five things are not the paper's, and each has its key: memory tokens stand all over the text, memory vectors have
    the length of embeddings, memory tokens are first taught to name what they stand for, adapters are wider, and rates
    higher: a model of a few million parameters learns in minutes what a large one has to be shown in days.

    Args:
        train: Train worlds.
        questions: About them.
        pretraining, instruction, joint: Steps of the stages.
    """
    asked = {"worlds": {"worlds": train, "questions": questions, "candidates": 20, "mix": {"single": 1.0}}}
    held_out = {"worlds": {"questions": 200, "candidates": 20, "mix": {"single": 1.0}}}
    return {
        "model": {
            "base": "pocket",
            # Half of the documents have less than 47 tokens: as in the paper's data, half of the longest.
            "max_length": 96,
            "rate": 4,
            "lora": {"r": 64, "alpha": 128, "dropout": 0.0},
            "memory_init": "spread",
            "positions": "spread",
            "memory_length": "embedding",
            "max_prompt": 1024,
        },
        "data": {
            "scp": ["worlds:train"],
            "instruction": ["worlds:train"],
            "joint": ["worlds:train"],
            "options": asked,
        },
        "validation": {
            "instruction": ["worlds:validation"],
            "joint": ["worlds:validation"],
            "options": held_out,
        },
        "validate_on": {"questions": 100},
        "scp": {"mse": 0.0, "naming": 0.3, "naming_only": 60, "train": _steps(pretraining)},
        "instruction": {"mse": 0.0, "train": _steps(instruction)},
        "joint": {"train": _steps(joint) | {"schedule": "cosine"}},
    }


def _steps(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"batch_size": 16, "micro_batch": 16, "epochs": 100, **given}


WORLDS = worlds(
    3, 4000,
    {"steps": 400, "learning_rate": 2e-3},
    {"steps": 250, "learning_rate": 1e-3, "batch_size": 8},
    {"steps": 40, "learning_rate": 1e-4, "batch_size": 8},
)  # fmt: skip
"""About a quarter of an hour on one core."""
WORLDS_LONG = worlds(
    24, 24000,
    {"steps": 6000, "learning_rate": 2e-3},
    {"steps": 4000, "learning_rate": 1e-3},
    {"steps": 1000, "learning_rate": 1e-4},
)  # fmt: skip
"""Hours. At another ratio: model.rate=16."""
DEMO = worlds(
    1, 200,
    {"steps": 40, "learning_rate": 2e-3},
    {"steps": 10, "learning_rate": 1e-3, "batch_size": 8},
    {"steps": 5, "learning_rate": 1e-4, "batch_size": 8},
)  # fmt: skip
"""Every stage in about two minutes; it learns next to nothing."""
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": PAPER, "released": RELEASED, "worlds": WORLDS, "worlds-long": WORLDS_LONG, "demo": DEMO,
}  # fmt: skip
