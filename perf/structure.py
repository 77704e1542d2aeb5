"""Size and shape of the code: files, lines, options, modules that a run passes, and the processor seconds of a small run.

python -m perf.structure [--before CHECKOUT]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perf.measuring import record, say

HERE = Path(__file__).resolve().parents[1]


def measured(checkout: Path) -> dict[str, Any]:
    """Measure the structure figures of a checkout (`_structure.py`), and return them with its commit."""
    source = (HERE / "perf" / "_structure.py").read_text("utf-8")
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run([sys.executable, "-c", source], cwd=checkout, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    git = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {**json.loads(done.stdout.splitlines()[-1]), "of_commit": git.stdout.strip() or None}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and record this checkout, and another one as `before`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="another checkout")
    before = parser.parse_args(argv).before
    results = {"now": measured(HERE)} | ({} if before is None else {"before": measured(before.resolve())})
    record("structure", results)
    for name, figures in results.items():
        run = figures["run"]
        say(
            f"structure.{name} {figures['files']} files, {figures['code_lines']:,} lines of code, {figures['yaml_lines']:,} lines of YAML, "
            f"{figures['options']['all']:,} options; a run passes {run['modules']} modules of ragmeter with {run['climbs']} climbs "
            f"({len(run['stack'])} on the stack of a write); {figures['small_run_cpu_s']:.2f} s of CPU"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
