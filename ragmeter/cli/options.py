"""Define what commands share: arguments and options, signatures, and the behavior of groups."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from benchmarks.core.errors import UserError, unknown_name
from ragmeter.cli import completion
from results import DEFAULT_STORE, store_folder

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.status import Status

    from benchmarks.registry import Benchmark
    from methods.api import Services
    from results.store.store import Store


def argument(help: str, completes: completion.Complete | None = None, **how: Any) -> Any:
    """Declare a positional argument of a command, with help and shell completion, for use in its annotation."""
    return typer.Argument(help=help, autocompletion=completes, **how)


def option(help: str, *names: str, completes: completion.Complete | None = None, **how: Any) -> Any:
    """Declare an option of a command, for use in its annotation; without names, the parameter's name is used."""
    return typer.Option(*names, help=help, autocompletion=completes, **how)


RunArgument = Annotated[str, argument("Tag, fingerprint, or experiment/method/dataset/setting/seed.", completion.runs)]
RunsArgument = Annotated[
    list[str] | None, argument("Runs, with their names in `ragmeter list runs` (default: --experiment)", completion.runs)
]
ExperimentArgument = Annotated[
    str | None, argument("Experiment file or shipped name; with --resume, a stored one.", completion.experiments, metavar="FILE|NAME")
]
StoredExperiment = Annotated[str | None, argument("Experiment in the store (default: the newest)", completion.stored_experiments)]
OfExperiment = Annotated[
    str | None, option("Use all runs of this experiment (default: newest)", "--experiment", completes=completion.stored_experiments)
]
ProfileOption = Annotated[str | None, option("Profile of the file to apply.", completes=completion.profiles)]
MetricOption = Annotated[
    list[str] | None,
    option("Metric name or id; repeatable (default: those of the experiment)", "--metric", completes=completion.stored_metrics),
]
ReferenceOption = Annotated[
    str | None, option("Reference of the differences (default: the experiment's).", completes=completion.stored_methods)
]
WideOption = Annotated[bool, option("Show all columns of tables, however wide (default: those that fit).", "--wide")]
OverSeedsOption = Annotated[bool, option("Show one row for all training seeds of a method.", "--over-seeds")]
DataReference = Annotated[str, argument("Data reference: name[/subset][:split]; or your own file.", completion.references, metavar="REF")]
SettingOption = Annotated[str | None, option('Candidates, e.g. "corpus(retriever=bm25,n=50)" (default: the dataset\'s first)')]
ConfigOption = Annotated[Path | None, option("File of options.", "--config", metavar="FILE.yaml")]


def set_option(what: str) -> Any:
    """Declare the option `--set` of a command; `what` describes what it sets."""
    return option(f"{what}; may be repeated.", "--set", metavar="KEY=VALUE")


SetOption = Annotated[list[str] | None, set_option("Option; nested ones with dots (train.epochs=2)")]
DatasetSetOption = Annotated[list[str] | None, set_option("Dataset option, such as path=FILE or skip_bad=true")]
"""Option of commands about a dataset. Commands about a model accept the dataset's options as data.KEY=VALUE (`data_apart`)."""
SkipBadOption = Annotated[bool, option("Skip unreadable records; every table states how many.", "--skip-bad")]
OutputOption = Annotated[Path | None, option("File to write.", "--output", "-o")]
DeviceOption = Annotated[str | None, option("cpu, cuda, cuda:1 … (default: the best available)")]
ProcessesOption = Annotated[int | None, option("Processes that train together (default: one per GPU).", min=1)]
LimitOption = Annotated[int | None, option("Use only the first questions of each benchmark.", min=1)]
MaxUsdOption = Annotated[float | None, option("Stop before the total cost of model calls exceeds this.", min=0)]
MaxHoursOption = Annotated[float | None, option("Start no further call after this many hours.", min=0)]
MaxCallsOption = Annotated[int | None, option("Stop before the total number of model calls exceeds this.", min=0)]
SeedOption = Annotated[int, option("Random seed.", min=0)]


_WHOLE = 500


class Commands(TyperGroup):
    """Group of commands with an optional default command, which runs if no command of the group is named."""

    default: str | None = None

    @property
    def _takes(self) -> Any:
        """Return the first argument of the default command; None if it has none."""
        params = self.commands[self.default].params if self.default else ()
        return next((param for param in params if param.param_type_name == "argument"), None)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command before arguments that name no command, unless the first one looks like a misspelled command."""
        first = args[0] if args else "-"
        known = first in ("-h", "--help", *self.commands) or self._misspelled(ctx, first)
        # A shell that completes the first word is offered commands too.
        if self.default and not known and (args or not ctx.resilient_parsing) and (first.startswith("-") or self._takes):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _misspelled(self, ctx: Any, word: str) -> bool:
        """Return whether a word looks like a misspelled command: only letters, and not an argument of the default command (`restyle`)."""
        close = word.replace("-", "").isalpha() and get_close_matches(word, list(self.commands), cutoff=0.7)
        return bool(close) and not (self._takes and word in {item.value for item in self._takes.shell_complete(ctx, word)})

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Format the list of commands for `--help` without truncating lines."""
        alone = {self.default: " (default)"}
        listed = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        rows = [(name, item.get_short_help_str(limit=_WHOLE) + alone.get(name, "")) for name, item in listed if not item.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete commands of the group, and arguments of the default command."""
        result = super().shell_complete(ctx, incomplete)
        takes = not incomplete.startswith("-") and self._takes
        return result + (takes.shell_complete(ctx, incomplete) if takes else [])

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the group's options; for shell completion also those of the default command."""
        inner = self.commands[self.default].params if self.default and ctx.resilient_parsing else ()
        return [*super().get_params(ctx), *(item for item in inner if item.param_type_name == "option")]


def _go_offline(offline: bool) -> bool:
    if offline:
        from benchmarks.io.hub import go_offline

        go_offline()
    return offline


def _option(name: str, kind: Any, default: Any, *short: str, **how: Any) -> inspect.Parameter:
    annotation = Annotated[kind, typer.Option(f"--{name}", *short, **how)]
    return inspect.Parameter(name.replace("-", "_"), inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)


def _read_env(off: bool) -> bool:
    from ragmeter.cli import env_file

    return env_file.begin(off)


def _load_plugins(files: list[Path] | None) -> list[Path] | None:
    from benchmarks.core.plugins import PLUGIN, load_file

    for file in files or ():
        load_file(file, where=PLUGIN)
    return files


_FOLDER = f"Store folder (default: ./{DEFAULT_STORE})"
_HUB = "Use only the hub's cache, never the network."
_COMMON = (
    _option("offline", bool, False, callback=_go_offline, is_eager=True, help=_HUB),
    _option("store", Path | None, None, envvar="RAGMETER_STORE", help=_FOLDER, show_default=False),
    _option("json", bool, False, help="Print JSON for programs."),
    _option("no-env", bool, False, callback=_read_env, is_eager=True, help="Do not read variables from .env."),
    _option("quiet", bool, False, "-q", help="Results only, no progress."),
    _option("verbose", bool, False, "-v", help="More detail, tracebacks included."),
)
"""Common options in the order of `--help`."""
_PLUGIN = _option("plugin", list[Path] | None, None, callback=_load_plugins, help="Python file to load first; repeatable.", metavar="FILE")


@dataclass(frozen=True)
class Common:
    """Values of the options that every command has (--store, --json, --quiet, --verbose).

    Attributes:
        folder: Folder of the store from --store or RAGMETER_STORE; None uses the default of `store_folder`.
        json: Whether to print the result as JSON.
        quiet: Whether to hide progress.
        verbose: Whether to print more detail.
    """

    folder: Path | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False

    @property
    def talk(self) -> bool:
        """Return whether to show progress."""
        return not (self.quiet or self.json)

    @property
    def store(self) -> Store:
        """Return the store; a missing folder is created by the first write."""
        from results.store.store import Store

        return Store(store_folder(self.folder))

    def services(self, device: str | None = None, seed: int = 0) -> Services:
        """Return the services that methods, settings and models receive: device, seed, caches and artifacts of the store."""
        from methods.api import Services
        from ragmeter.runner.tasks import require_device

        require_device(device)
        store = self.store
        return Services(seed=seed, artifacts=store.artifacts, device=device, cache=store.cache)

    def load(
        self,
        reference: str,
        options: Mapping[str, Any],
        *,
        limit: int | None = None,
        setting: str | None = None,
        services: Services | None = None,
    ) -> Benchmark:
        """Load a dataset, optionally limited and put into a retrieval setting.

        Args:
            reference: `name[/subset][:split]`.
            options: The dataset's options.
            limit: Number of questions; None for all.
            setting: Retrieval setting; None uses the dataset's default.
            services: Services for the setting's retriever.
        """
        from benchmarks.io import hub
        from benchmarks.registry import load
        from methods.api import Services
        from ragmeter.experiment import candidate_retriever, in_setting, read_setting

        if not self.talk:
            hub.be_quiet()
        read = None if setting is None else read_setting(setting, "--setting")
        retriever = candidate_retriever(read) if read else None
        if retriever is not None:
            retriever.preflight()
        with self.status(f"loading {reference}"):
            benchmark = load(reference, options).limited(limit)
            if not benchmark.questions:
                raise UserError("this split holds no question", code="empty-split", where=reference)
            return benchmark if read is None else in_setting(read, benchmark, services or Services())

    def read_env(self, experiment: str) -> None:
        """Read the `.env` file next to an experiment file, in addition to that of the working directory."""
        from ragmeter.cli import env_file

        file = Path(experiment)
        if file.is_file() and not file.resolve().parent.samefile(Path()):
            env_file.read(file.parent)
            self.say_env()

    def say_env(self) -> None:
        """Print which variables were read from `.env` files since the last call."""
        from ragmeter.cli import env_file

        if lines := env_file.lines() if self.talk else []:
            from rich.text import Text

            from ragmeter.show.console import err

            for line in lines:
                err.print(Text(line, style="dim"), soft_wrap=True)

    def status(self, text: str) -> Status:
        """Show a status line while the block runs; nothing if progress is hidden."""
        from rich.console import Console
        from rich.status import Status
        from rich.text import Text

        from ragmeter.show.console import err

        return Status(Text(text), console=err if self.talk else Console(quiet=True))

    def emit(self, value: Any, show: Callable[[], None]) -> None:
        """Print a value as JSON, or call `show` to print it for people."""
        from ragmeter.show.console import emit

        emit(value, self.json, show)


class App(typer.Typer):
    """Group of commands whose parameter `common` adds --store, --json, --no-env, --quiet and --verbose.

    A number that a command returns is the exit code.
    """

    def __init__(self, *, default: str | None = None, **options: Any) -> None:
        group = type("Group", (Commands,), {"default": default})
        super().__init__(cls=group, rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False, **options)

    def command(self, name: str | None = None, *, offline: bool = False, plugin: bool = False, **options: Any) -> Callable[[Any], Any]:
        """Register a command as typer does; with `offline` and `plugin`, the command also gets these options."""
        register = super().command(name, **options)

        def registered(function: Callable[..., int | None]) -> Callable[..., int | None]:
            register(_with_common(function, offline, plugin))
            return function

        return registered


def _with_common(function: Callable[..., int | None], offline: bool, plugin: bool) -> Callable[..., None]:
    signature = inspect.signature(function, eval_str=True)
    parameters = [item for name, item in signature.parameters.items() if name != "common"]
    own = (_PLUGIN,) if plugin else ()

    @wraps(function)
    def command(**values: Any) -> None:
        shared = {option.name: values.pop(option.name, None) for option in (*_COMMON, *own)}
        common = Common(*(shared[name] for name in ("store", "json", "quiet", "verbose")))
        common.say_env()
        if code := function(**values, common=common):
            raise typer.Exit(code)

    command.__signature__ = signature.replace(parameters=[*parameters, *own, *_COMMON[not offline :]])  # type: ignore[attr-defined]
    return command


def one_of(word: str, known: Iterable[str], noun: str, where: str) -> Any:
    """Check that a word is one of the known ones and return it; the error suggests the nearest."""
    names = list(known)
    if word not in names:
        raise unknown_name(noun, word, names, where=where)
    return word


def show_options(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print options as a table (`option_rows`)."""
    import json

    from ragmeter.show.console import listing

    lines = [(row["name"], row["type"], json.dumps(row["default"]), row["description"]) for row in rows]
    listing(("option", "type", "default", ""), lines, empty="it has no options")


def print_card(name: str, summary: str, facts: Mapping[str, Any], config: type[BaseModel]) -> None:
    """Print a registered entry's name, summary, facts and options."""
    from rich.text import Text

    from ragmeter.cli.config_options import option_rows
    from ragmeter.show.console import listing, out

    out.print(Text(name, style="bold") + Text("  " + summary))
    listing(("", ""), facts.items(), empty="")
    out.print()
    show_options(option_rows(config))
