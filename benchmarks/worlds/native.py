"""Worlds in the native file formats of other datasets, so that their loaders can be run on known truth.

A format takes the questions that it can express and leaves the others out. The formats are in `native_multihop`,
`native_documents`, `native_graphs` and `native_nq`, each beside what its files have no place for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.errors import UserError, unknown_name
from benchmarks.registry import Benchmark
from benchmarks.worlds import native_documents, native_graphs, native_multihop, native_nq
from benchmarks.worlds.native_files import NativeFormat, put

FORMATS: Mapping[str, NativeFormat] = {**native_multihop.FORMATS, **native_documents.FORMATS, **native_graphs.FORMATS, **native_nq.FORMATS}
"""Every format by name."""


def write_native(benchmark: Benchmark, format: str, path: Path | str, *, overwrite: bool = False) -> tuple[str, ...]:
    """Write a benchmark of worlds as another dataset's own file.

    Args:
        benchmark: A subset of worlds that the format can be written of.
        format: A name in `FORMATS`.
        path: The file; some formats put others beside it.
        overwrite: Whether files that are there may be replaced.

    Returns:
        Ids of the questions written, in order. Those that nothing answers have no place in these formats.

    Raises:
        UserError: The format is unknown, no question fits it, or a file is in the way.
    """
    if format not in FORMATS:
        raise unknown_name("native format", format, FORMATS)
    form = FORMATS[format]
    fits = benchmark.reference.name == "worlds" and benchmark.reference.subset in form.subsets
    questions = [q for q in benchmark.questions if fits and q.answerable and form.suits(q)]
    if not questions:
        raise UserError(
            f"{benchmark.reference} has no questions that {format} can express",
            try_this=f"write worlds/{form.subsets[0]} with its default mix of questions",
        )
    put(form.write(benchmark, questions), Path(path), overwrite)
    return tuple(question.id for question in questions)
