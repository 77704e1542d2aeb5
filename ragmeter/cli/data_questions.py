"""`ragmeter data questions`: an evaluation set for documents that have none, as a table that people correct."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from benchmarks.core.errors import UserError, counted, require_writable, unknown_name
from ragmeter.cli import completion, options
from ragmeter.cli.config_options import data_apart, given_options
from ragmeter.cli.options import App, Common, argument, option
from ragmeter.show.console import err, listing, out

if TYPE_CHECKING:
    from methods.questions.writing import Writer, Written

app = App()
_AGAIN = "the same command continues"


@app.command(offline=True)
def questions(
    documents: Annotated[Path, argument("Folder of documents (.txt, .md, .html, .pdf, .docx), or a file of them.", metavar="DOCS")],
    output: Annotated[Path, option("Table to write, OUT.csv; OUT.states.jsonl next to it stores prompts and replies.", "--output", "-o")],
    common: Common,
    model: Annotated[str | None, option("Model that writes and checks (default: none, questions by rules)")] = None,
    base_url: Annotated[str | None, option("Endpoint of the model.", "--base-url")] = None,
    kinds: Annotated[
        list[str] | None,
        option(
            "single, multi or unanswerable; by rules: cloze or heading; repeatable (default: all)",
            "--kind",
            completes=completion.offer_words("single", "multi", "unanswerable", "cloze", "heading"),
        ),
    ] = None,
    count: Annotated[int, option("Questions to write per kind, before filtering.", min=1)] = 50,
    held_out: Annotated[
        float, option("Share of the documents whose questions go to OUT-dev.csv, for tuning.", "--held-out", min=0.0, max=0.9)
    ] = 0.0,
    seed: options.SeedOption = 0,
    skip_bad: options.SkipBadOption = False,
    config: options.ConfigOption = None,
    settings: Annotated[
        list[str] | None, options.set_option("Options: llm.KEY=…, tries=…, prompts=FOLDER; documents: data.chunk_size=…")
    ] = None,
    overwrite: Annotated[bool, option("Overwrite existing tables, including manual corrections.", "--overwrite")] = False,
    dry_run: Annotated[bool, option("Estimate the cost without calling a model.", "--dry-run")] = False,
    max_usd: options.MaxUsdOption = None,
    max_hours: options.MaxHoursOption = None,
    max_calls: options.MaxCallsOption = None,
) -> int:
    """Generate questions with gold passages from documents, filter them, and report each filter's count."""
    from benchmarks.datasets.files import FilesConfig, read_documents
    from benchmarks.registry import DATASETS, options_of
    from methods.questions import material, rules, sets, writing
    from methods.spending import Limits
    from methods.training.journal import Journal
    from ragmeter.runner.loop import stoppable
    from ragmeter.runner.progress import TrainingProgress
    from ragmeter.runner.spending import limited_command

    if output.suffix != ".csv":
        raise UserError("questions are written as CSV", code="not-csv", where=f"--output {output}", try_this="questions.csv")
    of_model, of_data = data_apart(given_options(config, settings))
    limits = Limits.from_options(max_usd=max_usd, max_hours=max_hours, max_calls=max_calls)
    writer = _writer(model, base_url, of_model, common, seed)
    known = rules.KINDS if writer is None else writing.KINDS
    for kind in kinds or ():
        if kind not in known:
            error = unknown_name("kind of question", kind, known, where="--kind")
            raise (
                error
                if kind not in (*rules.KINDS, *writing.KINDS)
                else UserError(
                    f"{kind} questions are written {'by a model' if writer is None else 'by rule'}",
                    code="kind-needs-model",
                    where=f"--kind {kind}",
                    try_this="add --model" if writer is None else "leave --model out",
                )
            )
    wanted = list(dict.fromkeys(kinds or known))
    cut = {"chunker": "headings"} if writer is None and "heading" in wanted else {}
    files = options_of(DATASETS.get("files"), {**cut, **of_data, **({"skip_bad": True} if skip_bad else {})})
    assert isinstance(files, FilesConfig)
    with common.status(f"reading {documents}"):
        if not documents.exists():
            raise UserError("there is no such file or folder", code="missing-file", where=f"DOCS: {documents}")
        library, notes, skipped = read_documents(documents, files)
    parts = dict(zip(("", "-dev"), material.divided(list(library.corpus()), held_out, seed), strict=True))
    apart = min(max(round(count * held_out), 1), count - 1) if held_out else 0
    shares = {"": count - apart, "-dev": apart}
    drawn = {
        name: [item for kind in wanted for item in material.drawn(kind, passages, shares[name], seed)] for name, passages in parts.items()
    }
    every = [item for items in drawn.values() for item in items]
    if not every:
        raise UserError(
            f"no questions can be written: no passage has {material.SHORTEST} words",
            code="nothing-to-ask",
            where=str(documents),
            try_this="name a folder with longer documents",
        )
    if dry_run:
        outlook = {} if writer is None else writer.outlook(every)
        common.emit({"questions": len(every), "at_most": outlook}, lambda: _show_outlook(len(every), outlook))
        return 0
    tables = {name: output.with_name(f"{output.stem}{name}.csv") for name, items in drawn.items() if items}
    if there := next((path for path in tables.values() if path.exists() and not overwrite), None):
        raise UserError("output file already exists", code="output-exists", where=str(there), try_this="another --output, or --overwrite")
    require_writable(output)
    if writer is None:
        written = {item.id: rules.WRITE[item.kind](item) for item in every}
    else:
        with Journal(output.with_suffix(".states.jsonl")) as journal, limited_command(writer.config, limits):
            writer.config.reach(common.store.cache)
            with TrainingProgress(quiet=not common.talk) as progress, stoppable(_AGAIN):
                written = dict(zip((item.id for item in every), writer.write(every, journal, progress), strict=True))
    whole = sets.without_duplicates([written[item.id] for item in every])
    kept, at = {}, 0
    for name, path in tables.items():
        kept[str(path)] = sets.write_table(path, whole[at : at + len(drawn[name])])
        at += len(drawn[name])
    return _report(whole, kept, documents, [*notes, *(f"skipped: {item.reason} ({item.where})" for item in skipped)], common)


def _writer(model: str | None, base_url: str | None, of_model: Mapping[str, Any], common: Common, seed: int) -> Writer | None:
    """Return the model that writes questions, or None."""
    from methods.questions.writing import Writer, WritingConfig
    from ragmeter.runner.rewriting import options_of

    llm = {**of_model.get("llm", {}), **({"model": model} if model else {}), **({"base_url": base_url} if base_url else {})}
    if not llm:
        if of_model:
            raise UserError(
                "options are given, but no model that uses them",
                code="unknown-model-options",
                where="--set",
                try_this="add --model NAME, or data.KEY=VALUE",
            )
        return None
    with options_of("the model", WritingConfig):
        config = WritingConfig.model_validate({**of_model, "llm": llm})
    config.preflight()
    return Writer(config, common.services(seed=seed))


def _show_outlook(number: int, outlook: Mapping[str, float]) -> None:
    calls = f", at most {outlook['calls']:,} calls with {outlook['prompt_tokens']:,} tokens" if outlook else ", and no call"
    usd = f" (${outlook['usd']:,.2f})" if outlook.get("usd") else ""
    out.print(Text(f"{counted(number, 'question')} to write{calls}{usd}"))


def _report(whole: Sequence[Written], kept: Mapping[str, int], documents: Path, notes: Sequence[str], common: Common) -> int:
    """Report written and removed questions; returns 1 if none is left or the work is incomplete."""
    from methods.questions.writing import KEPT, REASONS

    kinds = list(dict.fromkeys(item.kind for item in whole))
    table = {kind: Counter("failed" if item.failed else item.status for item in whole if item.kind == kind) for kind in kinds}
    failures = Counter(item.status for item in whole if item.failed)
    value = {"files": dict(kept), "kinds": {kind: dict(counts) for kind, counts in table.items()}, "failures": dict(failures)}

    def show() -> None:
        rows = [("written", *(str(counts.total()) for counts in table.values()))]
        for status, reason in {**REASONS, "failed": "a call failed", KEPT: KEPT}.items():
            if status == KEPT or any(counts[status] for counts in table.values()):
                rows.append((reason, *(f"{counts[status]:,}" for counts in table.values())))
        listing(("", *kinds), rows, empty="")
        for reason, number in failures.items():
            err.print(Text(f"{number:,} unfinished: {reason}; {_AGAIN}"))
        for note in notes:
            err.print(Text(note, style="dim"), soft_wrap=True)
        for path, number in kept.items():
            out.print(Text(f"{path}: {counted(number, 'question')}"), soft_wrap=True)
        if filled := [path for path, number in kept.items() if number]:
            out.print(Text(f"look: ragmeter data sample {filled[0]} --set documents={documents}"), soft_wrap=True)

    common.emit(value | {"notes": list(notes)}, show)
    return 1 if failures or not any(kept.values()) else 0
