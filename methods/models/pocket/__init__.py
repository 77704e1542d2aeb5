"""The pocket model: a small causal language model, trained from scratch on train worlds, that the package carries.

`prompt.py` is the format it was trained on, `tokens.py` its tokenizer, `tasks.py` and `packing.py` make training
batches out of worlds, `initial.py` where training starts from, `train.py` and `evaluate.py` are commands, and
`weights/` is an ordinary `transformers` folder.
"""

from __future__ import annotations

from pathlib import Path


def pocket_path() -> Path:
    """The folder with the model's weights, configuration, tokenizer and card."""
    return Path(__file__).parent / "weights"
