"""`datasets list`, `show`, `fetch`, `corpus`, `stats`, `sample`: what there is, and what it consists of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from benchmarks import sources
from benchmarks.core.errors import UserError, counted, nearest, unknown_name
from benchmarks.core.random import Draws
from benchmarks.corpus import CARD, read_card
from benchmarks.corpus_build import LAYOUTS, build_corpus
from benchmarks.corpus_build import Progress as Built
from benchmarks.io import hub
from benchmarks.io.files import archive_of
from benchmarks.registry import DATASETS, Benchmark, DatasetCard, DatasetEntry, load
from benchmarks.schema import SENTENCE_MARK, Passage, Question
from benchmarks.sources import ABSENT, Whereabouts
from benchmarks.verify import QUANTILES, Distribution, Statistics, statistics
from ragmeter import console
from ragmeter.cli.commands.list import option_rows, options_given, print_card
from ragmeter.console import emit, err, listing, out

# -- `datasets stats` and `datasets sample`: what a dataset consists of, in numbers and by example --


TERMINAL = "terminal"
SHOWN_TEXT = 240
SHOWN_PASSAGES = 10
_MOST_TYPES = 20


# --- stats ---------------------------------------------------------------------------------------------------


def stats(reference: str, config: str | None, path: Path | None, plot: str | None, as_json: bool, quiet: bool) -> None:
    """Count and measure a dataset, and draw it."""
    file = None if plot in (None, TERMINAL) else Path(plot)
    if file is not None:
        console.check(file)
    if quiet or as_json:
        hub.be_quiet()
    benchmark = load(reference, options_given(config, path))
    found = statistics(benchmark)
    pictures = _pictures(found)
    if file is not None:
        console.save(pictures, str(benchmark.reference), file)

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
            console.draw(pictures, out)
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


# -- `datasets list`, `show`, `fetch`, `corpus`: what there is, where it is, how it gets here --


_SUBSETS_SHOWN = 4
_VERBS = ("list", "show", "fetch", "verify", "stats", "sample", "corpus", "contamination")


def list_all(as_json: bool) -> None:
    """List datasets."""
    found = {entry.id: _places(entry) for entry in DATASETS}
    emit(
        [_card_json(entry, found[entry.id]) for entry in DATASETS],
        as_json,
        lambda: listing(
            ("dataset", "", "splits", "licence", "hub id; here"),
            [
                (
                    entry.id,
                    "\n".join([entry.card.task, *_few(entry.subsets)]),
                    "\n".join(_sizes(entry)),
                    entry.card.licence,
                    f"{entry.card.hub_id or '–'}\n{_here(found[entry.id])}",
                )
                for entry in DATASETS
            ],
            empty="none",
        ),
    )


def show(name: str, as_json: bool) -> None:
    """Show one dataset."""
    if name not in DATASETS:
        raise _unknown(name)
    entry = DATASETS.get(name)
    places = _places(entry)

    def print_all() -> None:
        print_card(entry.id, entry.card.description, _facts(entry), entry.config)
        out.print()
        rows = [(str(place.reference), _number(_size(entry.card, place)), place.state, _where(place)) for place in places]
        listing(("split", "questions", "now", "read from"), rows, empty="")

    emit(_card_json(entry, places) | {"options": option_rows(entry.config)}, as_json, print_all)


def _unknown(name: str) -> UserError:
    """The error for a name that no dataset has; a command of the group may have been meant by it."""
    known = [entry.id for entry in DATASETS]
    if nearest(name, [*known, *_VERBS]) in _VERBS:
        return unknown_name("dataset or command", name, _VERBS)
    return unknown_name("dataset", name, known)


def _places(entry: DatasetEntry) -> list[Whereabouts]:
    return [sources.whereabouts(reference) for reference in sources.splits(entry)]


def _card_json(entry: DatasetEntry, places: Sequence[Whereabouts]) -> dict[str, Any]:
    return {
        "id": entry.id,
        "version": entry.version,
        "subsets": entry.subsets,
        **entry.card.model_dump(mode="json"),
        "here": [
            {
                "reference": str(place.reference),
                "questions": _size(entry.card, place),
                "state": place.state,
                "paths": list(map(str, place.paths)),
                "hub": place.repository,
                "said": None if place.said is None or place.state == ABSENT else place.said.what,
            }
            for place in places
        ],
    }


def _size(card: DatasetCard, place: Whereabouts) -> int | None:
    return card.splits_of(place.reference.subset)[place.reference.split or ""]


def _number(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _sizes(entry: DatasetEntry) -> list[str]:
    """The splits of the default subset."""
    splits = entry.card.splits_of(entry.subsets[0] if entry.subsets else None)
    return [f"{name} {_number(size)}" for name, size in splits.items()]


def _few(names: Sequence[str]) -> list[str]:
    if len(names) > _SUBSETS_SHOWN:
        return [f"{len(names)} subsets: {', '.join(names[:_SUBSETS_SHOWN])} …"]
    return [f"subsets: {', '.join(names)}"] if names else []


def _here(places: Sequence[Whereabouts]) -> str:
    """`local 2, absent 5`; one word where all splits are alike."""
    states = Counter(place.state for place in places)
    if len(states) == 1:
        return next(iter(states))
    return ", ".join(f"{state} {count}" for state, count in states.items())


def _where(place: Whereabouts) -> str:
    if place.paths:
        return ", ".join(map(str, place.paths))
    if place.state == ABSENT:
        return f"the hub ({place.repository}), when it is loaded" if place.repository else "–"
    return place.said.what if place.said is not None else "–"


def _facts(entry: DatasetEntry) -> dict[str, str]:
    card = entry.card
    return {
        "title": card.title,
        "task": card.task,
        "subsets": ", ".join(entry.subsets) or "–",
        "splits": ", ".join(_sizes(entry)),
        "metrics": ", ".join(card.metrics),
        "settings": ", ".join(card.settings),
        **{f"settings of {name}": ", ".join(of_it) for name, of_it in card.subset_settings.items()},
        "hub": card.hub_id or "–",
        "revision": card.revision or "not pinned" if card.hub_id else "–",
        "licence": card.licence,
        "citation": card.citation,
        "notes": card.notes or "–",
    }


# --- fetch ---------------------------------------------------------------------------------------------------


def fetch(references: Sequence[str], revision: str | None, as_json: bool, quiet: bool) -> None:
    """Fetch splits, each whole or not at all."""
    if quiet or as_json:
        hub.be_quiet()
    wanted = [part for reference in references for part in sources.parts(reference)]
    fetched = [(part, sources.fetch(part, revision)) for part in wanted]

    def print_all() -> None:
        for part, one in fetched:
            out.print(Text(str(part), style="bold") + Text(f"  {one.repository} at {one.revision}"))
            for file in _files(one):
                # As sha256sum writes it, in one piece whatever the width.
                line = Text(f"{file['sha256']}  {file['name']}") + Text(f"  {file['bytes']:,} bytes", style="dim")
                out.print(line, soft_wrap=True)
            if not _pinned(one):
                note = f"not pinned: this is what {one.pinned or hub.MAIN} was; --revision {one.revision} is this again"
                err.print(Text(note, style="yellow"), soft_wrap=True)

    emit(
        [
            {"reference": str(part), "repository": one.repository, "revision": one.revision, "pinned": _pinned(one), "files": _files(one)}
            for part, one in fetched
        ],
        as_json,
        print_all,
    )


def _pinned(fetched: hub.Fetched) -> bool:
    """Whether a commit was asked for, which is the same for ever."""
    return fetched.pinned == fetched.revision


def _files(fetched: hub.Fetched) -> list[dict[str, Any]]:
    places: dict[str, Path] = {}
    for path in fetched.paths:
        archive = archive_of(path)
        file = path if archive is None else archive[0]
        name = next(name for name in fetched.files if file.as_posix().endswith(f"/{fetched.revision}/{name}"))
        places[name] = file
    return [
        {"name": name, "bytes": places[name].stat().st_size, "sha256": sha256, "path": str(places[name])}
        for name, sha256 in fetched.files.items()
    ]


# --- corpus --------------------------------------------------------------------------------------------------


def corpus(source: Path, target: Path, layout: str | None, skip_bad: bool, as_json: bool, quiet: bool) -> None:
    """Build a corpus folder, or go on with one."""
    if layout is not None and layout not in LAYOUTS:
        raise unknown_name("layout of a dump", layout, LAYOUTS, where="--layout")
    with _display(quiet or as_json) as live:
        task = live.add_task(source.name, total=None, said="")

        def told(built: Built) -> None:
            said = f"{counted(built.records, 'record')}, {counted(built.passages, 'passage')}"
            live.update(task, total=None if built.share is None else 1.0, completed=built.share or 0, said=said)

        there = (target / CARD).exists()
        built = build_corpus(source, target, layout=layout, skip_bad=skip_bad, progress=told)
    card = read_card(target)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())

    def print_all() -> None:
        state = "was there already" if there else "built"
        out.print(Text(f"{counted(len(built), 'passage')}, {size / 2**20:,.1f} MiB in {target} ({state})"))
        facts = {name: value for name, value in card.items() if isinstance(value, str | int) and name != "format"}
        listing(("", ""), facts.items(), empty="")
        for bad in card.get("bad_listed", ()):
            out.print(Text(f"left out: {bad}", style="yellow"))

    emit({"folder": str(target), "bytes": size, "was_there": there, **card}, as_json, print_all)


def _display(quiet: bool) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
        console=err,
        disable=quiet,
        transient=True,
    )
