"""`python -m tools.tiny_profiles FOLDER [NAME ...]`: run tiny profiles of shipped experiments, and keep what each came to as JSON.

A tiny profile has the rows of its experiment, on few questions, with random checkpoints or one step of each training: it
shows that everything starts, and no figure of it means anything. FOLDER gets the checkpoints (`tiny`, `real-base`), a store and
`results.json`. The same command resumes: an experiment that ran to its table is run again only if its file changed. Experiments on
real data are skipped, and said to be, if RAGMETER_DATA is not set.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.availability import absences
from benchmarks.core.errors import UserError
from benchmarks.core.files import whole_text
from benchmarks.core.fingerprint import fingerprint
from benchmarks.sources import DATA_VARIABLE, data_folder
from ragmeter import experiment as experiments
from ragmeter.runner.experiment import How, run_experiment
from results.boards.board import boards
from results.store.store import Store
from tools import real_base
from tools.tiny_checkpoints import make, published

if TYPE_CHECKING:
    from ragmeter.experiment import Experiment

PROFILE = "tiny"


def names() -> list[str]:
    """List the shipped experiments that have a tiny profile."""
    return [name for name, text in experiments.shipped().items() if f"\n  {PROFILE}:" in text]


def lacking(experiment: Experiment) -> str | None:
    """Explain which data an experiment lacks; None if it has all, or if a data folder is set that should hold them."""
    if data_folder() is not None:
        return None
    return next((str(error) for item in experiment.benchmarks for error in absences(item.reference, item.config)), None)


def run(name: str, store: Store) -> dict[str, Any]:
    """Run an experiment's tiny profile; return its results, or why it was skipped, refused or failed."""
    experiment = experiments.load(name, profile=PROFILE, store=store.folder)
    if (missing := lacking(experiment)) is not None:
        return {"ended": "skipped", "why": f"{DATA_VARIABLE} is not set; {missing}"}
    begun = time.process_time()
    try:
        if name == "clara/real" and not Path("real-base").exists():
            real_base.main(["real-base", "--steps", "2"])
        # One step needs no process of its own, which imports everything again.
        run_experiment(experiment, store, How(), talk=True)
    except UserError as error:
        return {"ended": "refused", "code": error.code, "why": str(error)}
    except Exception:
        # The others are run all the same.
        return {"ended": "failed", "why": traceback.format_exc()}
    tables = [board.to_json() for board in boards(store, experiment.name)]
    finished = bool(tables) and all(row["status"] == "finished" for table in tables for row in table["rows"])
    return {"ended": "finished" if finished else "incomplete", "cpu_seconds": round(time.process_time() - begun, 1), "tables": tables}


def run_all(folder: Path, chosen: Sequence[str]) -> Mapping[str, Any]:
    """Run the chosen experiments that have no complete result yet; each result is written when it is finished.

    Args:
        folder: Working folder, in which the profiles look for their checkpoints.
        chosen: Names of experiments.
    """
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    make(Path("tiny"))
    if not Path("tiny/published/cocom-light").exists():
        published(Path("tiny/published"))
    target, store, shipped = Path("results.json"), Store(Path("store")), experiments.shipped()
    known: dict[str, Any] = json.loads(target.read_text("utf-8")) if target.exists() else {}
    for name in chosen:
        text = fingerprint(shipped[name])
        if known.get(name, {}).get("ended") == "finished" and known[name]["text"] == text:
            continue
        known[name] = {"command": f"ragmeter run {name} --profile {PROFILE}", "text": text, **run(name, store)}
        whole_text(target, json.dumps(known, ensure_ascii=False, indent=2) + "\n")
    return {name: known[name] for name in chosen}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tiny profiles; exit code 1 if one fails; profiles whose data folder is not set are skipped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=names(), help="experiments (default: all that have a tiny profile)")
    options = parser.parse_args(argv)
    results = run_all(options.folder, options.names)
    left = {name: result for name, result in results.items() if result["ended"] != "finished"}
    for name, result in left.items():
        print(f"{name}: {result['ended']} {result.get('why', '')}")
    return 1 if any(result["ended"] != "skipped" for result in left.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
