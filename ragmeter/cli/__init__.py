"""The command `ragmeter`: fourteen groups, of which only the one that was typed is imported.

One module per group; a command's declaration is its body. What a group does when it is called alone, and the options that
every command has: `options.py`. How a command ends, and with which exit code: `errors.py`.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from importlib import import_module
from typing import Annotated, Any

# NumPy's and SciPy's linear algebra starts a thread per core, each of which waits actively for work for about 0.1 s. This is
# read when they are imported; the value is the logarithm of the number of cycles.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

import typer
from typer.core import TyperCommand, TyperGroup

from ragmeter.cli.errors import end_process, run_command, tolerant
from ragmeter.cli.options import Commands

GROUPS: dict[str, dict[str, str]] = {
    "Measure": {
        "demo": "Compare the four approaches with their baselines, as shipped or trained small.",
        "init": "Write an experiment for your documents, questions, app or model.",
        "run": "Run, continue (--resume) or plan (--dry-run) an experiment.",
    },
    "Look": {
        "results": "Tables; show RUN QUESTION, compare, tag, report, export (TREC).",
        "leaderboard": "Serve the leaderboard on a store as web pages.",
    },
    "Decide": {"gate": "Decide whether a candidate is worse than a baseline by more than --margin."},
    "Bring": {
        "submit": "Predictions made elsewhere: template, check, add, accept, reject, verify.",
        "data": "Datasets: download, check, sample, measure, restyle; write questions.",
    },
    "Methods": {
        "train": "Train an approach, stage after stage; list and check checkpoints.",
        "method": "check, index, explain NAME QUESTION --benchmark DATA.",
        "judge": "Stored answers: run judges, score by more metrics, cards, labels.",
    },
    "Find": {
        "list": "Datasets, methods, metrics, experiments, runs, judges, checkpoints.",
        "store": "Disk space; export, import or delete (prune) runs, cached replies.",
        "doctor": "Show what is installed, what is missing and how to fix it.",
    },
}
"""Sections of `ragmeter --help`: for each command name its module in this folder and its help text."""
NAMES = tuple(name for groups in GROUPS.values() for name in groups)


class _Root(Commands):
    """Group that imports commands when they are used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return names in the order of the help page."""
        return [*NAMES]  # the name `list` is that of a module here, once it is imported

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return the group or command of a name; None if there is none."""
        if name in NAMES and name not in self.commands:
            self.commands[name] = typer.main.get_command(import_module(f"ragmeter.cli.{name}").app)
            self.commands[name].name = name
        return self.commands.get(name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the sections of the help page."""
        for title, groups in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([*groups.items()], col_max=14)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete names from the lines of the help page, without importing commands."""
        lines = [TyperCommand(name, help=line) for groups in GROUPS.values() for name, line in groups.items()]
        page = TyperGroup(name=self.name, commands=lines, params=self.params)
        return page.shell_complete(typer.Context(page), incomplete)


app = typer.Typer(
    name="ragmeter",
    cls=_Root,
    help="Benchmark and evaluation harness, with a leaderboard, for retrieval-augmented generation.",
    epilog="New here? `ragmeter demo` measures something in minutes. A group without a command runs its most common one. Exit codes: "
    "0 fine, 1 error, 2 wrong usage or input, 100 and 101 from gate, 129 hung up, 130 interrupted, 143 terminated.",
    no_args_is_help=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    # Help is plain text: "name[/subset]" is not markup.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"ragmeter {version('ragmeter')}\n")
        raise typer.Exit


@app.callback()
def ragmeter(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """Benchmark and evaluate retrieval-augmented generation."""
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


def main() -> None:
    """Run the command line; the only place where errors are printed."""
    # Threads that spin while they wait slow down other processes of the machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Imports leave hardly any garbage, and a short command makes fewer than 200,000 objects: collecting took a tenth of its time.
    gc.set_threshold(200_000)
    codes: list[int] = []
    command = sys.modules["__main__"]
    if getattr(command, "main", None) is main and hasattr(command, "__file__"):
        atexit.register(end_process, codes)
    tolerant()
    codes.append(run_command(app))
    sys.exit(codes[0])
