"""The scripts of `docs/gpus.md` for Slurm, with stand-ins for the commands that they call."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpus.md"
STAND_INS = {
    "scontrol": "printf 'node1\\nnode2\\n'",
    "sleep": "exit 0",
    "srun": 'echo "srun $*" >> "$LOG"',
    "ray": 'echo "ray $*" >> "$LOG"',
    "ragmeter": """\
echo "ragmeter $*" >> "$LOG"
while [ "$1" != --store ]; do shift; done
trap 'echo stored >> "$2/answers"; exit 143' TERM
echo begun >> "$2/answers"
if [ -e "$HOLD" ]; then echo log > "$2/store.duckdb.wal"; rm "$HOLD"; while :; do /bin/sleep 0.02; done; fi
rm -f "$2/store.duckdb.wal"
""",
}

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@pytest.mark.parametrize(("title", "kept"), [("several-nodes.sh", "store"), ("array.sh", "part-3")])
def test_job_keeps_its_store_when_its_time_is_over_and_the_next_one_continues(title: str, kept: str, tmp_path: Path) -> None:
    page = re.search(rf'```bash title="{re.escape(title)}"\n(.*?)```', PAGE.read_text("utf-8"), re.DOTALL)
    assert page is not None
    assert "#SBATCH --time=12:00:00 --signal=B:TERM@" in page[1]
    script, log, hold = tmp_path / title, tmp_path / "log", tmp_path / "hold"
    script.write_text(page[1].replace("/shared", str(tmp_path / "shared")))
    for name, body in STAND_INS.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}")
        path.chmod(0o755)
    for name in ("shared/results", "shared/venv/bin", "local"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "shared/venv/bin/activate").touch()
    slurm = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2", "SLURM_ARRAY_TASK_ID": "3"}
    folders = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(tmp_path / "local"), "LOG": str(log), "HOLD": str(hold)}

    hold.touch()
    first = subprocess.Popen(["bash", script], env=os.environ | slurm | folders | {"SLURM_JOB_ID": "1"})
    deadline = time.monotonic() + 30
    while hold.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM)
    assert first.wait(30) == 143
    store = tmp_path / "shared/results" / kept
    assert (store / "answers").read_text().split() == ["begun", "stored"]
    assert (store / "store.duckdb.wal").exists()

    assert subprocess.run(["bash", script], env=os.environ | slurm | folders | {"SLURM_JOB_ID": "2"}, check=False).returncode == 0
    assert (store / "answers").read_text().split() == ["begun", "stored", "begun"]
    assert not (store / "store.duckdb.wal").exists()  # of an older state of the database
    assert [path.name for path in (tmp_path / "shared/results").iterdir()] == [kept]
    # srun no longer takes the number of cores from the job.
    assert all("--cpus-per-task=" in line for line in log.read_text().splitlines() if line.startswith("srun"))
