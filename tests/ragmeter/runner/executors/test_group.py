from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.core.errors import Broke, UserError
from methods.training import Progress, Silent
from ragmeter.runner.executors.group import in_group, in_ray_group, meeting_point, ranks
from tests.support.errors import raises


class Shown(Silent):
    def __init__(self) -> None:
        self.steps = 0

    def advance(self, steps: int = 1) -> None:
        self.steps += steps


def added(value: float, progress: Progress) -> float:
    """Sum a value times rank + 1 over the group."""
    import torch

    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group("gloo")
    result = torch.tensor([value * (rank + 1)])
    torch.distributed.all_reduce(result)
    torch.distributed.destroy_process_group()
    progress.advance(rank + 5)
    return result.item()


def stages(device: str | None, progress: Progress) -> list[Any]:
    """Sum ranks over the group as three stages of one training do."""
    from methods.training.ranks import accelerator, gathered, summed

    results = []
    for stage in range(3):
        process = accelerator("no", device)
        results.append((process.num_processes, summed(process.process_index + stage, process, "cpu"), gathered(stage, process)))
    return results


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def waiting(folder: Path, progress: Progress) -> None:
    """Wait for a group that never meets."""
    import torch

    (folder / os.environ["RANK"]).write_text(str(os.getpid()))
    if os.environ["RANK"] == "0":
        torch.distributed.init_process_group("gloo")
    time.sleep(600)


def failing(how: str, progress: Progress) -> None:
    if os.environ["RANK"] == "1":
        if how == "killed":
            os._exit(7)
        raise UserError("the second process cannot read it", code="unreadable-file", where="here")
    if how == "follows":
        raise RuntimeError("connection closed by peer")
    time.sleep(100)


def test_meeting_points_hold_different_ports() -> None:
    one, other = meeting_point("127.0.0.1"), meeting_point("127.0.0.1")
    assert one.port != other.port
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", one.port))


@pytest.mark.slow
def test_group_processes_synchronize_and_the_first_one_reports() -> None:
    shown = Shown()
    assert in_group(added, (2.0,), 2, shown) == 6.0
    assert shown.steps == 5
    assert not {"RANK", "WORLD_SIZE"} & set(os.environ)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", None])
def test_stages_share_one_group_also_without_a_gpu(device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert in_group(stages, (device,), 2, Silent()) == [(2, 1.0 + 2 * stage, [stage] * 2) for stage in range(3)]


def test_processes_that_form_no_group_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from methods.training.ranks import accelerator

    monkeypatch.setattr("accelerate.Accelerator", lambda **_: SimpleNamespace(num_processes=1, device=SimpleNamespace(type="mps")))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with raises("no-process-group", where="--processes"):
        accelerator("no", None)


@pytest.mark.soak
def test_waiting_processes_end_with_the_command_that_started_them(tmp_path: Path) -> None:
    program = f"from {__name__} import *; in_group(waiting, (Path({str(tmp_path)!r}),), 2, Silent())"
    with subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[4]) as command:
        until(lambda: len([path for path in tmp_path.iterdir() if path.read_text()]) == 2)
        command.kill()
    numbers = [int(path.read_text()) for path in tmp_path.iterdir()]
    until(lambda: not any(Path(f"/proc/{number}").exists() for number in numbers))


@pytest.mark.slow
@pytest.mark.parametrize("how", [pytest.param("waits", marks=pytest.mark.soak), "follows"])
def test_group_error_is_raised_and_all_processes_end(how: str) -> None:
    began = time.monotonic()
    with raises("unreadable-file", where="here"):
        in_group(failing, (how,), 2, Silent())
    assert time.monotonic() - began < 60


@pytest.mark.soak
def test_killed_process_ends_its_group() -> None:
    with raises("training-killed"):
        in_group(failing, ("killed",), 2, Silent())


@pytest.mark.soak
def test_group_ranks_run_as_ray_actors(cluster: None, tmp_path: Path) -> None:
    variables = {"OMP_NUM_THREADS": "1"}
    assert in_ray_group(added, (2.0,), 2, 0.0, variables, tmp_path) == 6.0
    with raises("unreadable-file"):
        in_ray_group(failing, ("follows",), 2, 0.0, variables, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.soak
def test_cluster_refuses_an_oversized_group_and_ends_one_that_loses_a_process(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragmeter.runner.executors.group.PLACED_S", 0.5)
    with raises("cluster-too-small"):
        in_ray_group(added, (2.0,), 3, 0.0, {}, tmp_path)
    monkeypatch.setattr("ragmeter.runner.executors.group.PLACED_S", 60)
    with pytest.raises(Broke) as caught:
        in_ray_group(failing, ("killed",), 2, 0.0, {}, tmp_path)
    assert caught.value.code == "training-killed"


def test_group_size_is_the_requested_number_or_the_gpu_count(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert [ranks(None, None), ranks(None, "cpu"), ranks(None, "cuda:1"), ranks(2, None), ranks(6, "cpu")] == [4, 1, 1, 2, 6]
    for wanted, device in ((5, None), (2, "cuda:1")):
        with raises("too-few-gpus", where="--processes"):
            ranks(wanted, device)
    monkeypatch.setenv("RANK", "0")
    assert ranks(3, None) == 1
