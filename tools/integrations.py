"""`python -m tools.integrations`: the examples with LangChain, LlamaIndex and Haystack, run against the real packages.

They live in a virtual environment of their own (`.integrations/`), since their dependencies are not those of ragmeter. Each must
answer every question, and ragmeter must find the passages that it read.
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

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "integrations"
ENVIRONMENT = ROOT / ".integrations"
REQUIREMENTS = EXAMPLES / "requirements.txt"


def prepare(environment: Path) -> Path:
    """Make the environment with ragmeter and the pinned packages; returns its Python."""
    python = environment / "bin" / "python"
    stamp = environment / "requirements.txt"
    if not stamp.is_file() or stamp.read_bytes() != REQUIREMENTS.read_bytes():
        venv.create(environment, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", REQUIREMENTS, "-e", ROOT], check=True)
        stamp.write_bytes(REQUIREMENTS.read_bytes())
    return python


def problems(board: dict[str, object], names: tuple[str, ...]) -> list[str]:
    """Return what is wrong with the results of the applications."""
    rows = {row["method"]: row for row in board["rows"]}  # type: ignore[attr-defined]
    missing = [f"{name}: not on the board" for name in names if name not in rows]
    return missing + [f"{line['method']}: {line['text']}" for line in board["health"] if line["code"] == "unmatched_contexts"]  # type: ignore[attr-defined]


def main() -> int:
    """Run the examples."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--environment", type=Path, default=ENVIRONMENT, help="folder of the virtual environment")
    python = prepare(parser.parse_args().environment)
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "RAGMETER_STORE": folder, "HAYSTACK_TELEMETRY_ENABLED": "False"}
        command = [python, "-m", "ragmeter"]
        subprocess.run([*command, "run", EXAMPLES / "experiment.yaml"], check=True, env=variables)
        shown = subprocess.run([*command, "results", "table", "integrations", "--json"], check=True, env=variables, capture_output=True)
    document = json.loads(shown.stdout)
    boards = document if isinstance(document, list) else document.get("boards", [document])
    wrong = [line for board in boards for line in problems(board, ("langchain", "llamaindex", "haystack"))]
    for line in wrong:
        print(line, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
