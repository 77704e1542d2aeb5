"""Processor seconds of commands that do little: `--help` of every group, a first run of 2 × 60 questions without a model, and one of
twenty questions with MiniLM. Beside the last: what its libraries take in a process without ragmeter, to load MiniLM and encode one text.

Modules are compiled beforehand, as an installation has them: PYTHONDONTWRITEBYTECODE has no effect here.

python -m perf.startup
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from methods.models.weights import locate
from perf.measuring import command_seconds, compiling, record, say
from ragmeter.cli import NAMES

HELP_S, RUN_S, MINILM_S = 0.35, 1.5, 7.0
ROUNDS = 3
SMALL = """\
name: small
benchmarks: [{id: worlds/multihop, split: test, limit: 60, config: {questions: 60}}]
methods: [{id: bm25}, {id: random}]
"""

MINILM = """\
name: minilm
benchmarks: [{id: worlds/multihop, split: test, limit: 20, config: {questions: 20}}]
methods: [{id: dense}]
"""


LIBRARIES = """\
from transformers import AutoModel, AutoTokenizer
AutoModel.from_pretrained({folder!r})(**AutoTokenizer.from_pretrained({folder!r})(['one text'], return_tensors='pt'))
"""


def seconds(*arguments: str) -> float:
    """Measure the CPU seconds of a command."""
    return command_seconds([sys.executable, "-m", "ragmeter.cli", *arguments], env=compiling())


def _run(experiment: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.yaml"
        path.write_text(experiment)
        return seconds("run", str(path), "--store", str(Path(folder) / "store"), "-q")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the minimum over a few rounds, and print it; exit code 1 if a target is missed."""
    helps = {name: round(min(seconds(name, "--help") for _ in range(ROUNDS)), 3) for name in NAMES}
    small, minilm = (round(min(_run(experiment) for _ in range(ROUNDS)), 3) for experiment in (SMALL, MINILM))
    code = {"minilm_libraries": LIBRARIES.format(folder=locate("minilm")), "minilm_torch": "import torch"}
    least = {
        name: min(command_seconds([sys.executable, "-c", text], env=compiling()) for _ in range(ROUNDS)) for name, text in code.items()
    }
    slow = [name for name, spent in helps.items() if spent > HELP_S]
    met = not slow and small <= RUN_S and minilm <= MINILM_S
    runs = {"small_run": {"target_s": RUN_S, "cpu_s": small}, "minilm_run": {"target_s": MINILM_S, "cpu_s": minilm}}
    bounds = {name: {"cpu_s": round(spent, 3)} for name, spent in least.items()}
    record("startup", {"help": {"target_s": HELP_S, "cpu_s": helps}, **runs, **bounds})
    say(
        f"startup.help at most {max(helps.values()):.2f} s, target <= {HELP_S:g}{', missed by ' + ', '.join(slow) if slow else ''}\n"
        f"startup.small_run {small:.2f} s, target <= {RUN_S:g}: {'met' if small <= RUN_S else 'MISSED'}\n"
        f"startup.minilm_run {minilm:.2f} s, target <= {MINILM_S:g}: {'met' if minilm <= MINILM_S else 'MISSED'}; its libraries alone "
        f"{least['minilm_libraries']:.2f} s, of which PyTorch {least['minilm_torch']:.2f} s"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
