"""The commands around submissions and TREC files: their arguments; `ragmeter.cli.commands.submit` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragmeter.cli import options
from ragmeter.cli.options import App, JsonOption, LimitOption, QuietOption, RunArgument, SettingOption, StoreOption

submission_app = App(help="Make submissions: a template to begin with, a bundle to send.", no_args_is_help=True)
trec_app = App(help="TREC run and qrels files, out and in.", no_args_is_help=True)

CardOption = Annotated[Path | None, typer.Option("--card", help="The submission's card (YAML).")]
PathOption = Annotated[str | None, typer.Option("--path", help="The authors' data file, where it is not found in RAGMETER_DATA.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and score, store nothing.")]


def submit(
    predictions: Annotated[str | None, typer.Argument(help="Predictions (.jsonl, - for standard input) or a bundle (.zip).")] = None,
    card: CardOption = None,
    dry_run: DryRun = False,
    verify: Annotated[
        str | None, typer.Option(help="Compare this stored submission with a run made here, and promote it.", autocompletion=options.runs)
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="With --verify: our RUN (default: the one of its method)", autocompletion=options.runs)
    ] = None,
    tolerance: Annotated[str, typer.Option(help="With --verify: largest difference of a metric's mean, 0.5pp or 0.005.")] = "0.5pp",
    known_boards: Annotated[
        bool, typer.Option("--known-boards", help="Only for a board that the store has, as a server takes it.")
    ] = False,
    path: PathOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Take predictions made elsewhere: check them, score them here, store them as `submitted`."""
    from ragmeter.cli.commands import submit as submitting
    from ragmeter.cli.commands import submit as verifying

    if verify is not None:
        raise typer.Exit(verifying.verify(verify, against, tolerance, predictions, store, as_json))
    raise typer.Exit(submitting.submit(predictions, card, dry_run, path, store, as_json, quiet, known_boards=known_boards))


@submission_app.command("template")
def template(
    name: Annotated[str, typer.Argument(help="A data reference: name[/subset][:split].", autocompletion=options.references)],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    setting: SettingOption = None,
    limit: LimitOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the setting's draws.")] = 0,
    config: Annotated[str | None, typer.Option(help="The dataset's options as JSON.")] = None,
    passages: Annotated[bool, typer.Option("--passages", help="Write the passages and what each question may use, too.")] = False,
    path: PathOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a card with comments, the questions (ids and texts) and an empty predictions file."""
    from ragmeter.cli.commands import submit as submitting

    submitting.template(name, out, setting, limit, seed, config, passages, path, store, as_json)


@submission_app.command("bundle")
def bundle(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(help="The .zip to write.")],
    card: CardOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a stored run into one file that `ragmeter submit` takes elsewhere; a run of your own needs a card."""
    from ragmeter.cli.commands import submit as submitting

    submitting.bundle(run, file, card, store, as_json)


@trec_app.command("export")
def export(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(help="The run file to write.")],
    qrels: Annotated[Path | None, typer.Option(help="Write the questions' positives, too.")] = None,
    passages: Annotated[bool, typer.Option("--passages", help="Reduce sentences to their passages, as ranking metrics do.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a stored run's rankings as a TREC run file."""
    from ragmeter.cli.commands import submit as submitting

    submitting.trec_export(run, file, qrels, passages, store, as_json)


@trec_app.command("import")
def trec_import(
    file: Annotated[str, typer.Argument(help="A TREC run file, - for standard input.")],
    card: CardOption = None,
    dry_run: DryRun = False,
    path: PathOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Take a TREC run as a submission of rankings without answers."""
    from ragmeter.cli.commands import submit as submitting

    raise typer.Exit(submitting.submit(file, card, dry_run, path, store, as_json, quiet, is_trec=True))
