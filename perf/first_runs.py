"""Twenty first runs of one experiment, each in a new process and a new store: their tables must be equal.

python -m perf.first_runs [--runs N]

BM25, a dense retriever and a reader at an endpoint overlap while PyTorch is imported, which is where errors of our own
code used to fail questions.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from perf.measuring import record
from tests.support.server import ChatRequest, OpenAIServer, Written

RUNS = 20
EXPERIMENT = """\
name: first-runs
benchmarks: [{{id: worlds/multihop, split: test, setting: distractor, limit: 24}}]
methods:
  - {{id: bm25, name: bm25, reader: retrieval_only}}
  - {{id: dense, name: dense, reader: retrieval_only}}
  - {{id: bm25, name: rag, reader: {{id: chat, config: {{llm: {{model: m, base_url: "{url}", key_variable: null}}}}}}}}
metrics: [em, recall@5]
"""


def answer(request: ChatRequest) -> Written:
    """Answer a request with the title of the first passage."""
    title = re.search(r"\[1\] ([^:\n]{1,60}):", request.prompt)
    return Written(title[1] if title else "ok", 10, 2)


def table(url: str) -> tuple[int, str]:
    """Run an experiment for the first time; return the exit code, and the values by method and metric as JSON."""
    with tempfile.TemporaryDirectory() as made:
        file = Path(made) / "x.yaml"
        file.write_text(EXPERIMENT.format(url=url))
        command = [sys.executable, "-m", "ragmeter.cli", "run", str(file), "--store", str(Path(made) / "store"), "-q", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        rows = json.loads(done.stdout)["boards"][0]["rows"]
    except (ValueError, LookupError):
        return done.returncode, done.stderr[-500:]
    return done.returncode, json.dumps([[row["method"], row["metrics"]] for row in rows], sort_keys=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run repeatedly and record; exit code 1 if the tables are not all equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    runs = parser.parse_args(argv).runs
    with OpenAIServer("m", answer, any_model=True).running() as url:
        results = Counter(table(url) for _ in range(runs))
    (code, value), count = results.most_common(1)[0]
    equal = count == runs and code == 0
    record("first_runs", {"tables": {"runs": runs, "different_tables": len(results), "exit_codes": sorted({code for code, _ in results})}})
    sys.stdout.write(f"first_runs.tables {len(results)} different of {runs} (target 1): {'met' if equal else 'MISSED'}\n{value[:300]}\n")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
