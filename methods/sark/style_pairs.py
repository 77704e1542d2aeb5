"""Style pairs for training: every labeled or listed passage in two styles.

Labels and lists are always computed on formal text; data with mixed styles is first converted back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import file_sha256, fingerprint
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question, sentence_id, sentence_of
from benchmarks.styles.pairs import Rewriting, StylePair, StylePairs, load_pairs
from benchmarks.styles.rewrite import rewrite_candidates
from benchmarks.styles.rules import Rewriter, RuleRewriter
from methods.api import Services
from methods.models.rewriter import LLMRewriter, RewriterConfig
from methods.sark.config import StylesConfig
from methods.sark.rows import Mined, Pairs
from methods.training import Progress, Silent


def formal_of(benchmark: Benchmark) -> tuple[Benchmark, StylePairs | None]:
    """Return a benchmark with all candidates in formal style, and the style pairs that it contains; a benchmark without styles
    is returned unchanged.
    """
    styles: Mapping[str, Sequence[StylePair]] = benchmark.extra.get("styles") or {}
    if not styles:
        pairs: Iterable[Rewriting] = benchmark.extra.get("pairs") or ()
        own = StylePairs(pairs)
        return benchmark, own if len(own) else None
    questions, passages = [], dict[str, Passage]()
    rewritings = []
    for question in benchmark.questions:
        results = styles.get(question.id, ())
        first = {pair.styled.id: pair.formal for pair in results if pair.used}
        back = _formal(question, {styled: formal.id for styled, formal in first.items()})
        formal = {pair.formal.id: pair.formal for pair in results}
        ids = dict.fromkeys((*(back.candidates or ()), *back.evidence))
        others = [identifier for identifier in ids if identifier not in formal and identifier in benchmark.corpus]
        passages |= {**formal, **{item.id: item for item in benchmark.corpus.get(others)}}
        questions.append(back)
        rewritings += [Rewriting(question.id, pair.formal, pair.style, pair.styled, "own") for pair in results]
    return replace(benchmark, questions=questions, corpus=Corpus.of(passages.values())), StylePairs(rewritings)


def _formal(question: Question, ids: Mapping[str, str]) -> Question:
    """Replace all passage ids of a question by those of the formal passages."""

    def fact(item: str) -> str:
        passage, index = sentence_of(item)
        return sentence_id(ids.get(passage, passage), index)

    return replace(
        question,
        candidates=None if question.candidates is None else tuple(ids.get(candidate, candidate) for candidate in question.candidates),
        evidence=tuple(ids.get(item, item) for item in question.evidence),
        supporting_facts=tuple(map(fact, question.supporting_facts)),
    )


def pairs_of(
    benchmark: Benchmark,
    mined: Sequence[Mined],
    config: StylesConfig,
    services: Services,
    folder: Path,
    source: StylePairs | None = None,
    progress: Progress | None = None,
    counts: Counter[str] | None = None,
) -> Pairs:
    """Return both styles of every needed passage; passages that cannot be rewritten are omitted.

    Args:
        benchmark: Benchmark with formal passages.
        mined: Labels and lists, which name the passages.
        config: Options of rewriting.
        services: Services; the reply cache is used.
        folder: Folder for pairs.
        source: Existing pairs; None rewrites the passages.
        progress: Progress display.
        counts: Counter of passages without a pair, and of those equal in both styles.

    Raises:
        Broke: The rewriting model cannot be called.
    """
    needed = {item.question_id: item.needed for item in mined if item.needed}
    ids = dict.fromkeys(passage for some in needed.values() for passage in some)
    formal = {passage.id: passage for passage in benchmark.corpus.get(ids)}
    if source is None:
        rewriter = rewriter_of(config, services)
        source = _write_pairs(benchmark, needed, formal, rewriter, config.style, folder, progress or Silent())
    counted = Counter[str]() if counts is None else counts
    results: dict[tuple[str, str], tuple[Passage, Passage]] = {}
    for question, passages in needed.items():
        for passage in passages:
            styled = source.get(question, passage, config.style)
            if styled is None or not styled.text.strip():
                counted["passages_without_rewrite"] += 1
                continue
            counted["passages_unchanged"] += styled.text == formal[passage].text
            results[question, passage] = (formal[passage], styled)
    return results


def rewriter_of(config: StylesConfig, services: Services) -> Rewriter:
    """Build the rewriter that the options select: a language model, or the training rules."""
    if config.active_llm is not None:
        return LLMRewriter(RewriterConfig(llm=config.active_llm, **config.rewriting.model_dump()), services=services)
    return RuleRewriter("train")


def pairs_of_options(benchmark: Benchmark, config: StylesConfig, own: StylePairs | None) -> StylePairs | None:
    """Return existing style pairs that the options select; None if they have to be generated.

    Args:
        benchmark: Benchmark with formal passages.
        config: Options of rewriting.
        own: Pairs contained in the data.

    Raises:
        UserError: The file is invalid, or the data has no pairs in this style.
    """
    if config.by == "file":
        pairs = load_pairs(config.file or "")
    elif config.by == "own":
        if own is None:
            raise UserError(
                f"{benchmark.reference} has no passages in two styles",
                code="no-passages-in-two-styles",
                where="styles.by",
                try_this="styles: {by: rules}, {by: llm} or {by: file}; or worlds/style",
            )
        pairs = own
    else:
        return None
    if config.style not in pairs.styles:
        styled = ", ".join(pairs.styles) or "no other style"
        raise UserError(
            f"no passage is in the style {config.style!r}, but in {styled}",
            code="no-passage-in-style",
            where="styles.style",
            try_this="use one of those, or other pairs",
        )
    return pairs


def _write_pairs(
    benchmark: Benchmark,
    needed: Mapping[str, Sequence[str]],
    formal: Mapping[str, Passage],
    rewriter: Rewriter,
    style: str,
    folder: Path,
    progress: Progress,
) -> StylePairs:
    """Rewrite passages into a pairs file, resuming an interrupted one, and return the pairs."""
    if not needed:
        return StylePairs(())
    questions = [replace(question, candidates=tuple(needed[question.id])) for question in benchmark.questions if question.id in needed]
    query = replace(benchmark, questions=questions, corpus=Corpus.of(formal.values()), extra={})
    path = folder / f"pairs-{fingerprint(rewriter.id, style, query.fingerprint)}.jsonl"
    progress.begin(f"passages rewritten in the style {style}", len(formal))
    done = 0

    def advance(finished: int, total: int) -> None:
        nonlocal done
        progress.advance(finished - done)
        done = finished

    # Cached replies make it free to ask again for what failed; what no reply came for gets another chance.
    rewrite_candidates(query, rewriter, [style], path, retry_failed=True, progress=advance)
    return load_pairs(path)


def identity_of(config: StylesConfig, services: Services) -> str:
    """Return a hash of everything that determines the pairs, besides the data."""
    if config.by == "file":
        return file_sha256(Path(config.file or "").expanduser())
    return config.by if config.by == "own" else rewriter_of(config, services).id
