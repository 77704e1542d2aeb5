"""The towers of DPR: BERT's first token, not normalised; title and text are the two segments of a passage.

`AutoModel` takes every DPR folder for a question encoder and fills a passage encoder with random weights, so the
classes are named here.

Source: Karpukhin et al. 2020, Dense Passage Retrieval (arXiv:2004.04906).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from methods.models.weights import loading, locate


class DprTower:
    """One of the two encoders.

    Args:
        model: A folder or hub id.
        side: Which encoder the folder holds.
        revision: Of a hub id.
        device: Where to compute.
        dtype: Name of a torch dtype.
        max_length: Longest input in tokens; None is the tokenizer's own.

    Raises:
        UserError: The model cannot be loaded, or is the other tower.
    """

    def __init__(
        self, model: str, side: Literal["question", "passage"], *, revision: str | None, device: str, dtype: str, max_length: int | None
    ) -> None:
        with loading("encoder", model):
            import torch
            from transformers import AutoTokenizer, DPRContextEncoder, DPRQuestionEncoder

            source = {"pretrained_model_name_or_path": locate(model)}
            source |= {"revision": revision} if revision else {}
            self._tokenizer: Any = AutoTokenizer.from_pretrained(**source)
            wanted = DPRQuestionEncoder if side == "question" else DPRContextEncoder
            loaded, report = wanted.from_pretrained(**source, dtype=getattr(torch, dtype), output_loading_info=True)
            missing = sorted(report["missing_keys"])
            if missing:
                raise ValueError(f"it is not a {side} encoder of DPR ({missing[0]} is missing)")
        self._model: Any = loaded.to(device).eval()
        self._max_length = max_length
        self.device = device
        self.dimension = int(getattr(loaded.config, "projection_dim", 0) or loaded.config.hidden_size)

    def encode(self, texts: Sequence[str], titles: Sequence[str] | None, batch_size: int) -> NDArray[np.float32]:
        """Vectors of texts, shape (texts, dimension).

        Args:
            texts: What to encode.
            titles: The first segments; an empty title leaves the text alone in one segment.
            batch_size: Inputs at once.
        """
        import torch

        order = sorted(range(len(texts)), key=lambda place: (-len(texts[place]), place))
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(order), batch_size):
            places = order[start : start + batch_size]
            inputs = [(titles[place], texts[place]) if titles is not None and titles[place] else (texts[place], None) for place in places]
            # A batch of pairs and a batch of single texts are different calls, so each input is cut on its own.
            encoded = [self._tokenizer(*pair, truncation=True, max_length=self._max_length) for pair in inputs]
            batch = self._tokenizer.pad(encoded, return_tensors="pt").to(self.device)
            with torch.inference_mode():
                vectors[places] = self._model(**batch).pooler_output.float().cpu().numpy()
        return vectors
