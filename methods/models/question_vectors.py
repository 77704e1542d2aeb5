"""Encode the questions of a run in fixed batches.

The last bits of a vector depend on the batch that it is computed in. With fixed batches a run that was interrupted gives the
same vectors as one that was not, in whatever order its questions arrive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.schema import Query
from methods.models.encoder import QUERIES, Encoder
from methods.models.towers import Vectors


class QuestionVectors:
    """Vectors of a run's questions.

    Args:
        encoder: Encoder of the questions.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._known: list[str] = []
        self._blocks: dict[str, tuple[int, int]] = {}
        self._encoded: dict[int, Vectors] = {}

    def build_for(self, queries: Sequence[Query]) -> None:
        """Divide all questions of a run into batches; a batch is encoded when its first question arrives."""
        self._known = list(dict.fromkeys(query.text for query in queries))
        self._blocks = {text: divmod(place, QUERIES) for place, text in enumerate(self._known)}
        self._encoded = {}

    def of(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, shape (texts, dimension).

        In a run, each text that is none of its questions, such as a rewritten one, is encoded alone. Without a run, all texts are
        one batch.
        """
        for block in {self._blocks[text][0] for text in texts if text in self._blocks} - self._encoded.keys():
            self._encoded[block] = self._encoder.queries(self._known[block * QUERIES : (block + 1) * QUERIES])
        unknown = [text for text in texts if text not in self._blocks]
        batches = [[text] for text in unknown] if self._blocks else [unknown] if unknown else []
        fresh = {text: vector for batch in batches for text, vector in zip(batch, self._encoder.queries(batch), strict=True)}
        vectors = np.empty((len(texts), self._encoder.dimension), np.float32)
        for row, text in enumerate(texts):
            block, place = self._blocks.get(text, (0, 0))
            vectors[row] = fresh[text] if text in fresh else self._encoded[block][place]
        return vectors
