"""The command `ragmeter`: thirteen groups, of which only the one that was typed is imported.

A module a group; a command's declaration is its body. What a group does when it is called alone, and the options that
every command has: `options.py`. How a command ends, and with which exit code: `errors.py`.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ragmeter.cli.errors import BROKE, FINE, run_command, tolerant
from ragmeter.cli.options import Commands

GROUPS: dict[str, dict[str, str]] = {
    "Measure": {
        "demo": "Train the four approaches small and measure them beside baselines.",
        "run": "Run an experiment, continue one, or say with --dry-run what it would take.",
    },
    "Look": {
        "results": "Tables of what was measured; show a run, compare two, report, tag, export.",
        "leaderboard": "Serve the leaderboard on a store as web pages.",
    },
    "Decide": {"gate": "Decide whether a candidate is worse than a baseline (exit codes 0, 100, 101)."},
    "Bring": {
        "submit": "Submit predictions made elsewhere: template, check, add, verify, bundle.",
        "data": "Data: download, check, look at, restyle and synthesize it.",
    },
    "Methods": {
        "train": "Train an approach, stage after stage; list and check checkpoints.",
        "method": "A method at work: check it, build its index, explain one retrieval.",
        "judge": "Judge or score stored answers; win rates, judge cards, labels by people.",
    },
    "Find": {
        "list": "List datasets, methods, metrics, experiments, runs, judges, checkpoints, trainings.",
        "store": "What a store holds: export, import, delete runs and model replies.",
        "doctor": "Say what is installed, what is missing and what to do about it.",
    },
}
"""The page `ragmeter --help`: by section, the module of each name in this folder and what it is for."""
NAMES = tuple(name for groups in GROUPS.values() for name in groups)


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
    response, code, word = io.StringIO(), FINE, ""
    try:
        if in_bash:
            word = _whole_words(os.environ)
        with redirect_stdout(response), redirect_stderr(io.StringIO()):
            app(standalone_mode=False, prog_name="ragmeter")
    except SystemExit as end:
        # So typer ends an answer.
        code = end.code if isinstance(end.code, int) else FINE
    except (Exception, KeyboardInterrupt):
        return BROKE
    text = response.getvalue()
    sys.stdout.write("".join(f"{line}\n" for line in _for_bash(text.splitlines(), word)) if in_bash else text)
    return code


def _whole_words(environment: MutableMapping[str, str]) -> str:
    """Put together what bash cut; returns the word to be completed, as it is typed."""
    words = environment.get("COMP_WORDS", "").split("\n")
    at = int(environment.get("COMP_CWORD", 0))
    joined: list[str] = []
    position, after_break = at, False
    for number, word in enumerate(words):
        is_break = word != "" and set(word) <= set(_BREAKS)
        if joined and word and (is_break or after_break):
            joined[-1] += word
            position -= number <= at
        else:
            joined.append(word)
        after_break = is_break
    environment.update(COMP_WORDS="\n".join(joined), COMP_CWORD=str(position))
    return joined[position] if position < len(joined) else ""


def _for_bash(results: Sequence[str], word: str) -> Iterator[str]:
    """What bash is to put in the place of the last piece of a word, quoted where the word is not."""
    value = word.partition("=")[2] if word.startswith("-") else word
    there = value[: 1 + max(value.rfind(mark) for mark in _BREAKS)]
    plain = re.sub(r"\\(.)", r"\1", there).lstrip("'\"")
    for item in filter(None, results):
        rest = item.removeprefix(plain)
        yield rest if word[:1] in ("'", '"') else _SPECIAL.sub(lambda special: f"\\{special[0]}", rest)


# -- The groups --------------------------------------------------------------------------------------------------


class _Root(Commands):
    """The groups, imported one by one as they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help page."""
        return [*NAMES]  # the name `list` is that of a module here, once it is imported

    def get_command(self, ctx: Any, name: str) -> Any:
        """The group or command of a name; None where there is none."""
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
        """Complete names by the lines of the help page: none of them is imported for that."""
        lines = [TyperCommand(name, help=line) for groups in GROUPS.values() for name, line in groups.items()]
        page = TyperGroup(name=self.name, commands=lines, params=self.params)
        return page.shell_complete(typer.Context(page), incomplete)


app = typer.Typer(
    name="ragmeter",
    cls=_Root,
    help="Benchmark and evaluation harness, with a leaderboard, for retrieval-augmented generation.",
    epilog="New here? `ragmeter demo` measures something in minutes, `ragmeter doctor` says what is missing. Called alone, a "
    "group does its most useful thing. Exit codes: 0 fine, 1 broke, 2 wrong usage or input, 3 incomplete, 100 and 101 from "
    "gate, 130 interrupted.",
    no_args_is_help=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    # Help is plain text: "name[/subset]" is no markup.
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
    """Run one of the commands."""
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


def main() -> None:
    """Run the command line; the one place where errors are shown."""
    # Threads that spin while they wait starve whatever else runs on the machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tolerant()
    sys.exit(answer(app) if asked() else run_command(app))
