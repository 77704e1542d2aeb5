"""A benchmark over candidates that are partly told in another style.

`styled(nq, informal=0.5, seed=3)` replaces candidates by the same passages told otherwise: none is added, none is
moved, so a question has as many candidates as before, in the same order, and no content twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.corpus import Corpus
from benchmarks.errors import UserError, unknown_name
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import SENTENCE_MARK, Passage, Question
from benchmarks.styles.draw import Draw, assigned, shares_of
from benchmarks.styles.pairs import ANY, Rewriting, StylePair, StylePairs
from benchmarks.styles.rewriter import FORMAL, Rewriter, RuleRewriter
from benchmarks.styles.survival import CANDIDATES, EVIDENCE
from benchmarks.text import has_answer
from benchmarks.text_batch import has_answer_all

STYLED = "styled"
"""Name of these benchmarks; key of `Benchmark.extra` that says how, of `Question.metadata` what a question met."""

VERSION = 1

NOTES = {
    "styled_kept_formal": "{n} candidates stay formal that were to be told otherwise: no pair that can be used",
    "styled_unchanged": "{n} candidates read the same in the other style: the rewriter found nothing to change",
    "styled_content_lost": "{n} questions have a gold answer string in their formal evidence and none in the retold",
    "styled_content_thinned": "{n} questions without known evidence have a gold answer string that a candidate lost",
    "styled_without_answer_string": "{n} questions have no gold answer string in their formal evidence to lose",
}
"""What each count of `Benchmark.extra["counts"]` means."""

Source = StylePairs | Rewriter


def styled(
    benchmark: Benchmark,
    source: Source | None = None,
    mix: Mapping[str, float] | None = None,
    *,
    seed: int = 0,
    draw: Draw = "exact",
    **shares: float,
) -> Benchmark:
    """The same questions over candidates of mixed style.

    What names a passage follows it to its new text: candidates, evidence, supporting sentences (where sentences were
    kept apart) and metadata. `Question.metadata["styled"]` says per question how many candidates have which style, and
    in how many of its sources (`among`: the evidence, or all candidates where no evidence is known) a gold answer
    string stood (`with_answer_before`), stands now (`with_answer`) and did and does (`answers_kept`), and whether any
    is left: `survived`, None where there was none to lose. What that makes of a question is `survival`'s to say. The
    corpus is what the questions name, since a passage is told differently to different questions.

    Args:
        benchmark: Questions with candidates.
        source: Pairs, or what rewrites; None: the rule-based rewriter of the benchmark's split.
        mix: Shares by style, as `draw.shares_of` takes them.
        seed: Of the draw.
        draw: `exact` counts per question, or a `coin` per candidate.
        shares: The mix by keyword, `styled(nq, informal=0.5)`.

    Returns:
        A benchmark named `styled:SPLIT(base,shares,by,seed)`. `extra["styled"]` holds base, mix, seed, draw, what
        rewrote, and the pairs' hash; `extra["styles"]` each question's `StylePair`s.

    Raises:
        UserError: The mix is none, a style is unknown, or questions have no candidates of text.
    """
    wanted = shares_of({**(mix or {}), **shares})
    if not wanted and not (mix or shares):
        raise UserError("no style is named", where="mix", try_this="e.g. informal=0.5")
    _check(benchmark)
    pairs, rewriter = _pairs(benchmark, source, wanted)
    work = _Mixing(benchmark, pairs, wanted, seed, draw)
    questions = [work.question(question) for question in benchmark.questions]
    questions = _with_survival(benchmark, questions, work)
    used = StylePairs(work.rewritings)
    extra = {key: value for key, value in benchmark.extra.items() if key not in ("counts", "notes", "pairs")}
    made = {
        "base": str(benchmark.reference),
        "base_fingerprint": benchmark.fingerprint,
        "mix": wanted,
        "seed": seed,
        "draw": draw,
        "rewriter": rewriter,
        "by": dict(used.by),
        "pairs": used.fingerprint,
    }
    counts = {key: work.counts[key] for key in NOTES if work.counts[key]}
    notes = (
        *benchmark.extra.get("notes", ()),
        f"{_percent(wanted)} of {benchmark.reference}, {draw} draw of seed {seed}, told by {rewriter}",
        *(NOTES[key].format(n=number) for key, number in counts.items()),
    )
    extra |= {"counts": {**benchmark.extra.get("counts", {}), **counts}, "notes": notes}
    extra |= {STYLED: made, "styles": work.styles, "variant": _variant(benchmark, wanted, seed, draw, used.by)}
    reference = DataReference(STYLED, None, benchmark.reference.split)
    card = benchmark.card.model_copy(
        update={
            "title": f"{benchmark.card.title}, {_percent(wanted)}",
            "settings": ("distractor", "oracle", "gold_only"),
            "subset_settings": {},
        }
    )
    corpus = Corpus.of(work.passages.values())
    return Benchmark(reference, VERSION, card, questions, corpus, benchmark.skipped, extra)


def rewritten(benchmark: Benchmark, rewriter: Rewriter, styles: Iterable[str], *, by_question: bool = False) -> StylePairs:
    """Every candidate in every style, in memory; `rewriting.rewrite_candidates` keeps them in a file instead.

    Args:
        benchmark: Questions with candidates.
        rewriter: What rewrites.
        styles: The styles.
        by_question: Whether each question gets pairs of its own, rather than all sharing those of a passage.
    """
    asking: dict[str, list[str]] = {}
    for question in benchmark.questions:
        for candidate in question.candidates or ():
            asking.setdefault(candidate, []).append(question.id)
    passages = _held(benchmark, asking)
    return StylePairs(
        Rewriting(question, formal, style, outcome.passage, outcome.by, outcome.failed)
        for style in styles
        for formal, outcome in zip(passages, rewriter.outcomes(passages, style), strict=True)
        for question in (asking[formal.id] if by_question else (ANY,))
    )


class _Mixing:
    """Replaces candidates question by question, and gathers what that brings."""

    def __init__(self, benchmark: Benchmark, pairs: StylePairs, shares: Mapping[str, float], seed: int, draw: Draw) -> None:
        self._benchmark = benchmark
        self._pairs = pairs
        self._shares = shares
        self._seed = seed
        self._draw: Draw = draw
        self._formal: dict[str, Passage] = {}
        self.passages: dict[str, Passage] = {}
        self.styles: dict[str, tuple[StylePair, ...]] = {}
        self.rewritings: list[Rewriting] = []
        self.counts: Counter[str] = Counter()

    def formal(self, identifiers: Sequence[str]) -> list[Passage]:
        """Passages as first told."""
        new = [one for one in identifiers if one not in self._formal]
        self._formal.update(zip(new, _held(self._benchmark, new), strict=True))
        return [self._formal[one] for one in identifiers]

    def question(self, question: Question) -> Question:
        """A question over its mixed candidates."""
        formal = self.formal(question.candidates or ())
        told = self._usable(question.id, formal)
        styles, short = assigned(
            len(formal), self._shares, self._seed, question.id, lambda place, style: (place, style) in told, self._draw
        )
        now = [
            passage if style == FORMAL else told[place, style] for place, (passage, style) in enumerate(zip(formal, styles, strict=True))
        ]
        self.counts["styled_kept_formal"] += short
        self.counts["styled_unchanged"] += sum(
            style != FORMAL and new.text == old.text for old, new, style in zip(formal, now, styles, strict=True)
        )
        self.passages.update((passage.id, passage) for passage in now)
        self.styles[question.id] = tuple(
            StylePair(formal[place], style, passage, styles[place] == style) for (place, style), passage in told.items()
        )
        self.rewritings += self._of(question.id, formal, told)
        given, corpus = set(question.candidates or ()), self._benchmark.corpus
        elsewhere = self.formal([one for one in question.evidence if one not in given and one in corpus])
        self.passages.update((passage.id, passage) for passage in elsewhere)
        moved = _moved(question, formal, now)
        return replace(moved, metadata={**moved.metadata, STYLED: {"counts": dict(Counter(styles))}})

    def _usable(self, question: str, formal: Sequence[Passage]) -> dict[tuple[int, str], Passage]:
        """The pairs of a question by place and style; a text that two candidates would share is of use to neither."""
        taken = {passage.id for passage in formal}
        found = {}
        for place, passage in enumerate(formal):
            for style in self._shares:
                told = self._pairs.get(question, passage.id, style)
                if told is not None and (told.id == passage.id or told.id not in taken):
                    taken.add(told.id)
                    found[place, style] = told
        return found

    def _of(self, question: str, formal: Sequence[Passage], told: Mapping[tuple[int, str], Passage]) -> list[Rewriting]:
        return [
            Rewriting(question, formal[place], style, passage, self._pairs.written_by(question, formal[place].id, style))
            for (place, style), passage in told.items()
        ]


def _pairs(benchmark: Benchmark, source: Source | None, shares: Mapping[str, float]) -> tuple[StylePairs, str]:
    if source is None:
        split = benchmark.reference.split
        source = RuleRewriter(split if split in ("train", "validation") else "test")
    if not isinstance(source, StylePairs):
        return rewritten(benchmark, source, [style for style in shares if shares[style]]), source.id
    for style, share in shares.items():
        if share and style not in source.styles:
            raise unknown_name("style", style, source.styles, where="mix")
    return source, "pairs"


def _check(benchmark: Benchmark) -> None:
    graphs = bool(benchmark.extra.get("graphs"))
    if graphs or not any(question.candidates for question in benchmark.questions):
        what = "triples, not texts" if graphs else "no list of candidates"
        raise UserError(
            f"{benchmark.reference} gives its questions {what}, so there is nothing to tell in another style",
            try_this="a setting or a layout with candidates, e.g. corpus(retriever=bm25,n=50)",
        )


def _held(benchmark: Benchmark, identifiers: Iterable[str]) -> list[Passage]:
    try:
        return benchmark.corpus.get(identifiers)
    except KeyError as error:
        raise UserError(f"the candidate {error} is not in the corpus", where=str(benchmark.reference)) from None


def _moved(question: Question, formal: Sequence[Passage], now: Sequence[Passage]) -> Question:
    """The question over retold passages: every id that names one of them follows it."""
    new = {old.id: told for old, told in zip(formal, now, strict=True)}
    ids = {old: told.id for old, told in new.items()}
    kept = {old.id for old, told in zip(formal, now, strict=True) if len(old.sentences) == len(told.sentences)}
    facts = []
    for fact in question.supporting_facts:
        passage, _, number = fact.partition(SENTENCE_MARK)
        if passage not in ids:
            facts.append(fact)
        elif passage in kept:
            facts.append(f"{ids[passage]}{SENTENCE_MARK}{number}")
        # else: nobody knows any more which sentence of the new text says it
    metadata = {key: _renamed(value, ids) for key, value in question.metadata.items()}
    if "has_answer" in metadata:
        # What a file says of its own contexts does not hold for what they became.
        told = {passage.id: passage.text for old, passage in zip(formal, now, strict=True) if old.id != passage.id}
        metadata["has_answer"] = tuple(one for one in metadata["has_answer"] if one not in told or has_answer(told[one], question.golds))
    if question.document_id is not None:
        metadata = {**metadata, "document_id": question.document_id}
    return replace(
        question,
        candidates=None if question.candidates is None else tuple(passage.id for passage in now),
        evidence=tuple(ids.get(one, one) for one in question.evidence),
        supporting_facts=tuple(facts),
        # A passage is told differently to different questions, so there is no longer one document.
        document_id=None,
        metadata=metadata,
    )


def _renamed(value: Any, ids: Mapping[str, str]) -> Any:
    """A value in which passage ids, wherever they stand, are the new ones."""
    if isinstance(value, str):
        return ids.get(value, value)
    if isinstance(value, tuple | list):
        return type(value)(_renamed(item, ids) for item in value)
    if isinstance(value, Mapping):
        return {ids.get(key, key): _renamed(item, ids) for key, item in value.items()}
    return value


def _with_survival(before: Benchmark, after: Sequence[Question], work: _Mixing) -> list[Question]:
    """Record per question in how many of its sources a gold answer string stands, before and after."""
    rows: list[int] = []
    texts: list[tuple[str, str]] = []
    among: list[str] = []
    for row, (old, new) in enumerate(zip(before.questions, after, strict=True)):
        where, places = _sources(old)
        among.append(where)
        formal = work.formal([(old.candidates or ())[place] for place in places])
        told = [work.passages[(new.candidates or ())[place]] for place in places]
        rows += [row] * len(places)
        texts += [(one.text, other.text) for one, other in zip(formal, told, strict=True)]
    golds = [before.questions[row].golds for row in rows]
    size, owners = len(after), np.array(rows, dtype=np.int64)
    had = has_answer_all([formal for formal, _ in texts], golds)
    has = had.copy()
    changed = [place for place, (formal, told) in enumerate(texts) if formal != told]
    has[changed] = has_answer_all([texts[place][1] for place in changed], [golds[place] for place in changed])
    counted = (np.bincount(owners, weights=found, minlength=size).astype(int) for found in (had, has, had & has))
    recorded = []
    for question, where, first, then, kept in zip(after, among, *(per.tolist() for per in counted), strict=True):
        alive = None if first == 0 else then > 0
        work.counts["styled_content_lost"] += alive is False
        work.counts["styled_content_thinned"] += where == CANDIDATES and kept < first
        work.counts["styled_without_answer_string"] += alive is None
        met = {
            **question.metadata[STYLED],
            "among": where,
            "with_answer_before": first,
            "with_answer": then,
            "answers_kept": kept,
            "survived": alive,
        }
        recorded.append(replace(question, metadata={**question.metadata, STYLED: met}))
    return recorded


def _sources(question: Question) -> tuple[str, list[int]]:
    """Places of the candidates that an answer is to be read from: the evidence, or all where none is known."""
    candidates, evidence = question.candidates or (), set(question.evidence)
    known = [place for place, candidate in enumerate(candidates) if candidate in evidence]
    return (EVIDENCE, known) if known else (CANDIDATES, list(range(len(candidates))))


def _variant(base: Benchmark, shares: Mapping[str, float], seed: int, draw: Draw, by: Iterable[str]) -> str:
    """What tells runs over one mix from those over another: base, shares, draw, and who wrote the texts."""
    told = [f"{style}={share:.4g}" for style, share in shares.items() if share] or [f"{FORMAL}=1"]
    writers = "+".join(sorted(filter(None, by)))
    drawn = [f"seed={seed}", *([f"draw={draw}"] if draw != "exact" else [])]
    name = str(replace(base.reference, split=None))
    return ",".join([name, *told, *([f"by={writers}"] if writers else []), *drawn])


def _percent(shares: Mapping[str, float]) -> str:
    told = ", ".join(f"{share:.4g} {style}" for style, share in shares.items() if share)
    return told or "all formal"
