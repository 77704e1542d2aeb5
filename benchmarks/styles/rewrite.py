"""Rewrite all candidates of a benchmark into a pairs file; an interrupted rewriting resumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.core.files import Lines, mend
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage
from benchmarks.styles.pairs import Key, Rewriting, header, line, read_header, read_pairs
from benchmarks.styles.rules import Outcome, Rewriter


@dataclass
class Summary:
    """Counts of a rewriting.

    Attributes:
        pairs: Number of usable pairs in the file.
        given_up: Number of permanently failed pairs in the file.
        requested: Number of passages rewritten by this call.
        tries: Failed attempts by reason, including those of passages that succeeded later.
    """

    pairs: int = 0
    given_up: int = 0
    requested: int = 0
    tries: Counter[str] = field(default_factory=Counter)

    def add(self, item: Rewriting) -> None:
        """Count a line of the pairs file."""
        self.pairs += item.styled is not None
        self.given_up += item.styled is None


@dataclass(frozen=True, slots=True)
class Pending:
    """Passages that still have to be rewritten.

    Attributes:
        passages: Passages by style.
        total: Number of (passage, style) combinations, including finished ones.
    """

    passages: Mapping[str, Sequence[Passage]]
    total: int

    @property
    def count(self) -> int:
        """Return the number of pending (passage, style) combinations."""
        return sum(map(len, self.passages.values()))


@dataclass(frozen=True, slots=True)
class _RewritingJob:
    passage: Passage
    style: str
    questions: tuple[str, ...]


def pending(benchmark: Benchmark, rewriter: Rewriter, styles: Sequence[str], path: Path, *, retry_failed: bool = False) -> Pending:
    """Return the passages that `rewrite_candidates` would rewrite, without rewriting or creating a file.

    Raises:
        UserError: As in `rewrite_candidates`.
    """
    there = path.exists()
    done = _done(path, _header(benchmark, rewriter), Summary(), retry_failed) if there else set()
    jobs = _jobs(benchmark, styles, done)
    written = _written_in_part(path, jobs, done)
    lacking = [job for job in jobs if job.questions and (job.passage.id, job.style) not in written]
    return Pending({style: [job.passage for job in lacking if job.style == style] for style in dict.fromkeys(styles)}, len(jobs))


def rewrite_candidates(
    benchmark: Benchmark,
    rewriter: Rewriter,
    styles: Sequence[str],
    path: Path,
    *,
    retry_failed: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """Rewrite every candidate of every question in every style, and append the pairs to a file.

    A passage that is a candidate of several questions is rewritten once; each question gets its own line. Lines are written in
    the order of the questions, as soon as all earlier passages are rewritten. On resuming, an incomplete last line is dropped.
    If equal requests get equal replies, an interrupted and resumed rewriting produces the same file.

    Args:
        benchmark: Questions with candidates, as a setting or the dataset gives them.
        rewriter: The rewriter.
        styles: The styles.
        path: The pairs file; if it exists, the rewriting resumes.
        retry_failed: Whether to retry permanently failed passages.
        progress: Called after each passage with the number of finished passages and the total.

    Raises:
        UserError: No question has candidates, or the file was made by another rewriter or from another benchmark.
    """
    summary = Summary()
    done = _open(path, _header(benchmark, rewriter), summary, retry_failed)
    jobs = _jobs(benchmark, styles, done)
    written = _written_in_part(path, jobs, done)
    waiting = [job for job in jobs if job.questions]
    finished = len(jobs) - len(waiting)
    with Lines(path, "the file of pairs") as file:
        for style in dict.fromkeys(styles):
            of_style = [job for job in waiting if job.style == style]
            new = [job.passage for job in of_style if (job.passage.id, style) not in written]
            made = iter(rewriter.outcomes(new, style) if new else ())
            for job in of_style:
                outcome = written.get((job.passage.id, style))
                if outcome is None:
                    outcome = next(made)
                    summary.requested += 1
                    summary.tries.update(reason.partition(":")[0] for reason in outcome.failed)
                items = [Rewriting(q, job.passage, style, outcome.passage, outcome.by, outcome.failed) for q in job.questions]
                for item in items:
                    summary.add(item)
                file.add("".join(line(item.to_json()) for item in items))
                finished += 1
                if progress is not None:
                    progress(finished, len(jobs))
    return summary


def tally(path: Path) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Summarize a pairs file by passage; a passage that several questions share counts once.

    Returns:
        A row per style with the numbers of passages that succeeded at once, succeeded after retries, or failed; and the number
        of failed attempts by reason, most frequent first.
    """
    latest = {pair.key[1:]: pair for pair in read_pairs(path)}
    styles: dict[str, Counter[str]] = {}
    reasons: Counter[str] = Counter()
    for item in latest.values():
        kind = "given_up" if item.styled is None else "after_more_tries" if item.failed else "at_first_try"
        styles.setdefault(item.style, Counter())[kind] += 1
        reasons.update(reason.partition(":")[0] for reason in item.failed)
    kinds = ("at_first_try", "after_more_tries", "given_up")
    return [{"style": style, **{kind: met[kind] for kind in kinds}} for style, met in styles.items()], dict(reasons.most_common())


def _header(benchmark: Benchmark, rewriter: Rewriter) -> dict[str, object]:
    return header(rewriter.id, f"{benchmark.reference} {benchmark.fingerprint}")


def _jobs(benchmark: Benchmark, styles: Sequence[str], done: set[Key]) -> list[_RewritingJob]:
    """Return all (passage, style) combinations with the questions that lack them, in the order of the questions."""
    asking: dict[str, list[str]] = {}
    for question in benchmark.questions:
        for candidate in dict.fromkeys(question.candidates or ()):
            asking.setdefault(candidate, []).append(question.id)
    if not asking:
        raise UserError(
            f"{benchmark.reference} has no candidates to rewrite",
            code="no-candidates-to-rewrite",
            try_this="a setting that gives candidates, e.g. corpus(retriever=bm25,n=50)",
        )
    passages = benchmark.corpus.get(asking)
    return [
        _RewritingJob(passage, style, tuple(q for q in asking[passage.id] if (q, passage.id, style) not in done))
        for style in dict.fromkeys(styles)
        for passage in passages
    ]


def _open(path: Path, wanted: dict[str, object], summary: Summary, retry_failed: bool) -> set[Key]:
    """Start a pairs file, or return the keys of its finished pairs."""
    if path.exists():
        return _done(path, wanted, summary, retry_failed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line(wanted), "utf-8")
    return set()


def _done(path: Path, wanted: dict[str, object], summary: Summary, retry_failed: bool) -> set[Key]:
    """Return the keys of a file's finished pairs, after checking that it belongs to this rewriter and benchmark."""
    mend(path)
    if not path.stat().st_size:
        raise UserError(
            "this is not a file of style pairs: it has no complete line",
            code="not-style-pairs",
            where=str(path),
            try_this="remove the file",
        )
    result = read_header(path)
    for name in ("rewriter", "made from"):
        if result.get(name) != wanted[name]:
            raise UserError(
                f"this file was written with other options: {name} is {result.get(name)!r}, now it would be {wanted[name]!r}",
                code="file-options-mismatch",
                where=str(path),
                try_this="use another file: texts of two rewriters must not be mixed",
            )
    done: dict[Key, bool] = {}
    for pair in read_pairs(path):
        done[pair.key] = done.get(pair.key, False) or pair.styled is not None
    summary.pairs = sum(done.values())
    summary.given_up = 0 if retry_failed else len(done) - summary.pairs
    return {key for key, styled in done.items() if styled or not retry_failed}


def _written_in_part(path: Path, jobs: Sequence[_RewritingJob], done: set[Key]) -> dict[tuple[str, str], Outcome]:
    """Return existing outcomes of passages that only some of their questions have, so that all get the same text."""
    queries = {(job.passage.id, job.style) for job in jobs if job.questions}
    partial = {(passage, style) for _, passage, style in done if (passage, style) in queries}
    if not partial:
        return {}
    return {
        pair.key[1:]: Outcome(pair.styled, pair.by, pair.failed)
        for pair in read_pairs(path)
        if pair.key in done and pair.key[1:] in partial
    }
