"""Fixtures and hooks of all tests: the folder of real samples, cached worlds and parsers, and CPU limits."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import resource
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main
from hypothesis import settings

from benchmarks.worlds import dataset
from benchmarks.worlds.text import Library, Rendering, articles
from benchmarks.worlds.world import World, WorldConfig, generate
from tests.support.plugin import FILES, Plugin

ROOT = Path(__file__).resolve().parent.parent

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Pytest imports readline, which sets both behind Python's back: in the processes of pytest-xdist, tables would be wrapped.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)
    os.unsetenv(_name)

# A fifth of the default of Hypothesis, and the same in every run; HYPOTHESIS_PROFILE=thorough tries 500 unless a test sets a number.
settings.register_profile("usual", max_examples=20, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "usual"))


SLOW_S = 1.5
"""Minimum CPU seconds of a test that is reported as slow."""
LONG = {
    "tests/leaderboard/test_security.py::test_untrusted_text": "walks all pages once",
    "tests/methods/models/test_rewriter.py::test_with_a_truthful_model": "a world, rewritten whole",
    "tests/methods/ark/test_train.py::test_from_documents_to_a_checkpoint": "the one short training of ARK, whole",
    "tests/methods/baselines/graph/test_cross_encoder_training.py": "the one short training of a cross-encoder over triples",
    "tests/results/store/test_records.py::test_any_question_comes_back": "one store an example",
    "tests/test_repository.py": "starts commands as a user does",
    "tests/test_words.py": "reads every file",
    "tests/judges/metrics/test_retrieval_metrics.py::test_every_metric_equals_a_naive_loop": "every metric, many rankings",
    "tests/judges/test_score.py": "every metric, many runs",
    "tests/benchmarks/test_text_batch.py": "many texts, one by one",
}
"""Tests that may exceed `--cpu-limit`, by the beginning of their ids, with the reason."""
MANY = 100
"""Minimum number of newly imported modules at which a test's time is not measured."""
_modules, _shared_s, _slow = 0, 0.0, dict[str, float]()
_began = pytest.StashKey[tuple[float, int]]()


def _leave(process: int) -> None:
    """End this process at once, unless it is a fork: Python takes seconds to destroy all that these tests imported."""
    if os.getpid() == process:
        os._exit(0)


if "PYTEST_XDIST_WORKER" in os.environ and not hasattr(sys.modules["__main__"], "__file__"):
    # Registered first, so that it is called last. Nothing reads the exit code of a worker; a pytest that a test starts inherits the
    # variable, but runs from a file.
    atexit.register(_leave, os.getpid())


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable garbage collection while thousands of tests are collected."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest test first."""
    items.sort(key=lambda item: item.path.name != "test_wheel.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-limit", type=float, metavar="SECONDS", help="fail tests that take more CPU time than this")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    """Measure the time of session fixtures, so that it is not counted for the first test that uses them."""
    global _shared_s
    _seed(fixturedef.argname)
    began, shared = _cpu_s(), _shared_s
    try:
        return (yield)
    finally:
        if fixturedef.scope == "session":
            # Fixtures may need each other, so only the outermost one is counted.
            _shared_s = shared + _cpu_s() - began


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Record a test's CPU seconds in its last report, and fail it above the limit."""
    report: Any = yield
    if call.when == "teardown" and _began in item.stash:
        began, modules = item.stash[_began]
        taken, limit = _cpu_s() - _shared_s - began, item.config.getoption("cpu_limit")
        if len(sys.modules) > modules + MANY:
            return report
        report.user_properties.append(("cpu_s", taken))
        if limit is not None and taken > limit and report.passed and not item.nodeid.startswith(tuple(LONG)):
            report.outcome = "failed"
            report.longrepr = f"{taken:.2f} s of CPU time, more than {limit:g}: make it quicker, or mark it slow (tests/conftest.py: LONG)"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _slow.update((report.nodeid, seconds) for name, seconds in report.user_properties if name == "cpu_s" and seconds > SLOW_S)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _slow:
        terminalreporter.section(f"{len(_slow)} tests above {SLOW_S} s of CPU time")
    for name, seconds in sorted(_slow.items(), key=lambda item: -item[1])[:25]:
        terminalreporter.line(f"{seconds:7.2f} s  {name}")


def _seed(name: str) -> None:
    """Give random weights of a test or fixture equal values in every run: PyTorch draws its first seed from the system."""
    if generator := getattr(sys.modules.get("torch"), "default_generator", None):
        generator.manual_seed(zlib.crc32(name.encode()))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    _seed(item.name)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Freeze library objects after many imports, so that later garbage collections skip them.

    Every training loop ends with a collection, which takes half a second if PyTorch and transformers are loaded. So do
    pytest's collections at the end. Objects are unfrozen when Python exits, because extensions complain about objects still alive.
    """
    global _modules
    if len(sys.modules) > _modules + MANY:
        if not _modules:
            atexit.register(gc.unfreeze)
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)
    item.stash[_began] = _cpu_s() - _shared_s, len(sys.modules)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Return the folder of real samples; skip without it, or fail if CI requires it."""
    folder = Path(os.environ.get("RAGMETER_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        message = f"real samples not found at {folder}: set RAGMETER_DATA"
        if os.environ.get("RAGMETER_REQUIRE_DATA") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _parsers_made_once() -> None:
    """Cache Typer's parsers, because building them takes longer than most commands under test."""
    typer.main.get_command = cache(typer.main.get_command)


@pytest.fixture(scope="module", autouse=True)
def _worlds_made_once() -> Iterator[None]:
    """Cache generated worlds by options; the tests of loading worlds override this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "generate", _generated)
        patch.setattr(dataset, "articles", lambda world, rendering: _articles(world.seed, world.config, rendering))
        yield


@lru_cache(maxsize=32)
def _generated(seed: int, config: WorldConfig) -> World:
    return generate(seed, config)


@lru_cache(maxsize=32)
def _articles(seed: int, config: WorldConfig, rendering: Rendering) -> Library:
    return articles(_generated(seed, config), rendering)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plugin]:
    """Return an installed package that is not loaded yet (`tests.support.plugin`), and unregister it afterwards."""
    from benchmarks.registry import DATASETS
    from judges.judge import JUDGES
    from judges.metric import METRICS
    from methods.registry import METHODS
    from methods.training import TRAININGS

    made = Plugin(tmp_path / "site")
    made.write(FILES)
    monkeypatch.syspath_prepend(str(made.folder))
    # Bytecode has timestamps in seconds, and tests edit faster.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    registries = METHODS, DATASETS, METRICS, JUDGES, TRAININGS
    before = [(dict(registry._entries), dict(registry._sources)) for registry in registries]
    yield made
    made.forget()
    for registry, (entries, sources) in zip(registries, before, strict=True):
        for name, entry in list(registry._entries.items()):
            if entry.code is not None and name not in entries:
                del registry._entries[name], registry._sources[name]
        registry._entries.update(entries)
        registry._sources.update(sources)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Use a cache folder of these tests instead of the user's."""
    os.environ["RAGMETER_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def typeset() -> Callable[[str, Path], int]:
    """Return a function that compiles tables with LaTeX in a folder and returns the size of the document in bytes; skip without LaTeX.

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
    """Return a function that loads a test helper from its file, because test folders are not packages."""

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
