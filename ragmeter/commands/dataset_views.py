"""`datasets stats` and `datasets sample`: what a dataset consists of, in numbers and by example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text

from benchmarks import hub
from benchmarks.draws import Draws
from benchmarks.plurals import counted
from benchmarks.registry import Benchmark, load
from benchmarks.schema import SENTENCE_MARK, Passage, Question
from benchmarks.stats import QUANTILES, Distribution, Statistics, statistics
from ragmeter import histograms
from ragmeter.commands.checking import options_given
from ragmeter.console import emit, listing, out

TERMINAL = "terminal"
SHOWN_TEXT = 240
SHOWN_PASSAGES = 10
_MOST_TYPES = 20


# --- stats ---------------------------------------------------------------------------------------------------


def stats(reference: str, config: str | None, path: Path | None, plot: str | None, as_json: bool, quiet: bool) -> None:
    """Count and measure a dataset, and draw it."""
    file = None if plot in (None, TERMINAL) else Path(plot)
    if file is not None:
        histograms.check(file)
    if quiet or as_json:
        hub.be_quiet()
    benchmark = load(reference, options_given(config, path))
    found = statistics(benchmark)
    pictures = _pictures(found)
    if file is not None:
        histograms.save(pictures, str(benchmark.reference), file)

    def print_all() -> None:
        out.print(Text(str(benchmark.reference), style="bold") + Text(f"  fingerprint {benchmark.fingerprint}"))
        listing(("", ""), [(name, f"{number:,}") for name, number in found.counts.items() if number], empty="")
        if set(found.types) != {"(none)"}:
            listing(("type", "questions"), [(k, f"{n:,}") for k, n in list(found.types.items())[:_MOST_TYPES]], empty="")
        heads = ("", "n", "mean", *(_quantile(share) for share in QUANTILES))
        for title, distributions in (("words", found.words), ("characters", found.characters), ("per question", found.each)):
            out.print()
            listing((title, *heads[1:]), [_line(*item) for item in distributions.items()], empty="")
        if plot == TERMINAL:
            out.print()
            histograms.draw(pictures, out)
        if file is not None:
            out.print(Text(f"drawn in {file}"))

    emit(_stats_json(benchmark, found) | {"plot": None if file is None else str(file)}, as_json, print_all)


def _pictures(found: Statistics) -> dict[str, Distribution]:
    return {
        **{f"words of {name}": distribution for name, distribution in found.words.items()},
        **{f"{name} per question": distribution for name, distribution in found.each.items()},
    }


def _quantile(share: float) -> str:
    return {0.0: "least", 0.5: "median", 1.0: "most"}.get(share, f"{share:.0%}")


def _line(name: str, distribution: Distribution) -> list[str]:
    mean = f"{distribution.mean:,.1f}"
    return [name, f"{len(distribution.values):,}", mean, *(f"{value:,}" for value in distribution.quantiles)]


def _stats_json(benchmark: Benchmark, found: Statistics) -> dict[str, Any]:
    def measured(distributions: Mapping[str, Distribution]) -> dict[str, Any]:
        return {
            name: {
                "n": len(one.values),
                "mean": one.mean,
                "quantiles": {f"{share:g}": value for share, value in zip(QUANTILES, one.quantiles, strict=True)},
                "histogram": one.histogram(),
            }
            for name, one in distributions.items()
        }

    return {
        "reference": str(benchmark.reference),
        "fingerprint": benchmark.fingerprint,
        "counts": found.counts,
        "types": found.types,
        "words": measured(found.words),
        "characters": measured(found.characters),
        "per_question": measured(found.each),
    }


# --- sample --------------------------------------------------------------------------------------------------


def sample(reference: str, config: str | None, path: Path | None, count: int, seed: int, as_json: bool, quiet: bool) -> None:
    """Print some records."""
    if quiet or as_json:
        hub.be_quiet()
    benchmark = load(reference, options_given(config, path))
    chosen = Draws("sample", seed).sample(range(len(benchmark.questions)), count)
    questions = [benchmark.questions[place] for place in sorted(chosen)]

    def print_all() -> None:
        for question in questions:
            _print(question, benchmark)
        out.print(Text(f"{len(questions):,} of {len(benchmark.questions):,} of {benchmark.reference}", style="dim"))

    emit([_record_json(question, benchmark) for question in questions], as_json, print_all)


def _print(question: Question, benchmark: Benchmark) -> None:
    out.print(Text(f"{question.id}  ", style="dim") + Text(question.text, style="bold"))
    joiner = " and " if question.answer_set else " | "
    facts = {
        "answer": joiner.join(_worded(question)) or "(none)",
        "type": question.type,
        "answerable": "" if question.answerable else "no",
        "document": question.document_id or "",
        "topics": ", ".join(question.topic_entities),
        "triples": "; ".join(" → ".join(triple) for triple in question.triples),
    }
    for name, value in facts.items():
        if value:
            out.print(Text(f"  {name}: ", style="green" if name in ("answer", "triples") else "") + Text(value))
    for passage, gold in _passages(question, benchmark):
        mark = Text("  gold ", style="green") if gold else Text("       ")
        out.print(mark + Text(f"{passage.title}: " if passage.title else "", style="bold") + _told(passage, question))
    left = len(question.candidates or ()) - SHOWN_PASSAGES
    if left > 0:
        out.print(Text(f"       … {counted(left, 'more candidate')}", style="dim"))
    absent = sum(identifier not in benchmark.corpus for identifier in question.evidence)
    if absent:
        out.print(Text(f"       not in the corpus: {counted(absent, 'positive')}", style="yellow"))
    out.print()


def _worded(question: Question) -> Iterator[str]:
    for answer in question.answers:
        others = [alias for alias in question.aliases.get(answer, ()) if alias != answer]
        yield answer + (f" (also: {', '.join(others)})" if others else "")


def _passages(question: Question, benchmark: Benchmark) -> Iterator[tuple[Passage, bool]]:
    """The first candidates, or the positives where there are none; and all positives, wherever they stand."""
    gold = set(question.evidence)
    first = list(question.candidates or ())[:SHOWN_PASSAGES]
    shown = dict.fromkeys([*first, *(identifier for identifier in question.evidence if identifier not in first)])
    for identifier in shown:
        if identifier in benchmark.corpus:
            yield benchmark.corpus.get([identifier])[0], identifier in gold


def _told(passage: Passage, question: Question) -> Text:
    """A passage's text, shortened; its supporting sentences whole and marked."""
    supporting = {
        int(number)
        for identifier, mark, number in (fact.partition(SENTENCE_MARK) for fact in question.supporting_facts)
        if identifier == passage.id and mark
    }
    if not supporting:
        return Text(_short(passage.text))
    text = Text()
    for number, sentence in enumerate(passage.sentences):
        if number in supporting:
            text += Text(" ".join(sentence.split()) + " ", style="underline")
        elif not text or not text.plain.endswith("… "):
            text += Text("… ")
    return text


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_TEXT else text[:SHOWN_TEXT] + "…"


def _record_json(question: Question, benchmark: Benchmark) -> dict[str, Any]:
    wanted = dict.fromkeys([*(question.candidates or ())[:SHOWN_PASSAGES], *question.evidence])
    gold = set(question.evidence)
    passages = [
        asdict(passage) | {"gold": passage.id in gold}
        for passage in benchmark.corpus.get(identifier for identifier in wanted if identifier in benchmark.corpus)
    ]
    return {
        "id": question.id,
        "question": question.text,
        "answers": list(question.answers),
        "aliases": {answer: list(others) for answer, others in question.aliases.items()},
        "answer_set": question.answer_set,
        "type": question.type,
        "answerable": question.answerable,
        "document_id": question.document_id,
        "topic_entities": list(question.topic_entities),
        "evidence": list(question.evidence),
        "supporting_facts": list(question.supporting_facts),
        "triples": [list(triple) for triple in question.triples],
        "candidates": None if question.candidates is None else list(question.candidates),
        "metadata": dict(question.metadata),
        "passages": passages,
    }
