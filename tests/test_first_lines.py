"""The example at the start of the README, in an environment with only the core and the extra `retrieval`."""

from __future__ import annotations

import os
import re
import subprocess
import venv
from collections.abc import Iterator
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent


def distributions(name: str, extra: str) -> Iterator[str]:
    """Return a distribution's dependencies with one of its extras, recursively."""
    wanted, known = [name], set()
    while wanted:
        owner = wanted.pop()
        for line in requires(owner) or ():
            requirement, _, marker = line.partition(";")
            if "extra" in marker and (owner != name or f"extra == '{extra}'" not in marker.replace('"', "'")):
                continue
            package = re.match(r"[\w.-]+", requirement)
            needed = package[0].lower().replace("_", "-") if package else ""
            if needed not in known and needed != name and not re.search(r"python_version|sys_platform|platform_system", marker):
                known.add(needed)
                wanted.append(needed)
    yield from sorted(known)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment with links to those packages and to this tree."""
    home = tmp_path_factory.mktemp("core")
    venv.create(home, with_pip=False)
    interpreter = home / "bin" / "python"
    site = Path(subprocess.check_output([interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip())
    for name in distributions("ragmeter", "retrieval"):
        files = distribution(name).files or ()
        for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    (site / "tree.pth").write_text(f"{ROOT}\n")
    return interpreter


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text("utf-8").partition("make demo")[0]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_readme_example_prints_its_table_without_torch(python: Path, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "RAGMETER"))} | {"COLUMNS": "100"}
    (script,) = blocks("python")
    (table, *_) = blocks("text")
    (shell, *_) = blocks("bash")
    commands = [line.partition("#")[0].split() for line in shell.splitlines()]
    assert [command[:2] for command in commands] == [["pip", "install"], ["ragmeter", "run"], ["ragmeter", "leaderboard"]]
    assert len(script.splitlines()) <= 10
    runs = [
        subprocess.run([python, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        for command in (["-m", "ragmeter.cli", *commands[1][1:]], ["-c", script])
    ]
    for done, lines in zip(runs, (table.splitlines(), table.splitlines()[3:]), strict=True):  # the verdict is that of the command
        assert done.returncode == 0, done.stderr
        printed = " ".join(done.stdout.split())  # lines may be wrapped elsewhere
        for line in lines:
            assert all(part in printed for part in re.split(r"\s{2,}|…", line.strip())), (line, printed)
    code = "import importlib.util as u; print([name for name in ('torch', 'transformers', 'streamlit', 'openai') if u.find_spec(name)])"
    assert subprocess.check_output([python, "-c", code], text=True).strip() == "[]"
