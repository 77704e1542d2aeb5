"""The command line of `ragmeter styles`: passages told in another style, measured, mixed, taken in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragmeter.cli import options as completion
from ragmeter.cli.data import Config, DataPath, Reference
from ragmeter.cli.options import (
    App,
    DeviceOption,
    JsonOption,
    LimitOption,
    MetricsOption,
    OverSeedsOption,
    ProfileOption,
    QuietOption,
    ReferenceOption,
    SettingOption,
    StoredExperiment,
    StoreOption,
)

styles_app = App(
    help="Styles: the same passages told otherwise; rewrite them, measure the texts, mix them, take in others'.", no_args_is_help=True
)

Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="May be repeated.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file where it is there.")]
Pairs = Annotated[Path, typer.Argument(metavar="PAIRS", help="A file of style pairs.")]


@styles_app.command(offline=True)
def rewrite(
    reference: Reference,
    output: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="The file of pairs; one that is there goes on.")],
    styles: Annotated[list[str], typer.Option("--style", help="informal, humor, romance …; may be repeated.")],
    rewriter: Annotated[
        str, typer.Option(help="llm, or rule: fixed rules, offline.", autocompletion=completion.words("llm", "rule"))
    ] = "llm",
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="An option of the rewriter, or of a judge that validates: style.KEY=VALUE, content.KEY=VALUE.",
        ),
    ] = None,
    validate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE[=…]", help="Refuse texts: style=JUDGE (informal ones not judged so), content=JUDGE, entities=SHARE kept."
        ),
    ] = None,
    setting: SettingOption = None,
    limit: LimitOption = None,
    seed: Annotated[int, typer.Option(help="Of the setting.")] = 0,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Ask again for passages that were given up.")] = False,
    config: Config = None,
    path: DataPath = None,
    device: DeviceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Tell every candidate of every question in other styles; what was interrupted goes on where it was."""
    from ragmeter.cli.commands import styles as commands

    asked = commands.Asked(reference, config, path, setting, limit, seed, device)
    request = commands.Rewriting(tuple(styles), rewriter, tuple(options or ()), tuple(validate or ()), retry_failed)
    raise typer.Exit(commands.rewrite(asked, request, output, store, as_json, quiet))


@styles_app.command(offline=True)
def quality(
    pairs: Pairs,
    benchmark: Annotated[
        str | None,
        typer.Option(
            metavar="REF", help="Whose questions the pairs are of: does a gold answer survive?", autocompletion=completion.references
        ),
    ] = None,
    strength: Annotated[str | None, typer.Option(metavar="JUDGE", help="style or rule_style: is a text informal?")] = None,
    options: Settings = None,
    bertscore: Annotated[str | None, typer.Option(metavar="MODEL", help="An encoder: BERTScore.")] = None,
    layer: Annotated[int, typer.Option(min=1, help="The encoder's layer.")] = 12,
    perplexity: Annotated[str | None, typer.Option(metavar="MODEL", help="A causal language model.")] = None,
    config: Config = None,
    path: DataPath = None,
    device: DeviceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure texts in another style: strength, content, fluency, sentiment, each with a 95 % interval."""
    from ragmeter.cli.commands import styles as commands

    asked = None if benchmark is None else commands.Asked(benchmark, config, path)
    request = commands.Measuring(strength, tuple(options or ()), bertscore, layer, perplexity, device)
    commands.quality(pairs, asked, request, store, as_json, quiet)


@styles_app.command(offline=True)
def mix(
    reference: Reference,
    pairs: Pairs,
    shares: Annotated[list[str], typer.Option("--mix", metavar="STYLE=SHARE", help="What is missing to 1 stays formal.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write, in a layout of SARK's.")],
    layout: Annotated[str, typer.Option(help="ranked, or labels.", autocompletion=completion.words("ranked", "labels"))] = "ranked",
    seed: Annotated[int, typer.Option(help="Of the draw, and of the setting.")] = 0,
    draw: Annotated[str, typer.Option(help="exact counts by question, or a coin for each candidate.")] = "exact",
    setting: SettingOption = None,
    limit: LimitOption = None,
    overwrite: Overwrite = False,
    config: Config = None,
    path: DataPath = None,
    device: DeviceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a benchmark's questions over candidates of mixed style as a file that dataset `sark` reads."""
    from ragmeter.cli.commands import styles as files
    from ragmeter.cli.commands.styles import Asked

    asked = Asked(reference, config, path, setting, limit, seed, device)
    files.mix(asked, pairs, shares, draw, files.Target(output, overwrite), layout, store, as_json, quiet)


@styles_app.command(offline=True)
def export(
    reference: Reference,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write, in SARK's layout of tests.")],
    passages: Annotated[int | None, typer.Option(min=1, help="Only the first candidates of each question. [default: all]")] = None,
    setting: SettingOption = None,
    limit: LimitOption = None,
    seed: Annotated[int, typer.Option(help="Of the setting.")] = 0,
    overwrite: Overwrite = False,
    config: Config = None,
    path: DataPath = None,
    device: DeviceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a benchmark's questions with their candidates, as they are told, as a file that dataset `sark` reads."""
    from ragmeter.cli.commands import styles as files
    from ragmeter.cli.commands.styles import Asked

    asked = Asked(reference, config, path, setting, limit, seed, device)
    files.export(asked, files.Target(output, overwrite), passages, store, as_json, quiet)


@styles_app.command("import")
def import_pairs(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Parallel texts; or SARK's formal, then told.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file of pairs to write.")],
    fields: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="STYLE=FIELD", help="Where a style stands, e.g. formal=styles.KJV; one of them is formal."),
    ] = None,
    style: Annotated[str | None, typer.Option(help="Two files in a layout of SARK's, row for row: the style of the second.")] = None,
    identifier: Annotated[str | None, typer.Option("--id", help="Field of a record's id.")] = None,
    title: Annotated[str | None, typer.Option(help="Field of the title.")] = None,
    question: Annotated[str | None, typer.Option(help="Field of the question's id.")] = None,
    by: Annotated[str, typer.Option(help="Who or what wrote the texts.")] = "people",
    overwrite: Overwrite = False,
    as_json: JsonOption = False,
) -> None:
    """Make a file of style pairs of texts that others paired."""
    from ragmeter.cli.commands import styles as style_files

    named = style_files.Named(tuple(fields or ()), identifier, title, question)
    style_files.import_pairs(files, style_files.Target(output, overwrite), named, style, by, as_json)


@styles_app.command(offline=True)
def drops(
    experiment: StoredExperiment = None,
    metrics: MetricsOption = None,
    styles: Annotated[list[str] | None, typer.Option("--style", help="Only these; may be repeated.")] = None,
    over_seeds: OverSeedsOption = False,
    reference: ReferenceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """What each style costs each method, paired by question; loss of content told apart from loss to style."""
    from ragmeter.cli.commands import style_results

    style_results.drops(experiment, metrics, tuple(styles or ()), over_seeds, reference, store, as_json)


@styles_app.command(offline=True)
def curve(
    experiment: StoredExperiment = None,
    over: Annotated[
        str, typer.Option(help="mix: the share of formal candidates; k: passages read.", autocompletion=completion.words("mix", "k"))
    ] = "mix",
    metrics: MetricsOption = None,
    over_seeds: OverSeedsOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Methods against shares of formal candidates, or against the number of passages that are read."""
    from ragmeter.cli.commands import style_results

    style_results.curve(experiment, over, metrics, over_seeds, store, as_json)


@styles_app.command(offline=True)
def sensitivity(
    reference: Reference,
    rerankers: Annotated[
        list[str] | None, typer.Option("--reranker", metavar="ID", help="A reranker; may be repeated.", autocompletion=completion.methods)
    ] = None,
    options: Settings = None,
    experiment: Annotated[
        str | None, typer.Option(metavar="FILE|NAME", help="Whose methods' rerankers are measured.", autocompletion=completion.experiments)
    ] = None,
    profile: ProfileOption = None,
    styles: Annotated[list[str] | None, typer.Option("--style", help="May be repeated. [default: informal]")] = None,
    pairs: Annotated[
        Path | None, typer.Option(metavar="PAIRS", help="A file of style pairs; else the benchmark's own texts, else fixed rules.")
    ] = None,
    setting: SettingOption = None,
    limit: LimitOption = None,
    seed: Annotated[int, typer.Option(help="Of the setting.")] = 0,
    config: Config = None,
    path: DataPath = None,
    device: DeviceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """How far rerankers are moved when the same candidates are told in another style; no gold is needed."""
    from ragmeter.cli.commands import style_results as commands

    asked = commands.Asked(reference, config, path, setting, limit, seed, device)
    named = commands.Named(tuple(rerankers or ()), tuple(options or ()), experiment, profile)
    commands.show_sensitivity(asked, named, styles or ("informal",), pairs, store, as_json, quiet)
