from __future__ import annotations

import sys

import pytest

from ragmeter.runner.executors.group import run_group, without_option

SUM = """
import os, sys, torch
torch.distributed.init_process_group("gloo")
value = torch.tensor([float(os.environ["RANK"]) + 1])
torch.distributed.all_reduce(value)
open(sys.argv[1] + os.environ["RANK"], "w").write(str(value.item()))
torch.distributed.destroy_process_group()
"""
FAILS = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(7)\ntime.sleep(100)"


@pytest.mark.slow
def test_two_processes_of_a_group_meet(tmp_path) -> None:
    assert run_group([sys.executable, "-c", SUM, str(tmp_path / "rank")], 2) == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"rank0": "3.0", "rank1": "3.0"}


def test_a_process_that_fails_ends_the_group_with_its_code() -> None:
    assert run_group([sys.executable, "-c", FAILS], 2) == 7


def test_processes_run_the_command_without_the_option_that_starts_them() -> None:
    words = ["train", "ark", "--processes", "2", "--seed", "3"]
    assert without_option(words, "--processes") == without_option(["train", "ark", "--processes=2", "--seed", "3"], "--processes")
    assert without_option(words, "--processes") == ["train", "ark", "--seed", "3"]
