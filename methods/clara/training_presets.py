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


def worlds(rate: int, train: int, pretraining: Mapping[str, Any], instruction: Mapping[str, Any],
           joint: Mapping[str, Any], questions: int = 4000) -> dict[str, Any]:  # fmt: skip
    """The pocket model on worlds, offline and on a CPU.

    Five things are not the paper's, and each has its key: memory tokens stand all over the text, memory vectors have
    the length of embeddings, memory tokens are first taught to name what they stand for, adapters are wider, and rates
    higher: a model of a few million parameters learns in minutes what a large one has to be shown in days.

    Args:
        rate: Compression ratio; documents have up to 96 tokens, 47 in the middle, about half as in the paper's data.
        train: Train worlds.
        pretraining, instruction, joint: Steps of the stages.
        questions: About the train worlds.
    """
    asked = {"worlds": {"worlds": train, "questions": questions, "candidates": 20, "mix": {"single": 1.0}}}
    held_out = {"worlds": {"questions": 200, "candidates": 20, "mix": {"single": 1.0}}}
    return {
        "model": {
            "base": "pocket",
            "max_length": 96,
            "rate": rate,
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
        "scp": {"mse": 0.0, "naming": 0.3, "naming_only": 60, "train": _steps(pretraining)},
        "instruction": {"mse": 0.0, "naming": 0.1, "train": _steps(instruction)},
        "joint": {"train": _steps(joint) | {"schedule": "cosine"}},
    }


def _steps(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"batch_size": 16, "micro_batch": 16, "epochs": 100, **given}


WORLDS = worlds(
    4, 6,
    {"steps": 500, "learning_rate": 2e-3},
    {"steps": 400, "learning_rate": 1e-3},
    {"steps": 60, "learning_rate": 2e-4},
)  # fmt: skip
PRESETS: Mapping[str, Mapping[str, Any]] = {"paper": PAPER, "released": RELEASED, "worlds": WORLDS}
