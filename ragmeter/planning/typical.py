"""Typical lengths of datasets, for plans of data that are not here; rounded, in tokens of four characters.

Where a card states the number of questions, that is used and not the one here. Measured on samples of the data unless a
source is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.datasets import longbench
from benchmarks.registry import DataReference

CHUNK_WORDS, CHUNK_TOKENS = 512, 720
"""Words of a passage of a long document, as loaders cut it, and the tokens that these make."""


@dataclass(frozen=True, slots=True)
class Typical:
    """What a question of a dataset typically looks like.

    Attributes:
        question: Tokens of a question.
        candidates: Passages (or triples) that a record brings, or that its document is cut into; 0: it brings none.
        passage: Tokens of one of them.
        shared: Questions that share their passages, on average.
        answer: Tokens of an answer.
        questions: How many there are, where no card says so; None: that is unknown.
        corpus: Passages of the corpus that is searched, where it is not that of the questions' own.
        reading: How its authors have it read, where they say so.
        source: Where the figures are from.
    """

    question: int
    candidates: int
    passage: int
    shared: float = 1.0
    answer: int = 5
    questions: int | None = None
    corpus: int | None = None
    reading: Mapping[str, Any] | None = None
    source: str = "measured on samples"


WIKIPEDIA_2018 = 21_015_324
"""Passages of DPR's psgs_w100.tsv."""
_LONGBENCH_WORDS = {"narrativeqa": 18409, "qasper": 3619, "multifieldqa_en": 4559, "hotpotqa": 9151, "2wikimqa": 4887, "musique": 11214}
"""Bai et al. 2024, LongBench, table 1: mean words of a context."""
_ULTRADOMAIN_TOKENS = {"fin": 41_000, "legal": 51_000, "mix": 10_000}
_BOOK_TOKENS = 140_000
"""Qian et al. 2024, MemoRAG, statistics of UltraDomain, rounded; the eighteen textbook domains alike."""
_READING = ("inst_eval", "instruction_tuning")
_EVALUATED = {"nq": 6489, "hotpotqa": 7384, "musique": 2417, "2wiki": 12576}
PRETRAINING_DOCUMENTS = 2_000_000
"""He et al. 2025, CLaRa, table 9: 2,000,000 documents of 95.6 words."""
INSTRUCTION_ROWS = 453_000
"""He et al. 2025, CLaRa: COCOM's questions."""

_PLAIN: Mapping[str, Typical] = {
    "hotpotqa": Typical(26, 10, 148),
    "2wikimultihopqa": Typical(19, 10, 97),
    "musique": Typical(23, 20, 119),
    "nq": Typical(12, 0, 160, questions=None, corpus=WIKIPEDIA_2018, source="DPR: 100 words and a title a passage"),
    # Graphs around questions overlap: together they are some millions of triples (Saxena et al. 2020, EmbedKGQA: 5.7
    # million within two hops of the entities of WebQSP).
    "webqsp": Typical(9, 2000, 20, shared=2.0, answer=4),
    "cwq": Typical(20, 3500, 20, shared=20.0, answer=4),
    "sark": Typical(12, 50, 160, questions=3000, source="SARK: 3,000 questions of NQ, 50 passages of DPR's"),
    "pisco": Typical(15, 5, 140, answer=60, questions=INSTRUCTION_ROWS, source="PISCO: COCOM's questions"),
    "parallel_style": Typical(40, 10, 45),
}


def typical(reference: DataReference) -> Typical | None:
    """What a dataset is typically like; None where nothing is known of it."""
    makers = {"longbench": _longbench, "ultradomain": _ultradomain, "clara_stages": _clara}
    maker = makers.get(reference.name)
    if maker is not None:
        return maker(reference.subset or "")
    return _PLAIN.get(reference.name)


def _longbench(subset: str) -> Typical:
    words = _LONGBENCH_WORDS[subset.removesuffix("_e")]
    source = "LongBench, table 1: words of a context"
    chunks = -(-words // CHUNK_WORDS)
    return Typical(15, chunks, CHUNK_TOKENS, reading=longbench.reading(subset), source=source)


def _ultradomain(subset: str) -> Typical:
    tokens = _ULTRADOMAIN_TOKENS.get(subset, _BOOK_TOKENS)
    # LightRAG counts 94 documents of legal and about 12 of a textbook domain; here as many questions share each.
    shared = {"legal": 4.7, "fin": 4.7, "mix": 2.1}.get(subset, 9.0)
    reading = {**longbench.reading("qasper"), "max_new_tokens": 512}
    return Typical(30, max(1, -(-tokens // CHUNK_TOKENS)), CHUNK_TOKENS, shared, 85, reading=reading, source="MemoRAG: tokens of a context")


def _clara(subset: str) -> Typical:
    if subset == "pretraining":
        # Three rows of a document: simple and complex questions with their answers, and a paraphrase.
        return Typical(20, 1, 140, answer=245, questions=3 * PRETRAINING_DOCUMENTS, source="CLaRa, table 9")
    if subset.startswith(_READING):
        name = subset.split("_")[2] if subset.startswith("inst_eval") else ""
        questions = _EVALUATED.get(name, INSTRUCTION_ROWS)
        return Typical(15, 5, 150, answer=60 if not name else 5, questions=questions, source="CLaRa, section 4")
    return Typical(20, 20, 150, source="CLaRa: 20 documents of Wikipedia a question")
