"""Questions that say the same in other words as a text that was trained on, by the cosine of their embeddings.

Hashes only find equal words. An encoder also finds rewordings, but its similarities prove nothing: read the pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.registry import Benchmark, DataReference, load
from results.store.checkpoints import Checkpoint
from results.store.training_data import references_of

THRESHOLD = 0.9
"""Minimum cosine similarity of a reported pair; chosen for sentence encoders such as all-MiniLM-L6-v2."""
MOST_WORDS = 64
"""Maximum words of a question; longer texts of training files are passages."""
_BLOCK = 4096

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
"""Function from texts to vectors of length 1, shape (texts, dimension)."""


@dataclass(frozen=True, slots=True)
class Paraphrase:
    """Test question with the most similar training text."""

    benchmark: str
    question: str
    text: str
    trained: str
    similarity: float

    def to_json(self) -> dict[str, Any]:
        """Return question, training text and similarity as a JSON object."""
        return asdict(self)


def paraphrases(benchmarks: Sequence[Benchmark], trained: Sequence[str], encode: Encode, threshold: float = THRESHOLD) -> list[Paraphrase]:
    """Find test questions with a similar training text (possible paraphrases), most similar pair first.

    Args:
        benchmarks: The evaluated benchmarks.
        trained: The training texts.
        encode: Encodes texts as vectors.
        threshold: Minimum cosine similarity.
    """
    unique = list(dict.fromkeys(filter(str.strip, trained)))
    evaluated = [(str(benchmark.reference), question) for benchmark in benchmarks for question in benchmark.questions]
    if not unique or not evaluated:
        return []
    queries = encode([question.text for _, question in evaluated])
    best, at = np.full(len(evaluated), -np.inf, np.float32), np.zeros(len(evaluated), np.int64)
    for start in range(0, len(unique), _BLOCK):
        cosines = queries @ encode(unique[start : start + _BLOCK]).T
        here = cosines.argmax(axis=1)
        value = cosines[np.arange(len(evaluated)), here]
        better = value > best
        best[better], at[better] = value[better], start + here[better]
    order = np.argsort(-best, kind="stable")
    pairs = [(evaluated[row], unique[at[row]], float(best[row])) for row in order.tolist() if best[row] >= threshold]
    return [Paraphrase(name, question.id, question.text, text, value) for (name, question), text, value in pairs]


def encoder_of(model: str, device: str | None = None) -> Encode:
    """Load an encoder for questions.

    Args:
        model: Folder or hub id of a SentenceTransformer; `minilm` stands for all-MiniLM-L6-v2.
        device: Device of the model; None chooses automatically.

    Raises:
        UserError: The model is not on this machine and cannot be downloaded.
    """
    from methods.models.encoder import Encoder
    from methods.models.encoder_config import EncoderConfig

    encoder = Encoder(EncoderConfig.model_validate({"model": model}), device)
    return lambda texts: np.asarray(encoder.passages(list(texts), cached=False), np.float32)


def trained_texts(checkpoint: Checkpoint) -> list[str]:
    """Load the training and validation questions that a checkpoint's card names.

    Raises:
        UserError: The data are not on this machine.
    """
    validation = checkpoint.config.get("validation")
    named = [*references_of(checkpoint), *(validation if isinstance(validation, list) else ())]
    results: list[str] = []
    for text in dict.fromkeys(named):
        reference = DataReference.of_name(text)
        results += [question.text for question in load(reference, _options(checkpoint.config, reference.name)).questions]
    return results


def _options(config: Mapping[str, Any], dataset: str) -> Mapping[str, Any]:
    for key in ("data_options", "graph_options", "validation_options"):
        options = config.get(key)
        if isinstance(options, Mapping) and isinstance(options.get(dataset), Mapping):
            return dict(options[dataset])
    return {}
