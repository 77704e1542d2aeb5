"""A question of a benchmark with its gold marked: as text in a terminal, and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.text import Text

from benchmarks.core.errors import counted
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question, sentence_of
from ragmeter.show.console import out

SHOWN_TEXT, SHOWN_PASSAGES = 240, 10
"""Maximum printed characters of a passage, and passages of a question."""


def print_question(question: Question, benchmark: Benchmark) -> None:
    """Print a question with its gold and its passages."""
    out.print(Text(f"{question.id}  ", style="dim") + Text(question.text, style="bold"))
    others = [[alias for alias in question.aliases.get(answer, ()) if alias != answer] for answer in question.wanted]
    answers = [answer + (f" (also: {', '.join(some)})" if some else "") for answer, some in zip(question.wanted, others, strict=True)]
    facts = {
        "answer": (" and " if question.answer_set else " | ").join(answers) or "(none)",
        "type": question.type,
        "answerable": "" if question.answerable else "no",
        "document": question.document_id or "",
        "topics": ", ".join(question.topic_entities),
        "triples": "; ".join(" → ".join(triple) for triple in question.triples),
    }
    for name, fact in facts.items():
        if fact:
            out.print(Text(f"  {name}: ", style="green" if name in ("answer", "triples") else "") + Text(fact))
    for passage, gold in _passages(question, benchmark):
        mark = Text("  gold ", style="green") if gold else Text("       ")
        out.print(mark + Text(f"{passage.title}: " if passage.title else "", style="bold") + _shortened(passage, question))
    left = len(question.candidates or ()) - SHOWN_PASSAGES
    if left > 0:
        out.print(Text(f"       … {counted(left, 'more candidate')}", style="dim"))
    absent = sum(identifier not in benchmark.corpus for identifier in question.evidence)
    if absent:
        out.print(Text(f"       not in the corpus: {counted(absent, 'positive')}", style="yellow"))
    out.print()


def _passages(question: Question, benchmark: Benchmark) -> Iterator[tuple[Passage, bool]]:
    """Yield the first candidates and all positives, and whether each is a positive."""
    wanted = dict.fromkeys([*(question.candidates or ())[:SHOWN_PASSAGES], *question.evidence])
    for passage in benchmark.corpus.get(identifier for identifier in wanted if identifier in benchmark.corpus):
        yield passage, passage.id in question.evidence


def _shortened(passage: Passage, question: Question) -> Text:
    """Shorten a passage's text; supporting sentences stay whole and are marked."""
    supporting = {index for identifier, index in map(sentence_of, question.supporting_facts) if identifier == passage.id}
    if not supporting:
        whole = " ".join(passage.text.split())
        return Text(whole if len(whole) <= SHOWN_TEXT else whole[:SHOWN_TEXT] + "…")
    text = Text()
    for number, sentence in enumerate(passage.sentences):
        if number in supporting:
            text += Text(" ".join(sentence.split()) + " ", style="underline")
        elif not text or not text.plain.endswith("… "):
            text += Text("… ")
    return text


def question_json(question: Question, benchmark: Benchmark) -> dict[str, Any]:
    """Return a question with its gold and passages as a JSON object."""
    record = asdict(question)
    record["candidates"] = None if question.candidates is None else list(question.candidates)
    passages = [asdict(passage) | {"gold": gold} for passage, gold in _passages(question, benchmark)]
    return {"id": record.pop("id"), "question": record.pop("text"), **record, "passages": passages}
