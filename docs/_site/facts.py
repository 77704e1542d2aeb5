"""Reference pages about the command line, the environment, published weights and figures, and released checkpoints."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from docs._site.markdown import code, page, table
from ragmeter.cli import GROUPS, NAMES, app
from ragmeter.experiments import shipped
from results.boards.paper_figures import figures, papers

HERE = Path(__file__).parent
COMMON = 5
"""Commands that have an option from which on it is listed with the common ones."""


@cache
def facts() -> dict[str, Any]:
    """Return what `facts.yaml` holds."""
    return dict(yaml.safe_load((HERE / "facts.yaml").read_text("utf-8")))


def environment_page() -> str:
    """Return the page of environment variables."""
    lead = (
        "No variable has to be set. A variable holds for every command; an option on the command line wins over it. Commands also read "
        "`.env` in the working directory and next to the experiment (extra `llm`), which never overrides a variable that is set; "
        "`--no-env` turns that off. `ragmeter doctor` shows what is found."
    )
    rows = [(code(name), meaning, default) for name, meaning, default in facts()["environment"]]
    return page("Environment variables", lead, [table(("variable", "meaning", "default"), rows)])


def weights_page() -> str:
    """Return the page of published checkpoints."""
    lead = (
        "Checkpoints of other authors that have a preset or an importer, with the license of the revision as far as it is known here. "
        "Memory is that of the weights in bfloat16 unless stated. `ragmeter run --dry-run` lists what is missing, including licenses to "
        "accept. None of these checkpoints has been run here; [released checkpoints](released.md) lists what was compared with the "
        "authors' code."
    )
    heads = ("option", "weights", "license", "memory")
    return page("Published weights", lead, (f"## {kind}\n\n{table(heads, rows)}" for kind, rows in facts()["weights"].items()), wide=True)


def released_page() -> str:
    """Return the page that says how far released checkpoints equal their authors' code; tests write its table."""
    lead = (
        "A released checkpoint gives its authors' numbers only if it reads the tokens that it was trained on. If authors published the "
        "prompt of a checkpoint, ragmeter uses it, and stops before the first question if it cannot be downloaded. The tests compare "
        "ragmeter with outputs of the authors' code from raw text, also with odd white space, Unicode, special tokens, braces, empty and "
        "overlong texts."
    )
    return page("Released checkpoints", lead, [(HERE / "released.md").read_text("utf-8")], wide=True)


def published_page() -> str:
    """Return the page of published figures that contradict their own paper."""
    lead = (
        "Figures that contradict the paper that prints them. They are kept as printed; a test recomputes averages, gains, claims to be "
        "best and repeated rows. How to use the figures: [Published figures](../published.md)."
    )
    counts = table(("paper", "figures"), [(name, f"{len(figures(name)):,}") for name in papers()])
    wrong = dict.fromkeys(
        (f.paper, f.table, f.method, f.dataset, f.metric, f"{f.value} {f.unit}", f.misprint)
        for name in papers()
        for f in figures(name)
        if f.misprint
    )
    heads = ("paper", "table", "method", "dataset", "metric", "printed", "misprint")
    return page("Misprints of published figures", lead, [counts, table(heads, [tuple(map(str, row)) for row in wrong])], wide=True)


def experiments_page() -> str:
    """Return the page of the experiments that ship."""
    lead = "Experiments that ship with ragmeter: `ragmeter run NAME`, with `--dry-run` for the plan, `--profile PROFILE` for a variant."
    rows = []
    for name, text in shipped().items():
        content = yaml.safe_load(text)
        rows.append((code(name), content.get("description", ""), ", ".join(map(code, content.get("profiles", {})))))
    return page("Experiments", lead, [table(("name", "measures", "profiles"), rows)], wide=True)


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with the words that call it."""
    from typer.main import get_command

    def walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "list_commands"):
            yield path, command
            return
        context = command.make_context(path, [], resilient_parsing=True)
        for name in command.list_commands(context):
            if not (inner := command.get_command(context, name)).hidden:
                yield from walk(f"{path} {name}", inner)

    root = get_command(app)
    context = root.make_context("ragmeter", [], resilient_parsing=True)
    for group in NAMES:
        yield from walk(f"ragmeter {group}", root.get_command(context, group))  # type: ignore[attr-defined]


def common_options() -> list[tuple[str, str]]:
    """Return the options that mean the same in most of several commands, with their help text."""
    texts: dict[str, Counter[str]] = defaultdict(Counter)
    for path, command in commands():
        context = command.make_context(path, [], resilient_parsing=True)
        for parameter in command.params:
            record = parameter.get_help_record(context)
            if record and record[0].startswith("-") and not getattr(parameter, "hidden", False):
                texts[parameter.opts[0]][" ".join(record[1].partition("  [")[0].split())] += 1
    usual = {name: (*help.most_common(1)[0], help.total()) for name, help in texts.items()}
    return [(name, help) for name, (help, times, total) in sorted(usual.items()) if total >= COMMON and 2 * times > total]


CLI = """One option means the same in every command. An option with several values is repeated; there are no comma lists.
`--set KEY=VALUE` sets an option of a dataset, method, judge or training (nested ones with dots), and `--output` names what to write.
`RUN` is the beginning of a run's fingerprint, its path `experiment/method/dataset/setting/seed` (leading parts may be left out), or a
[tag](../checkpoints.md#tags). `REF` is a data reference, `name[/subset][:split]`.

Results go to standard output; progress, messages and errors go to standard error. With `--json` an error is one JSON object on standard
error, `{"error": {"what": …, "where": …, "try": …}}`. Values in JSON are fractions; `null` is "no value", never zero."""
COMPLETION = """```bash
ragmeter --install-completion     # bash, zsh, fish or PowerShell; then open a new shell
ragmeter --show-completion        # print the script
```

Commands, options and names complete: methods, metrics, trainings with presets, data references part by part, experiments with
profiles, and what a store holds. bash splits words at colons, so a split is offered together with its dataset."""
EXITS = """Once tasks run, a task that crashes ends the run with 1. If none crashes but some are incomplete, it is 3."""


def cli_page() -> str:
    """Return the page of what all commands share: groups, common options, exit codes, completion."""
    groups = [(f"[{code(name)}](cli-{name}.md)", line) for lines in GROUPS.values() for name, line in lines.items()]
    codes = [(str(number), meaning, examples) for number, meaning, examples in facts()["exit_codes"]]
    parts = (
        table(("group", "does"), groups),
        "## Common options",
        CLI,
        table(("option", "meaning"), [(code(name), help) for name, help in common_options()]),
        "## Exit codes",
        table(("code", "meaning", "for example"), codes),
        EXITS,
        "## Completion",
        COMPLETION,
    )
    return page(
        "The command line",
        "A group without a command runs its most common one. Each group has a page with its commands and options.",
        parts,
    )
