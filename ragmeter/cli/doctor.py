"""`ragmeter doctor`: what is installed, what is missing, what to do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

from rich.text import Text

from benchmarks.core import errors
from benchmarks.core.errors import UserError, counted, how_to_install
from ragmeter.cli.options import App, Common
from ragmeter.show.console import out
from results import store_folder

app = App(help="Show what is installed, what is missing and how to fix it.")

PACKAGES = ("benchmarks", "methods", "judges", "results", "leaderboard", "ragmeter")
OK, MISSING, PROBLEM = "ok", "missing", "problem"
MARKS = {OK: ("✓", "green"), MISSING: ("–", "yellow"), PROBLEM: ("✗", "red")}


@dataclass(frozen=True)
class Finding:
    """Result of one check of the installation: `ok`, `missing` (optional) or `problem`."""

    what: str
    state: str
    detail: str
    remedy: str = ""


@app.command()
def doctor(common: Common) -> int:
    """Check the installation: packages, keys, data and hardware, with remedies."""
    findings = [*_packages(), *_extras(), _accelerator(), _check_data(), *_store(store_folder(common.folder)), *_plugins()]

    def show() -> None:
        for finding in findings:
            mark, style = MARKS[finding.state]
            out.print(Text(f"{mark} ", style=style) + Text(f"{finding.what}: ", style="bold") + Text(finding.detail))
            if finding.remedy:
                out.print(Text(f"    → {finding.remedy}"))

    common.emit([asdict(finding) for finding in findings], show)
    return 1 if any(finding.state == PROBLEM for finding in findings) else 0


def _packages() -> list[Finding]:
    """Check ragmeter's top-level packages, which have common names: another distribution in the same folder may overwrite their files."""
    from ragmeter.runner.provenance import installed

    owners, findings = packages_distributions(), []
    for name in PACKAGES:
        here = errors.HOME / name
        others = sorted(
            item for item in set(owners.get(name, [])) - {"ragmeter"} if Path(str(distribution(item).locate_file(name))).resolve() == here
        )
        if others:
            remedy = f"uninstall {', '.join(others)} and install ragmeter again, or give ragmeter an environment of its own"
            findings.append(Finding(f"package {name}", PROBLEM, f"also installed by {', '.join(others)}, in {here}", remedy))
    version = installed("ragmeter") or "running from source, not installed"
    return findings or [Finding("ragmeter", OK, f"{version}, at {errors.HOME}")]


def _extras() -> Iterator[Finding]:
    """Yield one package per extra, which shows whether the extra is installed."""
    from methods.registry import PROBES

    others = {"hub": "datasets", "metrics": "rouge_score", "notebook": "pandas", "leaderboard": "streamlit", "ann": "faiss"}
    others |= {"tantivy": "tantivy", "ray": "ray", "umap": "umap"}
    for extra, module in {**PROBES, **others}.items():
        if find_spec(module) is not None:
            yield Finding(f"extra {extra}", OK, f"{module} is installed")
        else:
            yield Finding(f"extra {extra}", MISSING, f"{module} is not installed", how_to_install(extra))


def _accelerator() -> Finding:
    if find_spec("torch") is None:
        return Finding("accelerator", MISSING, "torch is not installed", how_to_install("models"))
    import torch

    if torch.cuda.is_available():
        return Finding("accelerator", OK, ", ".join(map(torch.cuda.get_device_name, range(torch.cuda.device_count()))))
    return Finding("accelerator", OK, f"none; torch {torch.__version__} computes on {os.cpu_count()} processors")


def _check_data() -> Finding:
    value = os.environ.get("RAGMETER_DATA")
    if not value:
        remedy = "set it to a folder with one folder per dataset; worlds work without it"
        return Finding("RAGMETER_DATA", MISSING, "not set: authors' files are not found by name", remedy)
    folder = Path(value)
    if not folder.is_dir():
        return Finding("RAGMETER_DATA", PROBLEM, f"{folder} is not a folder", "correct or unset it")
    return Finding("RAGMETER_DATA", OK, f"{folder}: " + ", ".join(sorted(path.name for path in folder.iterdir() if path.is_dir())))


def _store(folder: Path) -> Iterator[Finding]:
    import duckdb

    from ragmeter.runner.tasks import MINIMUM_FREE_BYTES
    from results.store.database import Database
    from results.store.mounts import refuse_network

    existing = next(position for position in (folder, *folder.parents) if position.exists())
    database = Database(folder)
    if not database.exists:
        yield Finding("store", OK, f"{folder} (not made yet: the first run makes it)")
    else:
        try:
            with database.reading() as connection:
                (runs,) = connection.execute("SELECT count(*) FROM runs").fetchone() or (0,)
            yield Finding("store", OK, f"{folder}, {counted(runs, 'run')}")
        except UserError as error:
            yield Finding("store", PROBLEM, f"{error.where or folder}: {error.what}", error.try_this or "")
        except duckdb.Error as error:
            # A damaged file is what doctor is asked about, and the database's own words are all that is known of it.
            what, remedy = str(error).partition("\n")[0], "restore it from a copy, or name another with --store FOLDER"
            yield Finding("store", PROBLEM, f"{database.path}: {what}", remedy)
    try:
        refuse_network(folder.absolute())
    except UserError as error:
        yield Finding("store", PROBLEM, f"{folder}: {error.what}", error.try_this or "")
    if not os.access(existing, os.W_OK):
        yield Finding("store", PROBLEM, f"{existing} cannot be written", "--store FOLDER or RAGMETER_STORE")
    free = shutil.disk_usage(existing).free
    yield Finding("disk", OK if free >= MINIMUM_FREE_BYTES else PROBLEM, f"{free / 2**30:.1f} GiB free at {existing}")


def _plugins() -> Iterator[Finding]:
    from benchmarks.registry import DATASETS
    from judges.metric import METRICS
    from methods.registry import METHODS

    for registry in (DATASETS, METHODS, METRICS):
        yield Finding(f"{registry.noun}s", OK, f"{sum(1 for _ in registry)} registered")
        for name, broken in registry.broken.items():
            yield Finding(f"plug-in {name}", PROBLEM, f"{broken.where}: {broken.cause}", broken.remedy)
