"""Code that reads replies, with the version that stored results carry.

If a test here fails, decide whether a reply may be read differently now. If so, raise the version, so that stored results
are not reused or compared with new ones. Then replace the hash by the one that the test prints.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.fingerprint import content_hash
from judges.llm.reading import VERSION
from methods.api import Services
from methods.clara.synthesis import Synthesis, SynthesisConfig
from methods.clara.teacher import Teacher, TeacherConfig
from methods.gpr.questions import LLMQuestions
from methods.graphs.augmented_queries import LLMQueries
from methods.graphs.extraction import LLMExtractor, OpenIE
from methods.graphs.neighborhood import LLMNamer
from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from methods.models.reply import READING
from methods.models.rewriter import LLMRewriter, RewriterConfig
from methods.questions.writing import Writer, WritingConfig
from methods.sark.answers import LLMAnswerer
from methods.sark.lists import LLMOrderer
from methods.training.journal import Journal
from tools.same_code import code_of

ROOT = Path(__file__).resolve().parent.parent
ANSWERS = "methods/models/reply.py", "methods/models/thoughts.py", "methods/readers/extract.py", "methods/readers/citations.py"
RECORDS = (
    "methods/models/structured.py",
    "methods/models/bounded.py",
    "methods/graphs/extraction.py",
    "methods/baselines/rerank/replies.py",
    "methods/gpr/questions.py",
    "methods/sark/lists.py",
    "methods/questions/writing.py",
)
"""Parsers of triples, orders, queries and questions, with code around them."""
VERDICTS = "judges/llm/reading.py", "methods/models/bounded.py", "methods/models/thoughts.py"


@pytest.mark.parametrize(
    ("files", "version", "expected"),
    [
        (ANSWERS, READING, (7, "e6bedbb0a5832df3")),
        (RECORDS, READING, (7, "3f4fc65176f72c2d")),
        (VERDICTS, VERSION, (7, "d940873165db7551")),
    ],
    ids=["answers", "records", "verdicts"],
)
def test_code_that_reads_replies_has_the_version_that_it_was_released_with(
    files: tuple[str, ...], version: int, expected: tuple[int, str]
) -> None:
    code = content_hash(code_of((ROOT / name).read_text(encoding="utf-8")) for name in files)
    assert (version, code) == expected


def asking(llm: ChatModel, **options: Any) -> dict[str, Any]:
    return {"llm": llm.config, **options}


STORED: dict[str, Callable[[ChatModel, Path], object]] = {
    "knowledge graph": lambda llm, _: LLMExtractor(llm).fingerprint,
    "triples": lambda llm, _: OpenIE(llm).fingerprint,
    "augmented queries": lambda llm, _: LLMQueries(llm).fingerprint,
    "seeds": lambda llm, _: LLMNamer(llm).fingerprint,
    "passage labels": lambda llm, _: LLMAnswerer(llm).fingerprint,
    "list orders": lambda llm, _: LLMOrderer(llm).fingerprint,
    "masked triples": lambda llm, _: LLMQuestions(llm).name,
    "rewrites": lambda llm, _: LLMRewriter(RewriterConfig.model_validate(asking(llm))).id,
    "teacher": lambda llm, _: Teacher(TeacherConfig.model_validate(asking(llm)), model=llm)._made_of,
    "synthesis": lambda llm, work: Synthesis(SynthesisConfig.model_validate(asking(llm)), Journal(work / "s.jsonl"), model=llm)._made_of,
    "questions": lambda llm, _: Writer(WritingConfig.model_validate(asking(llm)), Services())._made_of,
}


@pytest.mark.parametrize("stored", STORED)
def test_what_a_model_wrote_is_not_reused_after_replies_are_read_differently(
    stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = ChatModel(ChatConfig(model="m", key_variable=None))
    before = STORED[stored](llm, tmp_path)
    assert STORED[stored](llm, tmp_path) == before
    monkeypatch.setattr("methods.models.chat_config.READING", READING + 1)
    assert STORED[stored](llm, tmp_path) != before
