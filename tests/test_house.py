"""The house itself: imports, start-up, what a fresh user types first."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from ragmeter.cli import main

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "transformers", "sentence_transformers", "streamlit", "pandas", "openai", "bm25s", "duckdb", "pyarrow")


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "ragmeter.cli", *arguments]
    env = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def ragmeter(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["ragmeter", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
    return subprocess.CompletedProcess(arguments, int(end.value.code or 0), out.getvalue(), err.getvalue())


def test_rooms_import_only_what_the_architecture_allows() -> None:
    done = subprocess.run([str(Path(sys.executable).parent / "lint-imports")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['ragmeter', '--help']\n"
        "from ragmeter.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "run" in done.stdout
    assert done.stderr.strip() == "[]"


def test_bare_nouns_list_and_speak_json(tmp_path: Path) -> None:
    for noun in ("methods", "datasets", "metrics", "experiments", "checkpoints"):
        assert started(noun, "--store", str(tmp_path)).returncode == 0
        done = started(noun, "--json", "--store", str(tmp_path))
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)


def test_listing_and_scoring_need_no_model_package() -> None:
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in 'torch transformers bm25s openai streamlit'.split():\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "from judges.registry import METRICS, parse; from methods.registry import METHODS\n"
        "from benchmarks.registry import DATASETS, load\n"
        "from judges.scoring import score; import results.board\n"
        "b = load('worlds/multihop:test').limited(3)\n"
        "from methods.api import Prediction\n"
        "print(len(list(METHODS)), len(list(DATASETS)), len(list(METRICS)))\n"
        "print(score(b.questions, [Prediction(q.id, q.answers[0]) for q in b.questions], [parse('em')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "em(rules=squad)#v1" in done.stdout


def test_a_users_mistake_is_an_error_with_place_and_remedy_and_exit_code_two(tmp_path: Path) -> None:
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


def test_wrong_usage_ends_with_two_and_no_traceback(tmp_path: Path) -> None:
    for line in ("runs", "table", "show x", "resume", "run nowhere.yaml", "methods nothing"):
        done = ragmeter(*line.split(), "--store", str(tmp_path / "s"))
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr


def test_a_small_experiment_runs_shows_and_resumes_from_the_command_line(tmp_path: Path) -> None:
    file, store = tmp_path / "x.yaml", str(tmp_path / "s")
    file.write_text(
        "name: small\nbenchmarks: [{id: worlds/multihop, split: test, limit: 3}]\n"
        "methods: [{id: bm25}, {id: gold_answer}]\nmetrics: [em, recall@5]\n"
    )
    planned = json.loads(ragmeter("plan", str(file), "--json", "--store", store).stdout)
    assert [(task["method"], task["done"]) for task in planned["tasks"]] == [("bm25", 0), ("gold_answer", 0)]
    assert not Path(store).exists()
    done = ragmeter("run", str(file), "--store", store)
    assert done.returncode == 0, done.stderr
    assert "bm25 (reference)" in done.stdout
    assert "gold_answer (control)" in done.stdout
    again = ragmeter("resume", "small", "--store", store)
    assert again.returncode == 0
    assert "0 questions to answer" in again.stderr
    (board,) = json.loads(ragmeter("table", "--json", "--store", store).stdout)["boards"]
    gold = next(row for row in board["rows"] if row["method"] == "gold_answer")
    assert gold["metrics"]["em(rules=squad)#v1"]["value"] == 1.0
    listed = json.loads(ragmeter("runs", "--json", "--store", store).stdout)
    assert {row["status"] for row in listed} == {"finished"}
    shown = json.loads(ragmeter("show", listed[0]["run"][:8], "--json", "--store", store).stdout)
    assert shown["environment"]["packages"]["numpy"]
    assert shown["provenance"]["data"]["reference"] == "worlds/multihop:test"
    assert "6 questions to answer" in ragmeter("run", str(file), "--fresh", "--store", store).stderr


def test_doctor_names_the_store_and_what_is_installed(tmp_path: Path) -> None:
    done = ragmeter("doctor", "--json", "--store", str(tmp_path / "s"))
    findings = json.loads(done.stdout)
    assert done.returncode == 0, findings
    assert any(finding["what"] == "store" and str(tmp_path / "s") in finding["detail"] for finding in findings)
    assert {finding["what"] for finding in findings} >= {"extra models", "RAGMETER_DATA", "disk", "accelerator"}


def test_doctor_says_when_another_package_shadows_a_room(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("")
    code = (
        "import sys; import benchmarks.registry, methods.registry, judges.registry\n"
        f"from ragmeter.commands import diagnosis\nsys.path.insert(0, {str(tmp_path)!r})\n"
        "import importlib; importlib.invalidate_caches(); saved = sys.modules.pop('benchmarks')\n"
        "found = diagnosis._rooms(); sys.modules['benchmarks'] = saved\n"
        "print([f.detail for f in found if f.state == 'problem'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"shadowed by {tmp_path / 'benchmarks'}" in done.stdout


def test_check_commands_report_and_set_the_exit_code() -> None:
    good = ragmeter("check", "method", "bm25", "--json")
    assert good.returncode == 0, good.stdout
    assert json.loads(good.stdout)["passed"] is True
    assert ragmeter("check", "method", "nothing").returncode == 2
    assert ragmeter("check", "method", "bm25", "--config", "{k1").returncode == 2


@pytest.mark.slow
def test_the_pinned_set_works_together() -> None:
    """Some of the mandated packages break beside others' newest releases; constraints.txt keeps them apart."""
    names = "datasets torch transformers sentence_transformers ragas rouge_score bert_score openai streamlit duckdb"
    env = {**os.environ, "RAGAS_DO_NOT_TRACK": "true"}
    code = "\n".join(f"import {name}" for name in names.split())
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
