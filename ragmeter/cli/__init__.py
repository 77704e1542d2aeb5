"""The command `ragmeter`: bare nouns list, verbs do. Heavy imports happen inside the commands.

The files here are the commands with their arguments, `commands/` is what they do. How a command ends, and with which
exit code: `errors.py`.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from ragmeter.cli import options as completion
from ragmeter.cli.data import datasets_app
from ragmeter.cli.errors import BROKE, FINE, ended, tolerant
from ragmeter.cli.gate import bless, checkpoints_app, diff, gate
from ragmeter.cli.judge import annotate_app, judge_app, score
from ragmeter.cli.list import experiments, methods, metrics, published, report
from ragmeter.cli.options import (
    AllCommands,
    App,
    Commands,
    DeviceOption,
    Experiment,
    JsonOption,
    LimitOption,
    MetricsOption,
    OfflineOption,
    OverSeedsOption,
    ProfileOption,
    QuietOption,
    ReferenceOption,
    RunArgument,
    StoredExperiment,
    StoreOption,
    VerboseOption,
)
from ragmeter.cli.store import cache_app, results_app
from ragmeter.cli.styles import styles_app
from ragmeter.cli.submit import submission_app, submit, trec_app
from ragmeter.cli.train import compress, explain, synthesise_app, train

# -- The Tab key: what a shell asks, and an answer that holds nothing but the words that fit --
# Typer speaks with the shells; `options.py` says which names there are. Here is what lies between. Whatever goes
# wrong, nothing is offered: a traceback in the middle of somebody's command line helps nobody. And bash cuts a word such
# as `worlds/long:test` or `recall@5` into several before it asks, and puts what it is told in the place of the last one.


_VARIABLE = "_RAGMETER_COMPLETE"
_BASH = "complete_bash"
_BREAKS = ":=@"
"""Where bash ends a word (`COMP_WORDBREAKS`), of what occurs in names of ours."""
_SPECIAL = re.compile(r"[^\w%+=:@,./~#-]")
"""What a shell does not take as part of a word unless it is told to."""


def asked() -> bool:
    """Whether this process was started by a shell that completes a word."""
    return os.environ.get(_VARIABLE, "").startswith("complete_")


def answer(app: Any) -> int:
    """Print the words that a shell may offer, or nothing; returns the exit code."""
    in_bash = os.environ[_VARIABLE] == _BASH
    said, code, word = io.StringIO(), FINE, ""
    try:
        if in_bash:
            word = _whole_words(os.environ)
        with redirect_stdout(said), redirect_stderr(io.StringIO()):
            app(standalone_mode=False, prog_name="ragmeter")
    except SystemExit as end:
        # So typer ends an answer.
        code = end.code if isinstance(end.code, int) else FINE
    except (Exception, KeyboardInterrupt):
        return BROKE
    text = said.getvalue()
    sys.stdout.write("".join(f"{line}\n" for line in _for_bash(text.splitlines(), word)) if in_bash else text)
    return code


def _whole_words(environment: MutableMapping[str, str]) -> str:
    """Put together what bash cut; returns the word to be completed, as it is typed."""
    words = environment.get("COMP_WORDS", "").split("\n")
    at = int(environment.get("COMP_CWORD", 0))
    joined: list[str] = []
    place, after_break = at, False
    for number, word in enumerate(words):
        is_break = word != "" and set(word) <= set(_BREAKS)
        if joined and word and (is_break or after_break):
            joined[-1] += word
            place -= number <= at
        else:
            joined.append(word)
        after_break = is_break
    environment.update(COMP_WORDS="\n".join(joined), COMP_CWORD=str(place))
    return joined[place] if place < len(joined) else ""


def _for_bash(found: Sequence[str], word: str) -> Iterator[str]:
    """What bash is to put in the place of the last piece of a word, quoted where the word is not."""
    value = word.partition("=")[2] if word.startswith("-") else word
    there = value[: 1 + max(value.rfind(mark) for mark in _BREAKS)]
    plain = re.sub(r"\\(.)", r"\1", there).lstrip("'\"")
    for one in filter(None, found):
        rest = one.removeprefix(plain)
        yield rest if word[:1] in ("'", '"') else _SPECIAL.sub(lambda special: f"\\{special[0]}", rest)


# -- The command `ragmeter`: bare nouns list, verbs do. Heavy imports happen inside the commands --


app = App(
    name="ragmeter",
    cls=AllCommands,
    help="Benchmark and evaluation harness, with a leaderboard, for retrieval-augmented generation.",
    epilog="New here? `ragmeter demo` measures something in minutes, `ragmeter doctor` says what is missing. Every "
    "command has --json, --store and --help. Exit codes: 0 fine, 1 broke, 2 wrong usage or input, 100 and 101 from "
    "gate, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Help is plain text: "name[/subset]" is no markup.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
check_app = App(help="Conformance: does a method or dataset keep the contract?", no_args_is_help=True)
app.add_typer(check_app, name="check", cls=Commands)
app.add_typer(results_app, name="results", cls=Commands)
app.add_typer(cache_app, name="cache", cls=Commands)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"ragmeter {version('ragmeter')}\n")
        raise typer.Exit


@app.callback()
def ragmeter(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """Run one of the commands."""


@app.command(offline=True)
def run(
    experiment: Experiment,
    profile: ProfileOption = None,
    limit: LimitOption = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what the store holds of these tasks and begin again.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Ask questions that failed again.")] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first task that breaks.")] = False,
    device: DeviceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run an experiment: answer what is not answered yet, score it, print the table."""
    from ragmeter.cli.commands import run as running

    request = running.RunRequest(experiment, profile, limit, fresh, retry_failed, fail_fast, device)
    raise typer.Exit(running.run(request, store, as_json, quiet, verbose))


@app.command(offline=True)
def plan(
    experiment: Experiment,
    profile: ProfileOption = None,
    limit: LimitOption = None,
    check: Annotated[bool, typer.Option("--check", help="End with 2 if anything is missing that it needs.")] = False,
    device_class: Annotated[
        str | None, typer.Option(help="The GPU that hours are for: h100 (default), h200, a100, l40s, l4, 4090, v100.")
    ] = None,
    utilisation: Annotated[
        float | None, typer.Option(help="Share of its peak that is reached in training and reading; default 0.4.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what an experiment would take, what of it is done, and what it lacks here, without running anything."""
    from ragmeter.cli.commands import run as planning

    request = planning.PlanRequest(experiment, profile, limit, check, device_class, utilisation)
    raise typer.Exit(planning.plan(request, store, as_json))


@app.command(offline=True)
def resume(
    experiment: StoredExperiment = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Ask questions that failed again.")] = False,
    device: DeviceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Continue an experiment that was interrupted, from the file text kept in the store."""
    from ragmeter.cli.commands import run as running

    raise typer.Exit(running.resume(experiment, retry_failed, device, store, as_json, quiet, verbose))


@app.command(offline=True)
def demo(
    limit: LimitOption = None,
    device: DeviceOption = None,
    training: Annotated[bool, typer.Option("--training/--no-training", help="Train the approaches first, or leave them out.")] = True,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Train the four approaches small and measure them beside baselines (RAGMETER_DATA: on real samples, too)."""
    from ragmeter.cli.commands import demo

    raise typer.Exit(demo.demo(demo.Request(limit, device, training), store, as_json, quiet, verbose))


@app.command()
def table(
    experiment: StoredExperiment = None,
    metrics: MetricsOption = None,
    every: Annotated[bool, typer.Option("--all", help="Every run in the store, whatever its experiment.")] = False,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="text, csv, markdown, latex or json.",
            autocompletion=completion.words("text", "csv", "markdown", "latex", "json"),
        ),
    ] = "text",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of printing.")] = None,
    published: Annotated[bool, typer.Option("--published", help="Ours beside the papers' figures.")] = False,
    over_seeds: OverSeedsOption = False,
    reference: ReferenceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print an experiment's tables: value ± 95 % interval, and the paired difference to the reference."""
    from ragmeter.cli.commands import results

    request = results.Request(experiment, metrics, every, form, output, published, over_seeds, reference)
    results.table(request, store, as_json)


@app.command()
def runs(
    experiment: Annotated[
        str | None, typer.Argument(help="Only those of this experiment.", autocompletion=completion.stored_experiments)
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs in the store."""
    from ragmeter.cli.commands import results

    results.runs(experiment, store, as_json)


@app.command()
def show(
    run: RunArgument,
    question: Annotated[str | None, typer.Option(help="Show this question: its gold, the answer, the evidence.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a run: what it was, what it scored, where it comes from; or one of its questions."""
    from ragmeter.cli.commands import results

    results.show(run, question, store, as_json)


@app.command()
def serve(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8501,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--open", help="Open a browser window on it.")] = False,
    allow_submissions: Annotated[
        bool, typer.Option("--allow-submissions", help="Let whoever reaches the address check and store submissions.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Serve the leaderboard on this store; read-only unless submissions are allowed."""
    from leaderboard.server import serve as start
    from ragmeter.cli.commands.results import expect_store
    from ragmeter.console import emit
    from results import store_folder

    def told(url: str) -> None:
        emit({"url": url, "store": str(store_folder(store))}, as_json, lambda: None)

    expect_store(store_folder(store), quiet)

    # In a process of its own, and never from a folder in which a stranger's file could be taken for a module.
    submit = [sys.executable, "-P", "-m", "ragmeter.cli", "submit"] if allow_submissions else None
    raise typer.Exit(
        start(store_folder(store), port=port, host=host, open_browser=browser, submit=submit, on_start=told if as_json else None)
    )


@app.command("serve-model")
def serve_model(
    path: Annotated[str, typer.Argument(help="Folder or hub id of a causal language model.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    name: Annotated[str | None, typer.Option(help="What clients call the model (default: its folder's name)")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply, whatever a request asks for.")] = 256,
    batch_size: Annotated[int, typer.Option(min=1, help="Requests generated at once.")] = 8,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, float16 or auto (default: by device)")] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Serve a local language model as an OpenAI-compatible endpoint."""
    from ragmeter.cli.commands import results

    options = {"max_new_tokens": max_tokens, "batch_size": batch_size, "dtype": dtype}
    raise typer.Exit(results.serve_model(path, options, name, host, port, device, as_json, quiet))


@app.command()
def doctor(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Say what is installed, what is missing and what to do about it."""
    from ragmeter.cli.commands import doctor as diagnosis

    raise typer.Exit(diagnosis.doctor(store, as_json))


app.add_typer(datasets_app, name="datasets")
app.command()(methods)
app.command()(metrics)
app.command()(experiments)
app.command()(published)
app.add_typer(judge_app, name="judge", cls=Commands)
app.add_typer(annotate_app, name="annotate", cls=Commands)
app.add_typer(styles_app, name="styles", cls=Commands)
app.add_typer(synthesise_app, name="synthesise", cls=Commands)
app.command()(score)
app.command(offline=True)(compress)
app.command()(report)
app.command()(train)
app.command()(explain)
app.command()(submit)
app.command()(gate)
app.command()(diff)
app.command()(bless)
app.add_typer(checkpoints_app, name="checkpoints", cls=Commands)
app.add_typer(submission_app, name="submission", cls=Commands)
app.add_typer(trec_app, name="trec", cls=Commands)


@check_app.command("method")
def check_method(
    name: Annotated[str, typer.Argument(help="A registered method.", autocompletion=completion.methods)],
    config: Annotated[str | None, typer.Option(help="Its options as JSON.")] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Check that a method keeps the contract."""
    from ragmeter.cli.commands import list

    raise typer.Exit(list.method(name, config, as_json))


@check_app.command("dataset")
def check_dataset(
    name: Annotated[str, typer.Argument(help="A data reference: name[/subset][:split].", autocompletion=completion.references)],
    config: Annotated[str | None, typer.Option(help="Its options as JSON.")] = None,
    offline: OfflineOption = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Check that a dataset keeps the contract."""
    from ragmeter.cli.commands import list

    raise typer.Exit(list.dataset(name, config, as_json))


def main() -> None:
    """Run the command line; the one place where errors are shown."""
    # Threads that spin while they wait starve whatever else runs on the machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tolerant()
    sys.exit(answer(app) if asked() else ended(app))
