"""The repository: imports, startup time, and the first commands of a new user."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from benchmarks.core import errors
from leaderboard import server
from ragmeter.cli import doctor, main

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "transformers", "sentence_transformers", "streamlit", "pandas", "openai", "bm25s", "duckdb", "pyarrow")


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in another process."""
    command = [sys.executable, "-m", "ragmeter.cli", *arguments]
    env = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def ragmeter(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["ragmeter", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
    return subprocess.CompletedProcess(arguments, int(end.value.code or 0), out.getvalue(), err.getvalue())


@pytest.mark.slow
def test_package_imports_follow_the_architecture() -> None:
    done = subprocess.run([str(Path(sys.executable).parent / "lint-imports")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


def test_help_imports_no_heavy_package() -> None:
    code = (
        "import sys; sys.argv = ['ragmeter', '--help']\n"
        "from ragmeter.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "run" in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.slow
def test_every_kind_is_listed_as_text_and_as_json(tmp_path: Path) -> None:
    for noun in ("methods", "datasets", "metrics", "experiments", "checkpoints"):
        assert ragmeter("list", noun, "--store", str(tmp_path)).returncode == 0
        done = ragmeter("list", noun, "--json", "--store", str(tmp_path))
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)


@pytest.mark.slow
def test_listing_and_scoring_need_no_model_package() -> None:
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in 'torch transformers bm25s openai streamlit'.split():\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "from judges.metric import METRICS, parse; from methods.registry import METHODS\n"
        "from benchmarks.registry import DATASETS, load\n"
        "from judges.score import score; import results.boards.board\n"
        "b = load('worlds/multihop:test').limited(3)\n"
        "from methods.api import Prediction\n"
        "print(len(list(METHODS)), len(list(DATASETS)), len(list(METRICS)))\n"
        "print(score(b.questions, [Prediction(q.id, q.answers[0]) for q in b.questions], [parse('em')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "em(rules=squad)#v2" in done.stdout


@pytest.mark.slow
def test_user_mistake_is_an_error_with_position_remedy_and_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("name: x\nbenchmarks: [{id: worlds/multihop}]\nmethods:\n  - {id: bm52}\n")
    done = started("run", str(file), "--store", str(tmp_path / "s"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "unknown method 'bm52'" in done.stderr
    assert "x.yaml:4" in done.stderr
    assert "did you mean 'bm25'?" in done.stderr
    spoken = json.loads(ragmeter("run", str(file), "--json", "--store", str(tmp_path / "s")).stderr)
    assert spoken["error"]["try"] == "did you mean 'bm25'?"
    assert not (tmp_path / "s").exists()


def test_wrong_usage_exits_with_2_without_a_traceback(tmp_path: Path) -> None:
    for line in ("list runs", "results show x", "run --resume", "run nowhere.yaml", "list methods nothing", "show x"):
        done = ragmeter(*line.split(), "--store", str(tmp_path / "s"))
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr


def test_small_experiment_runs_is_shown_and_resumes_from_the_command_line(tmp_path: Path) -> None:
    file, store = tmp_path / "x.yaml", str(tmp_path / "s")
    file.write_text(
        "name: small\nbenchmarks: [{id: worlds/multihop, split: test, limit: 3}]\n"
        "methods: [{id: bm25}, {id: gold_answer}]\nmetrics: [em, recall@5]\n"
    )
    planned = json.loads(ragmeter("run", str(file), "--dry-run", "--json", "--store", store).stdout)
    assert [(task["method"], task["done"]) for task in planned["tasks"]] == [("bm25", 0), ("gold_answer", 0)]
    assert not Path(store).exists()
    done = ragmeter("run", str(file), "--store", store)
    assert done.returncode == 0, done.stderr
    assert "bm25 (reference)" in done.stdout
    assert "gold_answer (control)" in done.stdout
    again = ragmeter("run", "small", "--resume", "--store", store)
    assert again.returncode == 0
    assert "0 questions to answer" in again.stderr
    (board,) = json.loads(ragmeter("results", "--json", "--store", store).stdout)["boards"]
    gold = next(row for row in board["rows"] if row["method"] == "gold_answer")
    assert gold["metrics"]["em(rules=squad)#v2"]["value"] == 1.0
    listed = json.loads(ragmeter("list", "runs", "--json", "--store", store).stdout)
    assert {row["status"] for row in listed} == {"finished"}
    shown = json.loads(ragmeter("results", "show", listed[0]["run"][:8], "--json", "--store", store).stdout)
    assert shown["environment"]["packages"]["numpy"]
    assert shown["provenance"]["data"]["reference"] == "worlds/multihop:test"
    assert "6 questions to answer" in ragmeter("run", str(file), "--fresh", "--store", store).stderr


@pytest.mark.slow
def test_doctor_names_the_store_and_what_is_installed(tmp_path: Path) -> None:
    done = ragmeter("doctor", "--json", "--store", str(tmp_path / "s"))
    findings = json.loads(done.stdout)
    assert done.returncode == 0, findings
    assert any(finding["what"] == "store" and str(tmp_path / "s") in finding["detail"] for finding in findings)
    assert {finding["what"] for finding in findings} >= {"extra models", "RAGMETER_DATA", "disk", "accelerator"}


@pytest.mark.slow
def test_doctor_reports_a_distribution_that_overwrites_ragmeter_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for position, name in (tmp_path / "ours", "clash"), (tmp_path / "elsewhere", "harmless"):
        (position / f"{name}-1.dist-info").mkdir(parents=True)
        (position / f"{name}-1.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (position / f"{name}-1.dist-info" / "top_level.txt").write_text("results\n")
        monkeypatch.syspath_prepend(position)
    monkeypatch.setattr(errors, "HOME", tmp_path / "ours")
    (result,) = doctor._packages()
    assert (result.what, result.state) == ("package results", "problem")
    assert result.detail == f"also installed by clash, in {tmp_path / 'ours' / 'results'}"
    assert "harmless" not in result.remedy


@pytest.fixture
def users_folder(tmp_path: Path) -> Path:
    """Create a user's folder with packages, a module and plain folders that have our names; importing one of them fails."""
    for name in "results", "benchmarks":
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the user\\'s own')\n")
    (tmp_path / "leaderboard.py").write_text("raise RuntimeError('the user\\'s own')\n")
    (tmp_path / "judges").mkdir()
    (tmp_path / "methods").mkdir()
    (tmp_path / "script.py").write_text(
        "import multiprocessing, pathlib\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "import ragmeter\n"
        "import benchmarks.core.errors, judges, leaderboard, methods, results\n"
        "if __name__ == '__main__':\n"
        "    for package in benchmarks, judges, leaderboard, methods, results:\n"
        "        print(pathlib.Path(package.__file__).parent.parent)\n"
        "    with ProcessPoolExecutor(1, multiprocessing.get_context('spawn')) as pool:\n"
        "        print(pool.submit(benchmarks.core.errors.counted, 2, 'run').result())\n"
    )
    return tmp_path


def _there(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in that folder, which precedes this tree on the import path."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, env=env, check=False)


def test_scripts_and_their_processes_import_the_ragmeter_packages(users_folder: Path) -> None:
    done = _there(users_folder, "script.py")
    assert done.stdout.splitlines() == [*[str(ROOT)] * 5, "2 runs"], done.stderr


@pytest.mark.slow
def test_sessions_and_commands_import_the_ragmeter_packages(users_folder: Path) -> None:
    session = _there(
        users_folder, "-c", "from ragmeter import UserError; import results.store.redaction as r; print(UserError.__module__, r.__file__)"
    )
    assert session.stdout.split() == ["benchmarks.core.errors", str(ROOT / "results" / "store" / "redaction.py")], session.stderr
    wrong = _there(users_folder, "-m", "ragmeter.cli", "frobnicate", "--json")
    assert wrong.returncode == 2
    assert json.loads(wrong.stderr)["error"]["what"] == "there is no command 'frobnicate'"


@pytest.mark.slow
def test_leaderboard_pages_import_the_ragmeter_packages(users_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = ROOT / "leaderboard" / "pages" / "app.py"
    code = (
        "from streamlit.testing.v1 import AppTest\n"
        f"page = AppTest.from_file({str(app)!r}, default_timeout=60).run()\n"
        "print([error.message for error in page.exception])"
    )
    monkeypatch.setenv("PYTHONPATH", str(users_folder))
    python = server.command(8501, "127.0.0.1", False)[:2]  # like the server at startup
    done = subprocess.run(
        [*python, "-c", code], cwd=users_folder, capture_output=True, text=True, env=server._environment(users_folder), check=False
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr


@pytest.mark.parametrize(("name", "file"), [("results", "results/__init__.py"), ("leaderboard", "leaderboard.py"), ("judges", "judges")])
def test_conflicting_package_imported_earlier_is_reported_with_a_remedy(users_folder: Path, name: str, file: str) -> None:
    if file.endswith(".py"):
        (users_folder / file).write_text("")
    # Before this tree is on the import path, because a plain folder is a package only if no other one is found.
    code = f"import sys; sys.path.remove({str(ROOT)!r}); import {name}; sys.path.append({str(ROOT)!r}); import ragmeter"
    done = _there(users_folder, "-S", "-c", code)
    assert done.returncode == 1
    *_, what, where, remedy = done.stderr.splitlines()
    assert what == f"ImportError: ragmeter's package {name!r} cannot be imported: another one of that name was imported before"
    assert where == f"  where: {users_folder / file}"
    assert remedy.startswith("  try:   `import ragmeter` before it")


def test_check_commands_report_and_set_the_exit_code() -> None:
    good = ragmeter("method", "check", "bm25", "--json")
    assert good.returncode == 0, good.stdout
    assert json.loads(good.stdout)["passed"] is True
    assert ragmeter("method", "check", "nothing").returncode == 2
    assert ragmeter("method", "check", "bm25", "--set", "k1").returncode == 2


@pytest.mark.parametrize(
    "options",
    [pytest.param(["-p", "xdist", "-n", "1", "--cpu-limit", "0.06"], marks=pytest.mark.slow), pytest.param([], marks=pytest.mark.slow)],
)
def test_test_above_the_cpu_time_limit_fails_unless_listed(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('shared', {str(ROOT / 'tests' / 'conftest.py')!r})\n"
        "shared = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(shared)\n"
        "shared.SLOW_S, shared.MANY, shared.LONG = 0.06, 0, {'test_it.py::test_listed': 'why'}\n"
        "globals().update(vars(shared))\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider --import-mode=importlib\n")
    (tmp_path / "burning.py").write_text("import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass\n")
    (tmp_path / "test_it.py").write_text(
        "import importlib, subprocess, sys, pytest\n"
        "def burn(): sys.modules.pop('burning', None); exec(open('burning.py').read())\n"
        "def child(): subprocess.run([sys.executable, '-I', 'burning.py'], check=True)\n"
        "@pytest.fixture(scope='session')\n"
        "def shared(): burn(); child()\n"
        "def test_quick(): pass\n"
        "def test_first_import(): sys.path.insert(0, '.'); import burning\n"
        "def test_first_use(shared): pass\n"
        "def test_listed(): burn()\n"
        "def test_own(): burn()\n"
        "def test_child(): child()\n"
        "@pytest.fixture\n"
        "def made(): burn()\n"
        "def test_fixture(made): pass\n"
    )

    command, env = [sys.executable, "-m", "pytest", "-rE", *options], {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    lines, over = done.stdout.splitlines(), {"test_own", "test_child", "test_fixture"}
    assert {line.split("::")[1] for line in lines if " s  test_it.py::" in line} == over | {"test_listed"}
    assert {line.split("::")[1].split()[0] for line in lines if line.startswith("ERROR")} == (over if "--cpu-limit" in options else set())
    assert done.returncode == (1 if "--cpu-limit" in options else 0)
