"""`doctor`: what is installed, what is missing, what to do."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path

import duckdb
from rich.text import Text

from benchmarks.core.errors import UserError, counted
from benchmarks.registry import DATASETS
from judges.metric import METRICS
from methods.registry import METHODS, PROBES
from ragmeter.console import emit, out
from ragmeter.runner.provenance import installed
from ragmeter.runner.tasks import MINIMUM_FREE_BYTES
from results import store_folder
from results.database import Database

HOME = Path(__file__).resolve().parents[3]
ROOMS = ("benchmarks", "methods", "judges", "results", "leaderboard", "ragmeter")
EXTRAS = {**PROBES, "hub": "datasets", "metrics": "rouge_score", "notebook": "pandas", "leaderboard": "streamlit", "ann": "faiss"}
"""A package of each extra, by which it is seen whether the extra is installed."""


@dataclass(frozen=True)
class Finding:
    """One thing looked at: `ok`, `missing` (optional) or `problem`."""

    what: str
    state: str
    detail: str
    remedy: str = ""


def doctor(folder: Path | None, as_json: bool) -> int:
    """Print the findings; 1 where one of them is a problem."""
    found = [*_rooms(), *_extras(), _accelerator(), *_data(), *_store(store_folder(folder)), *_plugins()]

    def show() -> None:
        marks = {"ok": ("✓", "green"), "missing": ("–", "yellow"), "problem": ("✗", "red")}
        for finding in found:
            mark, style = marks[finding.state]
            out.print(Text(f"{mark} ", style=style) + Text(f"{finding.what}: ", style="bold") + Text(finding.detail))
            if finding.remedy:
                out.print(Text(f"    → {finding.remedy}"))

    emit([asdict(finding) for finding in found], as_json, show)
    return 1 if any(finding.state == "problem" for finding in found) else 0


def _rooms() -> list[Finding]:
    """Our top-level packages have common names: another distribution in the same folder writes over our files."""
    owners = packages_distributions()
    findings = []
    for room in ROOMS:
        others = sorted(
            name
            for name in set(owners.get(room, [])) - {"ragmeter"}
            if Path(str(distribution(name).locate_file(room))).resolve() == HOME / room
        )
        if others:
            remedy = f"uninstall {', '.join(others)} and install ragmeter again, or give ragmeter an environment of its own"
            findings.append(Finding(f"package {room}", "problem", f"also installed by {', '.join(others)}, in {HOME / room}", remedy))
    version = installed("ragmeter") or "running from source, not installed"
    return findings or [Finding("ragmeter", "ok", f"{version}, at {HOME}")]


def _extras() -> list[Finding]:
    findings = []
    for extra, module in EXTRAS.items():
        if find_spec(module) is not None:
            findings.append(Finding(f"extra {extra}", "ok", f"{module} is installed"))
        else:
            findings.append(Finding(f"extra {extra}", "missing", f"{module} is not installed", _install(extra)))
    return findings


def _install(extra: str) -> str:
    """How an extra is installed: from the clone that this is, or else package by package, as no index has ragmeter."""
    if (HOME / "pyproject.toml").is_file():
        pinned = " -c constraints.txt" if (HOME / "constraints.txt").is_file() else ""
        return f"in {HOME}: pip install '.[{extra}]'{pinned}"
    packages = _packages(extra)
    return f"pip install {' '.join(map(repr, packages))}" if packages else f"from a clone: pip install '.[{extra}]'"


def _packages(extra: str) -> list[str]:
    """What an extra installs, by ragmeter's own metadata; extras that it names itself are followed."""
    found: list[str] = []
    try:
        lines = requires("ragmeter") or []
    except PackageNotFoundError:
        return found
    for line in lines:
        what, _, marker = line.partition(";")
        if re.search(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]", marker):
            inner = re.fullmatch(r"ragmeter\[([\w,-]+)\]", what.strip())
            found += [one for name in inner[1].split(",") for one in _packages(name)] if inner else [what.strip()]
    return list(dict.fromkeys(found))


def _accelerator() -> Finding:
    if find_spec("torch") is None:
        return Finding("accelerator", "missing", "torch is not installed", _install("models"))
    import torch

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
        return Finding("accelerator", "ok", names)
    return Finding("accelerator", "ok", f"none; torch {torch.__version__} computes on {os.cpu_count()} processors")


def _data() -> list[Finding]:
    value = os.environ.get("RAGMETER_DATA")
    if not value:
        remedy = "set it to a folder with one folder per dataset; worlds work without it"
        return [Finding("RAGMETER_DATA", "missing", "not set: authors' files are not found by name", remedy)]
    folder = Path(value)
    if not folder.is_dir():
        return [Finding("RAGMETER_DATA", "problem", f"{folder} is not a folder", "correct or unset it")]
    return [Finding("RAGMETER_DATA", "ok", f"{folder}: " + ", ".join(sorted(p.name for p in folder.iterdir() if p.is_dir())))]


def _store(folder: Path) -> list[Finding]:
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    findings = []
    database = Database(folder)
    if not database.exists:
        findings.append(Finding("store", "ok", f"{folder} (not made yet: the first run makes it)"))
    else:
        try:
            with database.reading() as connection:
                row = connection.execute("SELECT count(*) FROM runs").fetchone()
            findings.append(Finding("store", "ok", f"{folder}, {counted(row[0] if row else 0, 'run')}"))
        except UserError as error:
            place = error.where or str(folder)
            findings.append(Finding("store", "problem", f"{place}: {error.what}", error.try_this or ""))
        except duckdb.Error as error:
            # A damaged file is what doctor is asked about, and the database's own words are all that is known of it.
            said, remedy = str(error).partition("\n")[0], "restore it from a copy, or name another with --store FOLDER"
            findings.append(Finding("store", "problem", f"{database.path}: {said}", remedy))
    if not os.access(existing, os.W_OK):
        findings.append(Finding("store", "problem", f"{existing} cannot be written", "--store FOLDER or RAGMETER_STORE"))
    state = "ok" if free >= MINIMUM_FREE_BYTES else "problem"
    findings.append(Finding("disk", state, f"{free / 2**30:.1f} GiB free at {existing}"))
    return findings


def _plugins() -> list[Finding]:
    findings = []
    for registry in (DATASETS, METHODS, METRICS):
        count = sum(1 for _ in registry)
        findings.append(Finding(f"{registry.noun}s", "ok", f"{count} registered"))
        for name, reason in registry.broken.items():
            remedy = f"repair or uninstall the package behind entry point {name!r} of {registry.group}"
            findings.append(Finding(f"plug-in {name}", "problem", reason, remedy))
    return findings
