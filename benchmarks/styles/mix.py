"""Build a style-shifted benchmark by replacing a share of each question's candidates with rewritten versions.

`styled(nq, informal=0.5, seed=3)` replaces half of the candidates. Number and order of the candidates stay the same, and no
content occurs twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.random import Draws
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Passage, Question, sentence_id, sentence_of
from benchmarks.styles import FORMAL, STYLED
from benchmarks.styles.pairs import ANY, Rewriting, StylePair, StylePairs
from benchmarks.styles.rules import Rewriter, RuleRewriter
from benchmarks.text import has_answer
from benchmarks.text_batch import has_answer_all

# `exact`: of N candidates exactly round(r × N) stay formal (r: the formal share; a half rounds to the even number, as
# `round` does), the others are shared out among the styles, to the nearest whole number. Which ones is drawn from seed
# and question id alone, by one order of the positions: so every method meets the same text, and what is formal at one
# share is formal at every larger one. `coin`: each candidate is drawn by itself, so shares are met on average only.


Draw = Literal["exact", "coin"]
Has = Callable[[int, str], bool]
"""Function that returns whether the candidate at a position has a text in a style."""


def shares_of(mix: Mapping[str, float]) -> dict[str, float]:
    """Validate style shares and fill in the formal style's share.

    Raises:
        UserError: A share is outside [0, 1], or they do not sum to 1 (at most 1 if formal is not listed).
    """
    where = f"mix: {dict(mix)}"
    for style, share in mix.items():
        if not 0 <= share <= 1:
            raise UserError(f"the share of {style} is {share}", code="bad-mixture-share", where=where, try_this="give shares from 0 to 1")
    total = math.fsum(mix.values())
    if total > 1 + 1e-9 or (FORMAL in mix and total < 1 - 1e-9):
        raise UserError(
            f"the shares of the styles sum to {total:g}",
            code="bad-style-shares",
            where=where,
            try_this="give shares that sum to 1; if formal is missing, it gets the rest",
        )
    return {style: share for style, share in mix.items() if style != FORMAL}


def assigned(size: int, shares: Mapping[str, float], seed: int, question_id: str, has: Has, draw: Draw = "exact") -> tuple[list[str], int]:
    """Randomly assign a style to each candidate of a question.

    A candidate without a text in its drawn style swaps its style with another candidate that has one. If no swap is possible,
    it stays formal.

    Args:
        size: Number of candidates.
        shares: Result of `shares_of`.
        seed, question_id: Seeds of the random assignment.
        has: Function that tells whether a candidate has a text in a style.
        draw: `exact` numbers per question, or an independent `coin` flip per candidate.

    Returns:
        The style of each position, and the number of candidates that stayed formal against their draw.
    """
    draws = Draws("style mix", draw, seed, question_id)
    if draw == "coin":
        wished = [_toss(shares, draws) for _ in range(size)]
        results = [style if style == FORMAL or has(position, style) else FORMAL for position, style in enumerate(wished)]
        return results, sum(style == FORMAL for style in results) - wished.count(FORMAL)
    order = list(range(size))
    draws.shuffle(order)
    styles = [FORMAL] * size
    for position, style in zip(order, _in_counts(size, shares), strict=True):
        styles[position] = style
    return _repaired(styles, order, has)


def formal_count(size: int, shares: Mapping[str, float]) -> int:
    """Return how many of `size` candidates stay formal: the formal share times `size`, rounded."""
    # 1 - 0.9 is a little less than 0.1: without the inner rounding, halves would round the wrong way.
    return round(round(1 - math.fsum(shares.values()), 12) * size)


def _in_counts(size: int, shares: Mapping[str, float]) -> list[str]:
    """Return one style per candidate in the wanted numbers, formal ones first."""
    formal = formal_count(size, shares)
    total = math.fsum(shares.values())
    rest = size - formal
    exact = {style: rest * share / total for style, share in shares.items()} if rest else {}
    counts = {style: int(value + 1e-9) for style, value in exact.items()}
    by_rest = sorted(exact, key=lambda style: counts[style] - exact[style])
    for style in by_rest[: rest - sum(counts.values())]:
        counts[style] += 1
    return [FORMAL] * formal + [style for style, number in counts.items() for _ in range(number)]


def _toss(shares: Mapping[str, float], draws: Draws) -> str:
    drawn = draws.random()
    for style, share in shares.items():
        if drawn < share:
            return style
        drawn -= share
    return FORMAL


def _repaired(styles: list[str], order: Sequence[int], has: Has) -> tuple[list[str], int]:
    def fits(position: int, style: str) -> bool:
        return style == FORMAL or has(position, style)

    short = 0
    for position in order:
        wished = styles[position]
        if fits(position, wished):
            continue
        other = next((p for p in order if styles[p] != wished and has(p, wished) and fits(position, styles[p])), None)
        if other is None:
            styles[position] = FORMAL
            short += 1
        else:
            styles[position], styles[other] = styles[other], wished
    return styles, short


EVIDENCE, CANDIDATES = "evidence", "candidates"
"""Values of `among`: whether answer strings are searched in the evidence or in all candidates."""
Restyled = Literal["all", "evidence", "distractors"]
"""Candidates to rewrite; the others stay formal."""


@dataclass(frozen=True, slots=True)
class Survival:
    """Share of a question's answer strings that survived rewriting.

    Attributes:
        kept: Fraction of passages with a gold answer string that still contain one; NaN if none had.
        lost: Whether a drop in scores may be due to lost content instead of style.
    """

    kept: float
    lost: bool


def survival(met: Mapping[str, Any]) -> Survival | None:
    """Compute answer survival from a question's metadata; None if it was not recorded.

    With known evidence, content is lost if no evidence passage has a gold string left. Without known evidence, content is lost
    as soon as one candidate lost the string, because among many candidates some other one nearly always contains it.

    Args:
        met: `Question.metadata["styled"]`.
    """
    if "among" not in met:
        return None
    before, kept = met["with_answer_before"], met["answers_kept"]
    lost = met["survived"] is False if met["among"] == EVIDENCE else kept < before
    return Survival(kept / before if before else math.nan, lost)


VERSION = 1

NOTES = {
    "styled_kept_formal": "{n} candidates stay formal that were drawn for another style: no pair that can be used",
    "styled_unchanged": "{n} candidates read the same in the other style: the rewriter found nothing to change",
    "styled_content_lost": "{n} questions have a gold answer string in their formal evidence and none in the rewritten one",
    "styled_content_thinned": "{n} questions without known evidence have a gold answer string that a candidate lost",
    "styled_without_answer_string": "{n} questions have no gold answer string in their formal evidence to lose",
}
"""Note per count in `Benchmark.extra["counts"]`."""

Source = StylePairs | Rewriter


def styled(
    benchmark: Benchmark,
    source: Source | None = None,
    mix: Mapping[str, float] | None = None,
    *,
    seed: int = 0,
    draw: Draw = "exact",
    restyled: Restyled = "all",
    **shares: float,
) -> Benchmark:
    """Return a benchmark whose candidates are partly rewritten in other styles.

    All references to a replaced passage are updated: candidates, evidence, supporting sentences (if sentences are stored
    separately) and metadata. `Question.metadata["styled"]` has the number of candidates per style. It also counts passages with
    a gold answer string, among the evidence or, if unknown, all candidates (`among`): before rewriting (`with_answer_before`),
    after it (`with_answer`), and both (`answers_kept`). `survived` tells whether any is left (None if there was none); see
    `survival`. The corpus has only passages that the questions refer to, because the same passage may have different styles for
    different questions.

    Args:
        benchmark: Questions with candidates.
        source: Style pairs or a rewriter; None uses the rule-based rewriter of the benchmark's split.
        mix: Share by style (see `shares_of`).
        seed: Random seed.
        draw: `exact` numbers per question, or an independent `coin` flip per candidate.
        restyled: Which candidates are rewritten. Report `evidence` and `distractors` together: a style-biased reranker gains on
            one what it loses on the other.
        shares: The mix by keyword, `styled(nq, informal=0.5)`.

    Returns:
        A benchmark named `styled:SPLIT(base,shares,by,seed)`. `extra["styled"]` has base, mix, seed, draw, rewriter and the
        pairs' hash; `extra["styles"]` has each question's `StylePair`s.

    Raises:
        UserError: The mix is invalid, a style is unknown, questions have no text candidates, or `restyled` requires evidence
            and no question has any among its candidates.
    """
    wanted = shares_of({**(mix or {}), **shares})
    if not wanted and not (mix or shares):
        raise UserError("no style is named", code="no-style-stated", where="mix", try_this="e.g. informal=0.5")
    _check(benchmark)
    if restyled != "all" and not any(set(question.evidence) & set(question.candidates or ()) for question in benchmark.questions):
        raise UserError(
            f"no question of {benchmark.reference} has evidence among its candidates",
            code="no-evidence-among-candidates",
            where=f"restyled: {restyled}",
            try_this="restyled: all",
        )
    pairs, rewriter = _pairs(benchmark, source, wanted)
    work = _Mixing(benchmark, pairs, wanted, seed, draw, restyled)
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
        **({} if restyled == "all" else {"restyled": restyled}),
        "rewriter": rewriter,
        "by": dict(used.by),
        "pairs": used.fingerprint,
    }
    counts = {key: work.counts[key] for key in NOTES if work.counts[key]}
    notes = (
        *benchmark.extra.get("notes", ()),
        f"{_percent(wanted)} of {_of(benchmark, restyled)}, {draw} draw of seed {seed}, rewritten by {rewriter}",
        *(NOTES[key].format(n=number) for key, number in counts.items()),
    )
    extra |= {"counts": {**benchmark.extra.get("counts", {}), **counts}, "notes": notes}
    extra |= {STYLED: made, "styles": work.styles, "variant": _variant(benchmark, wanted, seed, draw, restyled, used.by)}
    reference = DataReference(STYLED, None, benchmark.reference.split)
    card = benchmark.card.model_copy(
        update={
            "title": f"{benchmark.card.title}, {_percent(wanted)}{'' if restyled == 'all' else f' {restyled}'}",
            "settings": ("distractor", "oracle", "gold_only"),
            "subset_settings": {},
        }
    )
    corpus = Corpus.of(work.passages.values())
    return Benchmark(reference, VERSION, card, questions, corpus, benchmark.skipped, extra)


def rewritten(benchmark: Benchmark, rewriter: Rewriter, styles: Iterable[str], *, by_question: bool = False) -> StylePairs:
    """Rewrite every candidate in every style, in memory; `rewrite.rewrite_candidates` does the same into a file.

    Args:
        benchmark: Questions with candidates.
        rewriter: The rewriter.
        styles: The styles.
        by_question: Whether each question gets its own pairs; otherwise questions share a passage's pairs.
    """
    asking: dict[str, list[str]] = {}
    for question in benchmark.questions:
        for candidate in question.candidates or ():
            asking.setdefault(candidate, []).append(question.id)
    passages = _passages_of(benchmark, asking)
    return StylePairs(
        Rewriting(question, formal, style, outcome.passage, outcome.by, outcome.failed)
        for style in styles
        for formal, outcome in zip(passages, rewriter.outcomes(passages, style), strict=True)
        for question in (asking[formal.id] if by_question else (ANY,))
    )


class _Mixing:
    """Replaces candidates question by question, and collects the results."""

    def __init__(
        self, benchmark: Benchmark, pairs: StylePairs, shares: Mapping[str, float], seed: int, draw: Draw, restyled: Restyled
    ) -> None:
        self._benchmark = benchmark
        self._pairs = pairs
        self._shares = shares
        self._seed = seed
        self._draw: Draw = draw
        self._restyled = restyled
        self._formal: dict[str, Passage] = {}
        self.passages: dict[str, Passage] = {}
        self.styles: dict[str, tuple[StylePair, ...]] = {}
        self.rewritings: list[Rewriting] = []
        self.counts: Counter[str] = Counter()

    def formal(self, identifiers: Sequence[str]) -> list[Passage]:
        new = [identifier for identifier in identifiers if identifier not in self._formal]
        self._formal.update(zip(new, _passages_of(self._benchmark, new), strict=True))
        return [self._formal[identifier] for identifier in identifiers]

    def question(self, question: Question) -> Question:
        """Return a question with mixed candidates."""
        formal = self.formal(question.candidates or ())
        rendering = self._usable(question.id, formal)
        chosen = self._chosen(question)
        drawn, short = assigned(
            len(chosen), self._shares, self._seed, question.id, lambda position, style: (chosen[position], style) in rendering, self._draw
        )
        styles = [FORMAL] * len(formal)
        for position, style in zip(chosen, drawn, strict=True):
            styles[position] = style
        now = [
            passage if style == FORMAL else rendering[position, style]
            for position, (passage, style) in enumerate(zip(formal, styles, strict=True))
        ]
        self.counts["styled_kept_formal"] += short
        self.counts["styled_unchanged"] += sum(
            style != FORMAL and new.text == old.text for old, new, style in zip(formal, now, styles, strict=True)
        )
        self.passages.update((passage.id, passage) for passage in now)
        self.styles[question.id] = tuple(
            StylePair(formal[position], style, passage, styles[position] == style) for (position, style), passage in rendering.items()
        )
        self.rewritings += self._of(question.id, formal, rendering)
        value, corpus = set(question.candidates or ()), self._benchmark.corpus
        elsewhere = self.formal([item for item in question.evidence if item not in value and item in corpus])
        self.passages.update((passage.id, passage) for passage in elsewhere)
        moved = _moved(question, formal, now)
        return replace(moved, metadata={**moved.metadata, STYLED: {"counts": dict(Counter(styles))}})

    def _chosen(self, question: Question) -> list[int]:
        """Return the positions of candidates that may be rewritten."""
        evidence = set(question.evidence)
        fits = {"all": (True, False), "evidence": (True,), "distractors": (False,)}[self._restyled]
        return [position for position, candidate in enumerate(question.candidates or ()) if (candidate in evidence) in fits]

    def _usable(self, question: str, formal: Sequence[Passage]) -> dict[tuple[int, str], Passage]:
        """Return a question's rewritten passages by position and style; texts shared by two candidates are excluded."""
        taken = {passage.id for passage in formal}
        results = {}
        for position, passage in enumerate(formal):
            for style in self._shares:
                rendering = self._pairs.get(question, passage.id, style)
                if rendering is not None and (rendering.id == passage.id or rendering.id not in taken):
                    taken.add(rendering.id)
                    results[position, style] = rendering
        return results

    def _of(self, question: str, formal: Sequence[Passage], texts: Mapping[tuple[int, str], Passage]) -> list[Rewriting]:
        return [
            Rewriting(question, formal[position], style, passage, self._pairs.written_by(question, formal[position].id, style))
            for (position, style), passage in texts.items()
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
            f"{benchmark.reference} gives its questions {what}, so there is nothing to rewrite in another style",
            code="nothing-to-restyle",
            try_this="a setting or a layout with candidates, e.g. corpus(retriever=bm25,n=50)",
        )


def _passages_of(benchmark: Benchmark, identifiers: Iterable[str]) -> list[Passage]:
    try:
        return benchmark.corpus.get(identifiers)
    except KeyError as error:
        raise UserError(
            f"the candidate {error} is not in the corpus", code="candidate-not-corpus", where=str(benchmark.reference)
        ) from None


def _moved(question: Question, formal: Sequence[Passage], now: Sequence[Passage]) -> Question:
    """Replace all passage ids of a question by those of the rewritten passages."""
    new = {old.id: passage for old, passage in zip(formal, now, strict=True)}
    ids = {old: passage.id for old, passage in new.items()}
    kept = {old.id for old, other in zip(formal, now, strict=True) if len(old.sentences) == len(other.sentences)}
    facts = []
    for fact in question.supporting_facts:
        passage, index = sentence_of(fact)
        if passage not in ids:
            facts.append(fact)
        elif passage in kept:
            facts.append(sentence_id(ids[passage], index))
        # else: the sentence of the new text that states it is unknown
    metadata = {key: _renamed(value, ids) for key, value in question.metadata.items()}
    if "has_answer" in metadata:
        # A file's facts about its contexts do not apply to the rewritten ones.
        texts_by_id = {passage.id: passage.text for old, passage in zip(formal, now, strict=True) if old.id != passage.id}
        metadata["has_answer"] = tuple(
            item for item in metadata["has_answer"] if item not in texts_by_id or has_answer(texts_by_id[item], question.golds)
        )
    if question.document_id is not None:
        metadata = {**metadata, "document_id": question.document_id}
    return replace(
        question,
        candidates=None if question.candidates is None else tuple(passage.id for passage in now),
        evidence=tuple(ids.get(item, item) for item in question.evidence),
        grades={ids.get(item, item): grade for item, grade in question.grades.items()},
        excluded=tuple(ids.get(item, item) for item in question.excluded),
        supporting_facts=tuple(facts),
        # A passage may have other styles for other questions, so there is no longer one document.
        document_id=None,
        metadata=metadata,
    )


def _renamed(value: Any, ids: Mapping[str, str]) -> Any:
    """Replace passage ids anywhere in a value."""
    if isinstance(value, str):
        return ids.get(value, value)
    if isinstance(value, tuple | list):
        return type(value)(_renamed(item, ids) for item in value)
    if isinstance(value, Mapping):
        return {ids.get(key, key): _renamed(item, ids) for key, item in value.items()}
    return value


def _with_survival(before: Benchmark, after: Sequence[Question], work: _Mixing) -> list[Question]:
    """Record per question how many source passages contain a gold answer string before and after rewriting."""
    rows: list[int] = []
    texts: list[tuple[str, str]] = []
    among: list[str] = []
    for row, (old, new) in enumerate(zip(before.questions, after, strict=True)):
        where, positions = _sources(old)
        among.append(where)
        formal = work.formal([(old.candidates or ())[position] for position in positions])
        present = [work.passages[(new.candidates or ())[position]] for position in positions]
        rows += [row] * len(positions)
        texts += [(item.text, other.text) for item, other in zip(formal, present, strict=True)]
    golds = [before.questions[row].golds for row in rows]
    size, owners = len(after), np.array(rows, dtype=np.int64)
    had = has_answer_all([formal for formal, _ in texts], golds)
    has = had.copy()
    changed = [position for position, (first, second) in enumerate(texts) if first != second]
    has[changed] = has_answer_all([texts[position][1] for position in changed], [golds[position] for position in changed])
    counted = (np.bincount(owners, weights=result, minlength=size).astype(int) for result in (had, has, had & has))
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
    """Return `among` and the positions of passages to search for answers: the evidence, or all if unknown."""
    candidates, evidence = question.candidates or (), set(question.evidence)
    known = [position for position, candidate in enumerate(candidates) if candidate in evidence]
    return (EVIDENCE, known) if known else (CANDIDATES, list(range(len(candidates))))


def _variant(base: Benchmark, shares: Mapping[str, float], seed: int, draw: Draw, restyled: Restyled, by: Iterable[str]) -> str:
    """Return a description that distinguishes mixes: base, shares, draw, rewritten candidates and writers."""
    rendering = [f"{style}={share:.4g}" for style, share in shares.items() if share] or [f"{FORMAL}=1"]
    writers = "+".join(sorted(filter(None, by)))
    drawn = [f"seed={seed}", *([f"draw={draw}"] if draw != "exact" else [])]
    name = str(replace(base.reference, split=None))
    rendering += [f"restyled={restyled}"] if restyled != "all" else []
    return ",".join([name, *rendering, *([f"by={writers}"] if writers else []), *drawn])


def _of(base: Benchmark, restyled: Restyled) -> str:
    return f"{'' if restyled == 'all' else f'the {restyled} of '}{base.reference}"


def _percent(shares: Mapping[str, float]) -> str:
    rendering = ", ".join(f"{share:.4g} {style}" for style, share in shares.items() if share)
    return rendering or "all formal"
