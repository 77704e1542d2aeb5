"""`ragmeter data overlap`: which evaluated questions were trained on, by words, by a checkpoint's record, by similarity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from benchmarks.core.errors import UserError, counted
from ragmeter.cli import completion, options
from ragmeter.cli.config_options import given_options
from ragmeter.cli.options import App, Common, argument, option
from ragmeter.show.console import err, listing, out

if TYPE_CHECKING:
    from benchmarks.leakage import Report
    from benchmarks.registry import Benchmark
    from ragmeter.paraphrases import Paraphrase

app = App()


@app.command(offline=True, plugin=True)
def overlap(
    common: Common,
    checkpoint: Annotated[Path | None, argument("Checkpoint folder; compare with the questions that its training read.")] = None,
    train: Annotated[list[Path] | None, option("Training file, or folder of them; repeatable.")] = None,
    evaluation: Annotated[
        list[str] | None, option("Evaluation set; repeatable.", "--eval", metavar="REF", completes=completion.references)
    ] = None,
    contexts: Annotated[bool, option("Search for passages too.", "--contexts")] = False,
    encoder: Annotated[str | None, option("Search for paraphrases too, with this encoder: minilm, a folder or a hub id.")] = None,
    threshold: Annotated[float | None, option("Minimum cosine of a paraphrase (default: 0.9)", min=0.0, max=1.0)] = None,
    output: Annotated[Path | None, option("Write every question's overlap to this .csv, .json or .jsonl file.", "--output", "-o")] = None,
    count: Annotated[int, option("Number of questions and pairs to show.", min=0)] = 10,
    skip_bad: Annotated[bool, option("Skip unreadable training records; they are counted.", "--skip-bad")] = False,
    config: options.ConfigOption = None,
    settings: options.DatasetSetOption = None,
) -> None:
    """Search training files, or the record of a checkpoint's training, for evaluation questions."""
    from benchmarks import leakage, training_texts
    from ragmeter import paraphrases
    from results.store import checkpoints

    if not evaluation or (checkpoint is None and not train):
        lacking = "an evaluation set" if not evaluation else "a checkpoint or a training file"
        raise UserError(
            f"{lacking} is missing",
            code="nothing-to-compare",
            where="--eval" if not evaluation else "--train",
            try_this="ragmeter data overlap --train train.jsonl --eval nq:test, or ragmeter data overlap FOLDER --eval nq:test",
        )
    if output is not None and (output.suffix not in leakage.FORMATS or not train):
        raise UserError(
            f"overlaps with training files are written as {', '.join(leakage.FORMATS)}",
            code="bad-overlap",
            where=f"--output {output}",
            try_this="--train FILE --output overlaps.csv",
        )
    if checkpoint is not None and not checkpoint.is_dir():
        raise UserError("there is no such folder", code="missing-folder", where=str(checkpoint), try_this="the folder of the weights")
    # The names of the data are on the card; hashes do not need one.
    known = checkpoints.read(checkpoint) if checkpoint is not None and encoder is not None else None
    files = list(dict.fromkeys(file for path in train or () for file in training_texts.training_files(path)))
    value = given_options(config, settings)
    benchmarks = [common.load(reference, value) for reference in evaluation]
    result: dict[str, Any] = {}
    report: Report | None = None
    if files:
        with common.status("reading") as status:

            def progress(file: Path, words: int) -> None:
                status.update(Text(f"{file.name}: {words:,} words"))

            report = leakage.contamination(benchmarks, files, contexts=contexts, skip_bad=skip_bad, progress=progress)
        if output is not None:
            report.write(output)
        result = {"summary": report.summary(), "questions": [item.to_json() for item in report.overlaps]}
    if checkpoint is not None:
        result["checkpoint"] = _read(checkpoint, benchmarks)
    pairs: list[Paraphrase] | None = None
    least = paraphrases.THRESHOLD if threshold is None else threshold
    if encoder is not None:
        with common.status(f"encoding with {encoder}"):
            texts = [*_short_texts(files, skip_bad=skip_bad), *(paraphrases.trained_texts(known) if known is not None else ())]
            pairs = paraphrases.paraphrases(benchmarks, texts, paraphrases.encoder_of(encoder), least)
        result["paraphrases"] = {"encoder": encoder, "threshold": least, "texts": len(texts), "pairs": [pair.to_json() for pair in pairs]}

    def show() -> None:
        if report is not None:
            _show_report(report, count, output)
        if checkpoint is not None:
            _show_read(result["checkpoint"])
        if pairs is not None:
            out.print(Text(f"{counted(len(pairs), 'question')} with a trained text of cosine {least:g} or more ({encoder})"))
            rows = [(f"{pair.similarity:.3f}", pair.question, pair.text, pair.trained) for pair in pairs[:count]]
            listing(("cosine", "question", "evaluated", "trained on"), rows, empty="")

    common.emit(result, show)


def _read(folder: Path, benchmarks: Sequence[Benchmark]) -> list[dict[str, Any]]:
    """Compare the recorded questions in a folder of weights with benchmarks."""
    from benchmarks.read_questions import read_record

    read = read_record(folder)
    results = []
    for benchmark in benchmarks:
        questions = benchmark.questions
        item: dict[str, Any] = {"set": str(benchmark.reference), "questions": len(questions), "read": None, "sampled": "", "ids": []}
        if read is not None:
            hit = read.touched([question.text for question in questions], [question.golds for question in questions])
            ids = [question.id for question, touched in zip(questions, hit.tolist(), strict=True) if touched]
            item |= {"read": len(ids), "sampled": read.rate, "ids": ids}
        results.append(item)
    return results


def _show_read(results: Sequence[dict[str, Any]]) -> None:
    rows = [(r["set"], r["questions"], "unknown" if r["read"] is None else f"{r['read']:,}", r["sampled"] or "all") for r in results]
    listing(("evaluation set", "questions", "read in training", "hashes kept"), rows, empty="")
    if any(r["read"] is None for r in results):
        note = "unknown: this folder has no record; if you have the training files: ragmeter train record FILES --into FOLDER"
        out.print(Text(note, style="dim"))


def _short_texts(files: Sequence[Path], *, skip_bad: bool) -> Iterator[str]:
    """Yield texts of training files that may be questions."""
    from benchmarks.training_texts import texts
    from ragmeter.paraphrases import MOST_WORDS

    for file in files:
        yield from (item.text for item in texts(file, skip_bad=skip_bad) if len(item.text.split()) <= MOST_WORDS)


def _show_report(report: Report, count: int, output: Path | None) -> None:
    texts = counted(sum(report.files.values()), "text")
    out.print(Text(f"{counted(len(report.files), 'training file')}, {texts}, {counted(report.words, 'word')}"))
    heads = ("evaluation set", "questions", "touched", "question touched", "half of it", "all of it", "looked for whole")
    listing(heads, [tuple(item.values()) for item in report.summary()["sets"]], empty="no question was compared")
    worst = sorted((item for item in report.overlaps if item.share > 0), key=lambda item: -item.share)[:count]
    if worst:
        out.print()
        rows = [(item.question_id, f"{item.share:.0%}", item.first or "", item.text) for item in worst]
        listing(("question", "found", "first at", ""), rows, empty="")
    note = (
        "found: share of a question's 13-grams of normalized words; a question of fewer than 13 words is searched as a whole; "
        "shorter answers are not searched"
    )
    out.print(Text(note, style="dim"))
    for position in report.skipped[:10]:
        err.print(Text(f"left out: {position}", style="yellow"))
    if len(report.skipped) > 10:
        err.print(Text(f"left out: {counted(len(report.skipped) - 10, 'more record')}", style="yellow"))
    if output is not None:
        out.print(Text(f"every question: {output}"))
