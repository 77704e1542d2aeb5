"""What all tests share: where the real samples are, and quiet libraries."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Half of the library's number; HYPOTHESIS_PROFILE=thorough tries ten times as many where a test does not say itself.
settings.register_profile("usual", max_examples=50, deadline=None)
settings.register_profile("thorough", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "usual"))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real samples; a visible skip without it, a failure where CI requires it."""
    folder = Path(os.environ.get("RAGMETER_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        message = f"real samples not found at {folder}: set RAGMETER_DATA"
        if os.environ.get("RAGMETER_REQUIRE_DATA") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What loaders keep of data lies in a folder of these tests, not in the user's cache."""
    os.environ["RAGMETER_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def typeset() -> Callable[[str, Path], int]:
    """Sets tables with LaTeX, in a folder; a visible skip without it, a failure where they cannot be set.

    Gives the bytes of the document.
    """
    for program, wanted in ("pdflatex", "--version"), ("kpsewhich", "booktabs.sty"):
        if shutil.which(program) is None or subprocess.run([program, wanted], capture_output=True).returncode:
            pytest.skip("no LaTeX with booktabs here: apt-get install texlive-latex-recommended")

    def set_tables(body: str, folder: Path) -> int:
        text = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n" + body + "\\end{document}\n"
        (folder / "t.tex").write_text(text, "utf-8")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
        done = subprocess.run(command, cwd=folder, capture_output=True)
        assert done.returncode == 0, done.stdout[-2000:]
        return (folder / "t.pdf").stat().st_size

    return set_tables


@pytest.fixture(scope="session")
def module_at() -> Callable[[Path], ModuleType]:
    """Loads a helper of tests from its file: tests are no packages, so that it cannot be imported by a name."""

    def load(path: Path) -> ModuleType:
        name = f"{path.parent.name}_{path.stem}"
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    return load
