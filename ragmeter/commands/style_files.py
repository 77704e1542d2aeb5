"""`styles mix`, `export` and `import`: files in SARK's layouts, and files of pairs from texts that others paired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from rich.text import Text

from benchmarks.errors import UserError, unknown_name
from benchmarks.fingerprint import file_sha256
from benchmarks.plurals import counted
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from benchmarks.styles.draw import Draw
from benchmarks.styles.mix import STYLED, styled
from benchmarks.styles.pairs import load_pairs, write_pairs
from benchmarks.styles.parallel import Fields, import_parallel
from benchmarks.styles.rewriter import FORMAL
from benchmarks.styles.sark_layouts import Layout, import_sark, write_sark
from ragmeter.commands.styles import Asked
from ragmeter.console import emit, err, listing, out
from results import store_folder
from results.store import Store


@dataclass(frozen=True)
class Target:
    """A file to write."""

    path: Path
    overwrite: bool

    def check(self) -> Path:
        """Its path.

        Raises:
            UserError: Something is in the way.
        """
        if self.path.is_dir() or (self.path.exists() and not self.overwrite):
            what = "a folder" if self.path.is_dir() else "a file"
            raise UserError(f"{what} is in the way", where=str(self.path), try_this="another --output, or --overwrite")
        if not self.path.parent.is_dir():
            raise UserError("there is no such folder", where=str(self.path.parent), try_this="another --output")
        return self.path


# --- mix -----------------------------------------------------------------------------------------------------


def mix(
    asked: Asked, file: Path, shares: Sequence[str], draw: str, target: Target, layout: str, folder: Path | None, as_json: bool, quiet: bool
) -> None:
    """Write a benchmark of mixed style in a layout of SARK's."""
    wanted = _shares(shares)
    as_drawn: Draw = _one_of(draw, Draw, "draw", "--draw")
    as_written: Layout = _one_of(layout, Layout, "layout", "--layout")
    target.check()
    told = load_pairs(file)
    benchmark = asked.load(asked.services(Store(store_folder(folder))), not (quiet or as_json))
    mixed = styled(benchmark, told, wanted, seed=asked.seed, draw=as_drawn)
    met: Counter[str] = sum((Counter(q.metadata[STYLED]["counts"]) for q in mixed.questions), Counter())
    if mixed.extra["counts"].get("styled_kept_formal") and not met.total() - met[FORMAL]:
        raise UserError(
            f"none of the pairs is of a candidate of {benchmark.name}",
            where=str(file),
            try_this="the reference, --setting and --seed that they were made with",
        )
    written = write_sark(mixed, target.path, as_written, overwrite=target.overwrite)

    def show() -> None:
        out.print(Text(f"{target.path}: {written:,} records of {mixed.name}"), soft_wrap=True)
        listing(("style", "candidates"), met.items(), empty="")
        for note in mixed.extra["notes"]:
            err.print(Text(note, style="dim"), soft_wrap=True)

    emit(
        {
            "file": str(target.path),
            "records": written,
            "name": mixed.name,
            "candidates": dict(met),
            "notes": list(mixed.extra["notes"]),
            "styled": mixed.extra[STYLED],
        },
        as_json,
        show,
    )


def _shares(texts: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        style, _, share = text.partition("=")
        try:
            value = float(share)
        except ValueError:
            raise UserError(f"{text!r} is no share of a style", where="--mix", try_this="--mix informal=0.5") from None
        if style in found:
            raise UserError(f"{style} has two shares", where="--mix", try_this="one share each")
        found[style] = value
    return found


def _one_of(text: str, kinds: Any, noun: str, where: str) -> Any:
    if text not in get_args(kinds):
        raise unknown_name(noun, text, get_args(kinds), where=where)
    return text


# --- export --------------------------------------------------------------------------------------------------


def export(asked: Asked, target: Target, passages: int | None, folder: Path | None, as_json: bool, quiet: bool) -> None:
    """Write a benchmark's questions with their candidates in SARK's layout of ranked lists."""
    target.check()
    benchmark = asked.load(asked.services(Store(store_folder(folder))), not (quiet or as_json))
    if all(question.candidates is None for question in benchmark.questions):
        raise UserError(
            f"{benchmark.reference} gives its questions no list of candidates",
            where="REF",
            try_this='--setting "corpus(retriever=bm25,n=50)", or a layout with candidates',
        )
    chosen, notes = _readable(benchmark, passages)
    if not chosen.questions:
        raise UserError("no question is left to write", where=asked.reference, try_this="; ".join(notes))
    written = write_sark(chosen, target.path, overwrite=target.overwrite)
    count = sum(len(question.candidates or ()) for question in chosen.questions)

    def show() -> None:
        out.print(Text(f"{target.path}: {written:,} records of {benchmark.name}, {count:,} candidates"), soft_wrap=True)
        for note in notes:
            err.print(Text(note, style="dim"), soft_wrap=True)

    value = {"file": str(target.path), "records": written, "name": benchmark.name, "candidates": count}
    emit(value | {"notes": notes}, as_json, show)


def _readable(benchmark: Benchmark, passages: int | None) -> tuple[Benchmark, list[str]]:
    """The questions that `sark` can read again, with so many candidates, and what is said of the others.

    In the layout a question's text is its id, and a list must not be empty.
    """
    kept: dict[str, Question] = {}
    repeated = empty = 0
    for question in benchmark.questions:
        if not question.candidates:
            empty += 1
        elif question.text in kept:
            repeated += 1
        else:
            # A slice of None is all.
            kept[question.text] = replace(question, candidates=tuple(question.candidates[:passages]))
    notes = []
    if repeated:
        notes.append(f"left out, with the text of an earlier one: {counted(repeated, 'question')}")
    if empty:
        notes.append(f"left out, without a candidate: {counted(empty, 'question')}")
    if short := sum(len(one.candidates or ()) < (passages or 0) for one in kept.values()):
        notes.append(f"fewer than {passages} candidates: {counted(short, 'question')}")
    return replace(benchmark, questions=list(kept.values())), notes


# --- import --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Named:
    """Names of the fields of parallel texts, as the command line gives them."""

    fields: tuple[str, ...]
    id: str | None
    title: str | None
    question: str | None

    def read(self) -> Fields:
        """The fields.

        Raises:
            UserError: They are not right.
        """
        found = {}
        for text in self.fields:
            style, mark, field = text.partition("=")
            if not (mark and style and field):
                raise UserError(f"{text!r} names no field of a style", where="--field", try_this="--field formal=text")
            found[style] = field
        try:
            return Fields(found, self.id, self.title, self.question)
        except UserError as error:
            raise UserError(error.what, where="--field", try_this="--field formal=… --field informal=…") from None


def import_pairs(files: Sequence[Path], target: Target, named: Named, style: str | None, by: str, as_json: bool) -> None:
    """Write a file of pairs from texts that others paired."""
    if (style is None) == (not named.fields):
        raise UserError(
            "parallel texts need --field, SARK's layouts --style, and not both",
            where="--field, --style",
            try_this="--field formal=… --field informal=…; or two files and --style informal",
        )
    target.check()
    if style is None:
        found = list(import_parallel(list(files), named.read(), by=by))
    elif len(files) == 2:
        found = list(import_sark(files[0], files[1], style, by=by))
    else:
        raise UserError(f"{len(files)} files were named", where="FILE...", try_this="two: the formal texts, then the same rows told")
    if not found:
        raise UserError("these files hold no pair of texts", where=", ".join(map(str, files)))
    made_from = ", ".join(f"{file.name} {file_sha256(file)[:16]}" for file in files)
    written = write_pairs(target.path, found, rewriter=f"import by {by}", made_from=made_from, overwrite=target.overwrite)
    met = Counter(one.style for one in found)
    value = {"file": str(target.path), "pairs": written, "styles": dict(met)}

    def show() -> None:
        out.print(Text(f"{target.path}: {written:,} pairs"), soft_wrap=True)
        listing(("style", "pairs"), met.items(), empty="")

    emit(value, as_json, show)
