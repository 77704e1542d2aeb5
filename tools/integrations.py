"""`python -m tools.integrations`: LangChain, LlamaIndex, Haystack, Weights & Biases and MLflow, run as the real packages.

They live in a virtual environment of their own (`.integrations/`), since their dependencies are not those of ragmeter. Each must
answer every question, and ragmeter must find the passages that it read. The trackers write to files, which are read back.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "integrations"
ENVIRONMENT = ROOT / ".integrations"
REQUIREMENTS = EXAMPLES / "requirements.txt"


def prepare(environment: Path) -> Path:
    """Create a virtual environment with ragmeter and the pinned packages, and return its Python."""
    python = environment / "bin" / "python"
    stamp = environment / "requirements.txt"
    if not stamp.is_file() or stamp.read_bytes() != REQUIREMENTS.read_bytes():
        venv.create(environment, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", REQUIREMENTS, "-e", ROOT], check=True)
        stamp.write_bytes(REQUIREMENTS.read_bytes())
    return python


def problems(board: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    """List what is wrong with the results of the example applications."""
    rows = {row["method"]: row for row in board["rows"]}
    missing = [f"{name}: not on the board" for name in names if name not in rows]
    return missing + [f"{line['method']}: {line['text']}" for line in board["health"] if line["code"] == "unmatched_contexts"]


READ_BACK = """
import json, mlflow
runs = mlflow.search_runs(experiment_names=['integrations'], output_format='list')
files = [[file.path for file in mlflow.artifacts.list_artifacts(run_id=run.info.run_id)] for run in runs]
print(json.dumps([[run.data.params['run'], run.data.metrics, own] for run, own in zip(runs, files)]))
"""


def tracker_problems(python: Path, store: Path, boards: list[dict[str, Any]]) -> list[str]:
    """Log the results of a store twice to each tracker, and list how the logged values differ from the boards."""
    variables = {
        **os.environ,
        "RAGMETER_STORE": str(store),
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(store),
        "MLFLOW_TRACKING_URI": f"sqlite:///{store / 'mlflow.db'}",
    }
    for tracker in ("mlflow", "mlflow", "wandb", "wandb"):
        command: list[str | Path] = [python, "-m", "ragmeter", "results", "log", "integrations", "--to", tracker]
        subprocess.run(command, check=True, env=variables, cwd=store)
    read = subprocess.run([python, "-c", READ_BACK], check=True, env=variables, cwd=store, capture_output=True)
    kept = {run: (metrics, files) for run, metrics, files in json.loads(read.stdout.splitlines()[-1])}
    wrong = []
    for row in (row for board in boards for row in board["rows"]):
        metrics, files = kept.pop(row["run"], ({}, []))
        values = [cell[part] for cell in row["metrics"].values() for part in ("value", "low", "high") if cell[part] is not None]
        wrong += [f"mlflow: {row['method']} lacks {value}" for value in values if value not in metrics.values()]
        wrong += [f"mlflow: {row['method']} has the files {files}"] if sorted(files) != ["notes.txt", "table.csv"] else []
        wrong += [f"wandb: {row['method']} was not written"] if not list(store.glob(f"wandb/offline-run-*-{row['run']}/*.wandb")) else []
    return wrong + [f"mlflow: has the run {run}, which no table has" for run in kept]


def main() -> int:
    """Run the examples; exit code 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--environment", type=Path, default=ENVIRONMENT, help="folder of the virtual environment")
    python = prepare(parser.parse_args().environment)
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "RAGMETER_STORE": folder, "HAYSTACK_TELEMETRY_ENABLED": "False"}
        command: list[str | Path] = [python, "-m", "ragmeter"]
        subprocess.run([*command, "run", EXAMPLES / "experiment.yaml"], check=True, env=variables)
        shown = subprocess.run([*command, "results", "table", "integrations", "--json"], check=True, env=variables, capture_output=True)
        document = json.loads(shown.stdout)
        boards = document if isinstance(document, list) else document.get("boards", [document])
        wrong = [line for board in boards for line in problems(board, ("langchain", "llamaindex", "haystack"))]
        wrong += tracker_problems(python, Path(folder), boards)
    for line in wrong:
        print(line, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
