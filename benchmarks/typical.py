"""Typical lengths of datasets, in tokens of four characters, for cost estimates when the files are not available.

The number of questions comes from the card if it has one. Measured on samples of the data unless a source is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.datasets import longbench
from benchmarks.registry import DataReference

CHUNK_WORDS, CHUNK_TOKENS = 512, 720
"""Words per passage when loaders split long documents, and the corresponding tokens."""


@dataclass(frozen=True, slots=True)
class Typical:
    """Typical sizes of a dataset's questions and passages, in tokens.

    Attributes:
        question, passage, answer: Tokens per question, passage and answer.
        candidates: Number of passages (or triples) per record, or per document.
        shared: Mean number of questions that share the same passages.
        questions: Number of questions if no card states it.
        corpus: Number of passages of the corpus, if it does not consist of the records' passages.
        reading: The authors' instructions for readers, if any.
    """

    question: int
    candidates: int
    passage: int
    shared: float = 1.0
    answer: int = 5
    questions: int | None = None
    corpus: int | None = None
    reading: Mapping[str, Any] | None = None


_ULTRADOMAIN_TOKENS, _BOOK_TOKENS = {"fin": 41_000, "legal": 51_000, "mix": 10_000}, 140_000
"""Statistics of UltraDomain, rounded (Qian et al. 2024, MemoRAG); the same value for all eighteen textbook domains."""
_EVALUATED = {"nq": 6489, "hotpotqa": 7384, "musique": 2417, "2wiki": 12576}
PRETRAINING_DOCUMENTS, INSTRUCTION_ROWS = 2_000_000, 453_000
"""Sizes of CLaRa's training data: documents of 95.6 words on average (He et al. 2025, table 9), and COCOM's questions."""

_PLAIN: Mapping[str, Typical] = {
    "hotpotqa": Typical(26, 10, 148),
    "2wikimultihopqa": Typical(19, 10, 97),
    "musique": Typical(23, 20, 119),
    # DPR's psgs_w100.tsv: 100 words and a title a passage.
    "nq": Typical(12, 0, 160, corpus=21_015_324),
    # Graphs around questions overlap: together they are some millions of triples (Saxena et al. 2020, EmbedKGQA: 5.7
    # million within two hops of the entities of WebQSP).
    "webqsp": Typical(9, 2000, 20, shared=2.0, answer=4),
    "cwq": Typical(20, 3500, 20, shared=20.0, answer=4),
    # Their authors' mean lengths, in passages of 512 words.
    "longbench_v2": Typical(90, 250, CHUNK_TOKENS, shared=1.2, answer=8),
    "infinitebench": Typical(25, 300, CHUNK_TOKENS, shared=5.0, answer=6),
    "sark": Typical(12, 50, 160, questions=3000),
    "pisco": Typical(15, 5, 140, answer=60, questions=INSTRUCTION_ROWS),
    "parallel_style": Typical(40, 10, 45),
}


def typical(reference: DataReference) -> Typical | None:
    """Return the typical sizes of a dataset; None if unknown."""
    makers = {"longbench": _longbench, "ultradomain": _ultradomain, "clara_stages": _clara, "rewritten": _rewritten}
    maker = makers.get(reference.name)
    if maker is not None:
        return maker(reference.subset or "")
    return _PLAIN.get(reference.name)


def _longbench(subset: str) -> Typical:
    a_set = longbench.set_of(subset)
    # Of a whole context one passage; a Chinese character is about as long as an English word, in tokens.
    passages = 1 if a_set.whole else -(-a_set.words // CHUNK_WORDS)
    length = round(a_set.words * CHUNK_TOKENS / CHUNK_WORDS) if a_set.whole else CHUNK_TOKENS
    return Typical(15, passages, length, reading=longbench.reading(subset))


def _ultradomain(subset: str) -> Typical:
    length = _ULTRADOMAIN_TOKENS.get(subset, _BOOK_TOKENS)
    # LightRAG counts 94 documents of legal and about 12 of a textbook domain; here as many questions share each.
    shared = {"legal": 4.7, "fin": 4.7, "mix": 2.1}.get(subset, 9.0)
    reading = {**longbench.reading("qasper"), "max_new_tokens": 512}
    return Typical(30, max(1, -(-length // CHUNK_TOKENS)), CHUNK_TOKENS, shared, 85, reading=reading)


def _rewritten(subset: str) -> Typical:
    # Questions whose evidence was rewritten, of the samples that the rewrites were recorded for.
    return replace(_PLAIN[subset], candidates=20, questions={"musique": 100, "hotpotqa": 50, "2wikimultihopqa": 40}[subset])


def _clara(subset: str) -> Typical:
    if subset == "pretraining":
        # Three rows of a document: simple and complex questions with their answers, and a paraphrase.
        return Typical(20, 1, 140, answer=245, questions=3 * PRETRAINING_DOCUMENTS)
    if subset.startswith(("inst_eval", "instruction_tuning")):
        name = subset.split("_")[2] if subset.startswith("inst_eval") else ""
        return Typical(15, 5, 150, answer=5 if name else 60, questions=_EVALUATED.get(name, INSTRUCTION_ROWS))
    return Typical(20, 20, 150)
