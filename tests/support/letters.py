"""Triples with known cosines."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.schema import Triple, triple_id


class Letters:
    """Encoder whose vectors are letter counts, so that cosines are known."""

    dimension = 26
    device = "cpu"

    def passages(self, texts: Any) -> np.ndarray:
        return np.array([[text.lower().count(chr(97 + position)) for position in range(26)] for text in texts], np.float32)

    queries = passages


def ids(triples: list[Triple]) -> tuple[str, ...]:
    return tuple(triple_id(triple) for triple in triples)
