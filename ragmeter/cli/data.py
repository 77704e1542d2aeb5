"""The command line of `ragmeter datasets`: what there is, where it is, whether it is right, what it consists of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ragmeter.cli import options
from ragmeter.cli.options import App, Commands, JsonOption, OfflineOption, QuietOption, StoreOption, VerboseOption


class _NamesShow(Commands):
    """`ragmeter datasets NAME` is short for `ragmeter datasets show NAME`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = ["show", *args, *(["--json"] if ctx.params.get("as_json") else [])]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete commands and, as a dataset's name may stand there too, datasets."""
        every = super().shell_complete(ctx, "")
        commands = super().shell_complete(ctx, incomplete)
        return commands + [type(every[0])(name) for name in options.datasets(ctx, incomplete)]


datasets_app = App(cls=_NamesShow, help="Datasets: list them, show one, fetch, verify, measure and read them, build corpora.")

Reference = Annotated[
    str, typer.Argument(metavar="REF", help="A data reference: name[/subset][:split].", autocompletion=options.references)
]
Config = Annotated[str | None, typer.Option(help="The dataset's options as JSON.")]
DataPath = Annotated[Path | None, typer.Option("--path", help="The authors' file, or the folder it is in; the option path.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out records that cannot be read; they are counted.")]


@datasets_app.callback(invoke_without_command=True)
def datasets(
    context: typer.Context,
    offline: OfflineOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """List datasets; NAME alone shows one."""
    if context.invoked_subcommand is None:
        from ragmeter.cli.commands import data as commands

        commands.list_all(as_json)


@datasets_app.command("list", offline=True)
def list_all(as_json: JsonOption = False) -> None:
    """List datasets: task, splits with sizes, licence, hub id, and what of them is on this machine."""
    from ragmeter.cli.commands import data as commands

    commands.list_all(as_json)


@datasets_app.command(offline=True)
def show(
    name: Annotated[str, typer.Argument(help="A registered dataset.", autocompletion=options.datasets)], as_json: JsonOption = False
) -> None:
    """Show a dataset's card and options, and where each split would be read from now."""
    from ragmeter.cli.commands import data as commands

    commands.show(name, as_json)


@datasets_app.command(offline=True)
def fetch(
    references: Annotated[
        list[str], typer.Argument(metavar="REF...", help="Data references: name[/subset][:split].", autocompletion=options.references)
    ],
    revision: Annotated[str | None, typer.Option(help="Commit, tag or branch, in place of the one that the card pins.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Fetch a split's files from the hub into its cache, verified; say what came."""
    from ragmeter.cli.commands import data as commands

    commands.fetch(references, revision, as_json, quiet)


@datasets_app.command(offline=True)
def verify(
    references: Annotated[
        list[str] | None, typer.Argument(metavar="REF...", help="Data references.", autocompletion=options.references)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every split whose files are on this machine.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="The files are cuts: fewer questions than the card says are no fault.")
    ] = False,
    alike: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="From which similarity questions of two splits are near-duplicates.")
    ] = 0.8,
    record: Annotated[Path | None, typer.Option(help="Write what was found (SHA-256 of files, fingerprints) to this file.")] = None,
    against: Annotated[Path | None, typer.Option(help="Compare with what was recorded in this file.")] = None,
    config: Config = None,
    path: DataPath = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Check splits against their cards and the contract, and name what is odd; exit code 1 where one is red."""
    from ragmeter.cli.commands import data_check

    request = data_check.Request(tuple(references or ()), every, partial, alike, record, against, config, path)
    raise typer.Exit(data_check.verify(request, as_json, quiet, verbose))


@datasets_app.command(offline=True)
def stats(
    reference: Reference,
    plot: Annotated[str | None, typer.Option(metavar="FILE|terminal", help="Histograms: FILE.html, .svg or .png, or `terminal`.")] = None,
    config: Config = None,
    path: DataPath = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Count and measure: questions, answers, passages, documents, their lengths, evidence, types."""
    from ragmeter.cli.commands import data

    data.stats(reference, config, path, plot, as_json, quiet)


@datasets_app.command(offline=True)
def sample(
    reference: Reference,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many records.")] = 3,
    seed: Annotated[int, typer.Option(help="Which ones are drawn.")] = 0,
    config: Config = None,
    path: DataPath = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Print records with their gold marked."""
    from ragmeter.cli.commands import data

    data.sample(reference, config, path, count, seed, as_json, quiet)


@datasets_app.command(offline=True)
def corpus(
    source: Annotated[Path, typer.Argument(help="A dump: a file, or a folder of files.")],
    target: Annotated[Path, typer.Argument(help="The corpus folder to build; an unfinished one is continued.")],
    layout: Annotated[
        str | None,
        typer.Option(
            help="dpr, atlas, jsonl or parquet [default: by the first file's content]",
            autocompletion=options.words("dpr", "atlas", "jsonl", "parquet"),
        ),
    ] = None,
    skip_bad: SkipBad = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Build a memory-mapped corpus from a dump of passages; a build that was cut off goes on."""
    from ragmeter.cli.commands import data as commands

    commands.corpus(source, target, layout, skip_bad, as_json, quiet)


@datasets_app.command(offline=True)
def contamination(
    train: Annotated[list[Path], typer.Option(help="A training file, or a folder of them; may be given several times.")],
    evaluation: Annotated[
        list[str],
        typer.Option("--eval", metavar="REF", help="An evaluation set; may be given several times.", autocompletion=options.references),
    ],
    contexts: Annotated[bool, typer.Option("--contexts", help="Look for passages too.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write every question's overlap to this file: .csv, .json or .jsonl.")] = None,
    top: Annotated[int, typer.Option(min=0, help="How many of the most overlapping questions to show.")] = 10,
    skip_bad: SkipBad = False,
    config: Config = None,
    path: DataPath = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Look for evaluation questions in training files: 13-gram overlap, question by question."""
    from ragmeter.cli.commands import data_check

    asked = data_check.Contamination(tuple(train), tuple(evaluation), contexts, output, top, skip_bad, config, path)
    data_check.contamination(asked, as_json, quiet)
