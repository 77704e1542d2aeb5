"""`ragmeter data restyle`, `mix` and `style-…`: passages in another style: written, measured, mixed, imported, exported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from rich.text import Text

from benchmarks.core.errors import UserError, unwritable
from ragmeter.cli import completion, options
from ragmeter.cli.config_options import data_apart, given_options
from ragmeter.cli.options import App, Common, argument, one_of, option
from ragmeter.show.console import err, listing, out

if TYPE_CHECKING:
    from benchmarks.styles.mix import Draw
    from benchmarks.styles.pairs import Fields, StylePairs
    from benchmarks.styles.sark_files import Layout
    from judges.style import StyleQuality

app = App()

Pairs = Annotated[Path, argument("File of style pairs.", metavar="PAIRS")]
Overwrite = Annotated[bool, option("Overwrite an existing file.", "--overwrite")]
_AGAIN = "the same command continues"
_SENTIMENTS = ("lexicon", "textblob")


def _free(path: Path, overwrite: bool) -> None:
    """Check that a file can be written: it does not exist, and its folder does."""
    if path.is_dir() or (path.exists() and not overwrite):
        what = "folder" if path.is_dir() else "file"
        raise UserError(f"output {what} already exists", code="output-exists", where=str(path), try_this="another --output, or --overwrite")
    if not path.parent.is_dir():
        raise UserError("folder does not exist", code="missing-folder", where=str(path.parent), try_this="another --output")


def _say(notes: Sequence[str]) -> None:
    for note in notes:
        err.print(Text(note, style="dim"), soft_wrap=True)


@app.command(offline=True, plugin=True)
def restyle(
    reference: options.DataReference,
    output: Annotated[Path, option("File of pairs (JSON Lines); an existing one is continued.", "--output", "-o")],
    styles: Annotated[list[str], option("informal, humor, romance …; repeatable.", "--style")],
    common: Common,
    rewriter: Annotated[str, option("llm, or rule: fixed rules, offline.", completes=completion.offer_words("llm", "rule"))] = "llm",
    config: options.ConfigOption = None,
    settings: Annotated[
        list[str] | None, options.set_option("Rewriter option; validators: style.KEY=…, content.KEY=…; dataset: data.KEY=…")
    ] = None,
    validate: Annotated[
        list[str] | None, option("Reject texts by style=JUDGE, content=JUDGE or entities=SHARE.", metavar="ROLE[=…]")
    ] = None,
    setting: options.SettingOption = None,
    limit: options.LimitOption = None,
    seed: Annotated[int, option("Random seed of the setting.")] = 0,
    retry_failed: Annotated[bool, option("Retry passages whose rewriting failed.", "--retry-failed")] = False,
    device: options.DeviceOption = None,
) -> int:
    """Rewrite every candidate of every question in other styles; resumes if interrupted."""
    from benchmarks.registry import resolve
    from benchmarks.styles import rewrite
    from ragmeter.runner.loop import stoppable
    from ragmeter.runner.progress import CountingProgress
    from ragmeter.runner.rewriting import chosen

    if output.is_dir():
        raise UserError("this is a folder", code="output-is-folder", where=str(output), try_this="name a file")
    services = common.services(device, seed)
    of_rewriter, of_data = data_apart(given_options(config, settings))
    split = resolve(reference, where="REF")[0].split
    by = chosen(rewriter, of_rewriter, validate or (), split, services)
    by.check(styles)
    benchmark = common.load(reference, of_data, limit=limit, setting=setting, services=services)
    work = rewrite.pending(benchmark, by.rewriter, styles, output, retry_failed=retry_failed)
    estimate, judging = by.estimate(work.passages), by.judging_calls(work.passages)
    if common.talk:
        done = work.total - work.count
        err.print(Text(f"{work.count:,} passages to rewrite" + (f", {done:,} are done" if done else "")))
        if estimate is not None and work.count:
            judges = f", and {judging:,} calls of judges" if judging else ""
            again = f"refused texts are tried again, at most {by.tries} times in all"
            err.print(Text(f"one try for each: about {estimate}{judges}; {again}"))
    if work.count:
        by.reach(common.store.cache)
    with CountingProgress("rewriting", quiet=not common.talk) as progress, stoppable(_AGAIN):
        try:
            summary = rewrite.rewrite_candidates(
                benchmark, by.rewriter, styles, output, retry_failed=retry_failed, progress=progress.reached
            )
        except OSError as error:
            raise unwritable(error, output, try_this=_AGAIN) from error
    rows, reasons = rewrite.tally(output)

    def show() -> None:
        out.print(Text(f"{output}: {summary.pairs:,} pairs; {summary.requested:,} passages rewritten now"), soft_wrap=True)
        heads = ("style", "at the first try", "after more tries", "failed")
        listing(heads, [tuple(row.values()) for row in rows], empty="nothing was rewritten")
        if reasons:
            out.print()
            listing(("refused because of", "tries"), reasons.items(), empty="")

    value = {
        "file": str(output),
        "benchmark": benchmark.name,
        "rewriter": by.rewriter.id,
        "asked": summary.requested,
        "pairs": summary.pairs,
    }
    would_take = None if estimate is None else asdict(estimate) | {"judging_calls": judging}
    common.emit({**value, "estimate": would_take, "styles": rows, "failed_tries": reasons}, show)
    return 0 if summary.pairs else 1


@app.command(offline=True, plugin=True)
def mix(
    reference: options.DataReference,
    pairs: Pairs,
    shares: Annotated[list[str], option("Share per style; the rest stays formal.", "--mix", metavar="STYLE=SHARE")],
    output: Annotated[Path, option("File to write, in SARK's layout.", "--output", "-o")],
    common: Common,
    layout: Annotated[str, option("Layout: ranked or labels.", completes=completion.offer_words("labels", "ranked"))] = "ranked",
    seed: Annotated[int, option("Random seed of the sample and the setting.")] = 0,
    draw: Annotated[
        str, option("Exact counts per question, or an independent draw per candidate.", completes=completion.offer_words("exact", "coin"))
    ] = "exact",
    setting: options.SettingOption = None,
    limit: options.LimitOption = None,
    overwrite: Overwrite = False,
    config: options.ConfigOption = None,
    settings: options.DatasetSetOption = None,
    device: options.DeviceOption = None,
) -> None:
    """Write questions with candidates of mixed style, as a file for the dataset `sark`."""
    from benchmarks.styles import FORMAL, STYLED
    from benchmarks.styles.mix import Draw, styled
    from benchmarks.styles.pairs import load_pairs
    from benchmarks.styles.sark_files import Layout, write_sark

    wanted = _shares(shares)
    as_drawn: Draw = one_of(draw, get_args(Draw), "draw", "--draw")
    as_written: Layout = one_of(layout, get_args(Layout), "layout", "--layout")
    _free(output, overwrite)
    restyled = load_pairs(pairs)
    supplied, services = given_options(config, settings), common.services(device, seed)
    benchmark = common.load(reference, supplied, limit=limit, setting=setting, services=services)
    mixed = styled(benchmark, restyled, wanted, seed=seed, draw=as_drawn)
    met: Counter[str] = sum((Counter(q.metadata[STYLED]["counts"]) for q in mixed.questions), Counter())
    if mixed.extra["counts"].get("styled_kept_formal") and not met.total() - met[FORMAL]:
        raise UserError(
            f"no pair has the text of a candidate of {benchmark.name}",
            code="no-pair-of-candidate",
            where=str(pairs),
            try_this="the reference, --setting and --seed that they were made with",
        )
    written = write_sark(mixed, output, as_written, overwrite=overwrite)
    notes = list(mixed.extra["notes"])

    def show() -> None:
        out.print(Text(f"{output}: {written:,} records of {mixed.name}"), soft_wrap=True)
        listing(("style", "candidates"), met.items(), empty="")
        _say(notes)

    value = {"file": str(output), "records": written, "name": mixed.name, "candidates": dict(met), "notes": notes}
    common.emit(value | {"styled": mixed.extra[STYLED]}, show)


def _shares(texts: Sequence[str]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for text in texts:
        style, _, share = text.partition("=")
        if style in shares:
            raise UserError(f"the style {style} is given two shares", code="duplicate-share", where="--mix", try_this="one share each")
        try:
            shares[style] = float(share)
        except ValueError:
            raise UserError(
                f"{text!r} is not the share of a style", code="bad-style-share", where="--mix", try_this="--mix informal=0.5"
            ) from None
    return shares


@app.command("style-export", offline=True, plugin=True)
def style_export(
    reference: options.DataReference,
    output: Annotated[Path, option("File to write, in SARK's test layout.", "--output", "-o")],
    common: Common,
    passages: Annotated[int | None, option("Use only the first candidates of each question (default: all)", min=1)] = None,
    setting: options.SettingOption = None,
    limit: options.LimitOption = None,
    seed: Annotated[int, option("Random seed of the setting.")] = 0,
    overwrite: Overwrite = False,
    config: options.ConfigOption = None,
    settings: options.DatasetSetOption = None,
    device: options.DeviceOption = None,
) -> None:
    """Write questions with their candidates in their present style, as a file for the dataset `sark`."""
    from benchmarks.styles.sark_files import writable, write_sark

    _free(output, overwrite)
    value, services = given_options(config, settings), common.services(device, seed)
    benchmark = common.load(reference, value, limit=limit, setting=setting, services=services)
    if all(question.candidates is None for question in benchmark.questions):
        raise UserError(
            f"{benchmark.reference} gives its questions no list of candidates",
            code="no-candidates",
            where="REF",
            try_this='--setting "corpus(retriever=bm25,n=50)", or a layout with candidates',
        )
    chosen, notes = writable(benchmark, passages)
    if not chosen.questions:
        raise UserError("no question is left to write", code="no-question-left", where=reference, try_this="; ".join(notes))
    written = write_sark(chosen, output, overwrite=overwrite)
    count = sum(len(question.candidates or ()) for question in chosen.questions)

    def show() -> None:
        out.print(Text(f"{output}: {written:,} records of {benchmark.name}, {count:,} candidates"), soft_wrap=True)
        _say(notes)

    common.emit({"file": str(output), "records": written, "name": benchmark.name, "candidates": count, "notes": notes}, show)


@app.command("style-pairs")
def style_pairs(
    files: Annotated[list[Path], argument("Parallel texts; or two SARK files, the formal one first.", metavar="FILE...")],
    output: Annotated[Path, option("File of pairs to write.", "--output", "-o")],
    common: Common,
    fields: Annotated[
        list[str] | None, option("Field of a style, e.g. formal=styles.KJV; one style is formal.", "--field", metavar="STYLE=FIELD")
    ] = None,
    style: Annotated[str | None, option("Style of the second of two SARK files, which match row by row.")] = None,
    identifier: Annotated[str | None, option("Field of the record's id.", "--id")] = None,
    title: Annotated[str | None, option("Field of the title.")] = None,
    question: Annotated[str | None, option("Field of the question's id.")] = None,
    by: Annotated[str, option("Author or source of the texts.")] = "people",
    overwrite: Overwrite = False,
) -> None:
    """Import parallel texts as a file of style pairs."""
    from benchmarks.core.fingerprint import file_sha256
    from benchmarks.styles.pairs import import_parallel, write_pairs
    from benchmarks.styles.sark_files import import_sark

    if (style is None) == (not fields):
        raise UserError(
            "parallel texts need --field, SARK's layouts --style, and not both",
            code="field-and-style",
            where="--field, --style",
            try_this="--field formal=… --field informal=…; or two files and --style informal",
        )
    _free(output, overwrite)
    if style is None:
        pairs = list(import_parallel(files, _fields(fields or (), identifier, title, question), by=by))
    elif len(files) == 2:
        pairs = list(import_sark(files[0], files[1], style, by=by))
    else:
        raise UserError(
            f"two files are required, got {len(files)}",
            code="wrong-file-count",
            where="FILE...",
            try_this="two: the formal texts, then the same rows restyled",
        )
    if not pairs:
        raise UserError("these files hold no pair of texts", code="no-text-pairs", where=", ".join(map(str, files)))
    made_from = ", ".join(f"{file.name} {file_sha256(file)[:16]}" for file in files)
    written = write_pairs(output, pairs, rewriter=f"import by {by}", made_from=made_from, overwrite=overwrite)
    met = Counter(pair.style for pair in pairs)

    def show() -> None:
        out.print(Text(f"{output}: {written:,} pairs"), soft_wrap=True)
        listing(("style", "pairs"), met.items(), empty="")

    common.emit({"file": str(output), "pairs": written, "styles": dict(met)}, show)


def _fields(texts: Sequence[str], identifier: str | None, title: str | None, question: str | None) -> Fields:
    from benchmarks.styles.pairs import Fields

    paths = {}
    for text in texts:
        style, mark, path = text.partition("=")
        if not (mark and style and path):
            raise UserError(
                f"{text!r} names no field of a style", code="unknown-style-field", where="--field", try_this="--field formal=text"
            )
        paths[style] = path
    try:
        return Fields(paths, identifier, title, question)
    except UserError as error:
        raise UserError(error.what, code=error.code, where="--field", try_this="--field formal=… --field informal=…") from None


@app.command("style-quality", offline=True, plugin=True)
def style_quality(
    pairs: Pairs,
    common: Common,
    benchmark: Annotated[
        str | None,
        option("Benchmark of the pairs: check whether its gold answers survive.", metavar="REF", completes=completion.references),
    ] = None,
    strength: Annotated[str | None, option("Judge of style: style or rule_style.", metavar="JUDGE")] = None,
    config: options.ConfigOption = None,
    settings: Annotated[list[str] | None, options.set_option("Judge option; dataset: data.KEY=VALUE")] = None,
    bertscore: Annotated[str | None, option("Encoder for BERTScore.", metavar="MODEL")] = None,
    layer: Annotated[int, option("Layer of the encoder.", min=1)] = 12,
    perplexity: Annotated[str | None, option("Causal language model for fluency.", metavar="MODEL")] = None,
    sentiment: Annotated[
        str,
        option(
            "Sentiment by fixed word lists (lexicon) or TextBlob (textblob, as in the paper).",
            completes=completion.offer_words(*_SENTIMENTS),
        ),
    ] = "lexicon",
    device: options.DeviceOption = None,
) -> None:
    """Measure rewritten texts: style strength, content, fluency, sentiment, with 95 % intervals."""
    from benchmarks.styles.pairs import ANY, load_pairs
    from judges.style import polarities, textblob_polarities, texts_of
    from judges.style import style_quality as measure
    from ragmeter.runner.loop import stoppable
    from ragmeter.runner.rewriting import judge_measuring

    tone = polarities if one_of(sentiment, _SENTIMENTS, "sentiment", "--sentiment") == "lexicon" else textblob_polarities
    services = common.services(device)
    of_judge, of_data = data_apart(given_options(config, settings))
    judge = None
    if strength is not None:
        judge = judge_measuring("informal", strength, of_judge, "--strength")
    elif of_judge:
        raise UserError(
            "options are given, but no judge that uses them",
            code="unknown-judge-options",
            where="--set",
            try_this="--strength style, or rule_style",
        )
    restyled = load_pairs(pairs)
    query = None if benchmark is None else common.load(benchmark, of_data)
    if query is not None:
        named = {item.question for item in restyled} - {ANY}
        if named and named.isdisjoint(question.id for question in query.questions):
            raise UserError(
                f"no pair belongs to a question of {query.name}",
                code="no-pair-of-question",
                where=f"{pairs}, --benchmark",
                try_this="the benchmark, split and options that they were made from",
            )
    if judge is not None:
        judge.config.reach(common.store.cache)
    models: dict[str, Any] = {"bertscore": bertscore, "layer": layer, "perplexity": perplexity, "device": device}
    with common.status("measuring"), stoppable(_AGAIN):
        strong = judge.build(services) if judge else None
        report = measure(texts_of(restyled, query), strength=strong, failed=restyled.failed, sentiment=tone, **models)
    rows = [row for item in report for row in _estimated(item, restyled)]

    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.3f}"

    def show() -> None:
        for item in report:
            out.print(Text(f"{item.style}: {item.pairs:,} pairs, {item.failed:,} failed"))
        lines = []
        for row in rows:
            mean, interval = number(row["value"]), f"{number(row['low'])} … {number(row['high'])}"
            lines.append((row["style"], row["measure"], mean, interval, number(row["sd"]), row["n"], row["missing"]))
        listing(("style", "measure", "mean", "95 % interval", "sd", "n", "without"), lines, empty="there is no pair to measure")
        if any(row["insufficient_data"] for row in rows):
            out.print(Text("no interval if there are too few values, or too skewed ones; --json has the reasons", style="dim"))

    styles = [{"style": item.style, "pairs": item.pairs, "given_up": item.failed} for item in report]
    common.emit({"file": str(pairs), "by": dict(restyled.by), "styles": styles, "measures": rows}, show)


def _estimated(item: StyleQuality, pairs: StylePairs) -> list[dict[str, Any]]:
    """Return rows of measures with intervals; the pairs of one passage form a cluster."""
    import numpy as np

    from results.boards.markup import plain
    from results.statistics.intervals import estimates

    if not item.measures:
        return []
    passages = [pair.formal.id for pair in pairs if pair.style == item.style]
    rows = estimates(np.stack([measured.values for measured in item.measures.values()]), clusters=passages)
    return [
        {"style": item.style, "measure": name, "value": plain(row.value), "low": plain(row.low), "high": plain(row.high)}
        | {"n": row.n, "missing": row.unscorable, "passages": row.clusters, "sd": measured.sd, "insufficient_data": row.insufficient_data}
        for (name, measured), row in zip(item.measures.items(), rows, strict=True)
    ]
