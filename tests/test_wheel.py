"""The wheel in an empty environment contains every file that the code reads from its own folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("benchmarks", "methods", "judges", "results", "leaderboard", "ragmeter")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the tree with the installed build tools; nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "-w", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("ragmeter-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an environment with the wheel and return its bin folder.

    Its dependencies are those of this environment, made available by a path file: a path file's folders are searched, but their
    own path files (such as that of an editable installation of this tree) are not read.
    """
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, system_site_packages=False)
    python = home / "bin" / "python"
    site = Path(subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip())
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin"


def start(installed: Path, command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the environment from another folder, without any reference to the tree."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "RAGMETER", "VIRTUAL_ENV"))}
    env |= {"COLUMNS": "160", "NO_COLOR": "1"}
    return subprocess.run([installed / command[0], *command[1:]], cwd=folder, env=env, capture_output=True, text=True)


def in_one_process(installed: Path, lines: Sequence[str], folder: Path, first: str = "") -> list[str]:
    """Return the output of commands run in one process of the environment, so that PyTorch is imported once."""
    code = (
        f"import sys; from ragmeter.cli import main\n{first}\n"
        f"for words in {[line.split() for line in lines]!r}:\n"
        "    sys.argv = ['ragmeter', *words]\n"
        "    try: main()\n"
        "    except SystemExit as end: print(f'\\n--- {end.code}')"
    )
    done = start(installed, ["python", "-c", code], folder)
    assert done.returncode == 0, done.stderr
    *printed, rest = done.stdout.split("\n--- 0")
    assert not rest.strip(), done.stderr
    assert len(printed) == len(lines)
    return printed


def test_wheel_contains_every_package_file(wheel: Path) -> None:
    here = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    shipped = set(zipfile.ZipFile(wheel).namelist())
    assert {name.rpartition(".")[2] for name in here} > {"py", "yaml", "txt", "csv", "sql", "css", "js", "safetensors"}
    assert here - shipped == set()
    assert {name.partition("/")[0] for name in shipped} == {*PACKAGES, "ragmeter-0.1.0.dist-info"}
    assert wheel.stat().st_size < 16 * 2**20


def test_installed_environment_imports_the_wheel_and_not_the_source_tree(installed: Path, tmp_path: Path) -> None:
    code = "import sys, json; " + "; ".join(f"import {package}" for package in PACKAGES)
    code += f"; print(json.dumps([sys.path, [m.__file__ for m in ({', '.join(PACKAGES)})]]))"
    done = start(installed, ["python", "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    path, files = json.loads(done.stdout)
    assert str(ROOT) not in path
    assert all(Path(file).is_relative_to(installed.parent) for file in files)


SHORTEST = "from ragmeter.cli import demo; [demo.PARTS.pop(name) for name in {*demo.PARTS} - {'demo-styles'}]"
"""Options that run only the shortest part of the demo."""
WORLD = """name: small
benchmarks: [{id: worlds/multihop, split: test, setting: distractor, limit: 1, config: {worlds: 1}}]
methods: [{id: clara, name: CLaRa, config: {model: clara-pocket, max_new_tokens: 24}}]
metrics: [cover_em]
"""


def test_demo_runs_from_another_folder_and_builds_its_leaderboard(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(WORLD)
    lines = ["demo --limit 1", "run small.yaml --quiet", "results report -o board.html"]
    shown, _, _ = in_one_process(installed, lines, tmp_path, first=SHORTEST)
    for part in ("What the approaches gain", "SARK  mrr@5", "not tested against its base", "leaderboard: "):
        assert part in shown
    listed = start(installed, ["ragmeter", "list", "runs", "--json"], tmp_path)
    runs = json.loads(listed.stdout)
    # The pocket model's weights, the real encoder, the worlds' texts: all are loaded from packages.
    assert {"cosine", "CLaRa", "SARK"} <= {run["method"] for run in runs}
    assert {run["status"] for run in runs} == {"finished"}
    assert (tmp_path / "ragmeter-store" / "store.duckdb").exists()
    assert not (tmp_path / "ragmeter-store" / "checkpoints").exists()
    assert "function view(component)" in (tmp_path / "board.html").read_text("utf-8")


LISTS = {"results paper ark": "value", "list experiments": "demo", "list judges": "pairwise", "list datasets": "hotpotqa", "train": "gpr"}
"""Commands, and a text that occurs in their lists."""


def test_installed_lists_contain_entries_read_from_files(installed: Path, tmp_path: Path) -> None:
    shown = in_one_process(installed, [f"{line} --json" for line in LISTS], tmp_path)
    for (line, expected), text in zip(LISTS.items(), shown, strict=True):
        assert expected in text, line
        json.loads(text)


def test_every_shipped_prompt_can_be_read(installed: Path, tmp_path: Path) -> None:
    code = (
        "import importlib.resources as r\n"
        "roots = [r.files(package) for package in ('methods', 'judges')]\n"
        "def walk(f):\n"
        "    for i in f.iterdir():\n"
        "        if i.is_dir(): yield from walk(i)\n"
        "        elif i.name.endswith('.txt'): yield i.read_text('utf-8')\n"
        "texts = [t for root in roots for t in walk(root)]\n"
        "print(len(texts), min(map(len, texts)))"
    )
    done = start(installed, ["python", "-c", code], tmp_path)
    count, shortest = map(int, done.stdout.split())
    here = [path for package in ("methods", "judges") for path in (ROOT / package).rglob("*.txt")]
    assert count == len(here)
    assert shortest > 0
