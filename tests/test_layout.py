"""Test files are in the folder that mirrors their module, and start with the module's name."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
FLOWS = {
    "benchmarks/datasets/test_document_files.py": "damaged and packed files, through all loaders of long documents",
    "benchmarks/datasets/test_loaders_read_worlds.py": "worlds in each native format, through its loader",
    "benchmarks/test_silent_faults.py": "data that would be scored wrongly, through several loaders",
    "judges/test_known_traps.py": "traps of other tools' metrics",
    "ragmeter/cli/test_own_app.py": "a user's app from the first try to a board",
    "ragmeter/cli/test_own_search.py": "a user's search function from the first try to a board",
    "leaderboard/test_browser.py": "pages in a browser",
    "leaderboard/test_links.py": "links with unknown names, and from elsewhere",
    "leaderboard/test_security.py": "a hostile store on all pages and in the report",
    "leaderboard/test_security_browser.py": "a hostile store in a browser",
    "leaderboard/test_unscored.py": "a missing value in tables, exports and pictures",
    "leaderboard/test_walk_browser.py": "the controls of all pages in a browser",
    "methods/baselines/compress/test_text.py": "all compressors into text",
    "methods/retrieval/test_first_stages.py": "SPLADE and ColBERT together",
    "methods/test_every_method.py": "all registered methods",
    "methods/training/test_read_questions.py": "the questions that loaders of all trainings record",
    "methods/baselines/test_graph_released.py": "graph systems compared with the outputs of their authors' code",
    "methods/test_released.py": "released systems compared with the outputs of their authors' code",
    "methods/test_released_inputs.py": "the same systems, on texts that are hard to tokenize",
    "ragmeter/cli/test_every_command.py": "all commands",
    "ragmeter/cli/test_malformed_files.py": "malformed data files and predictions, by two commands",
    "ragmeter/experiments/test_commands.py": "commands in comments of shipped YAML files",
    "ragmeter/experiments/test_tiny.py": "tiny profiles of shipped experiments",
    "ragmeter/plan/test_arithmetic.py": "tokens, sizes and memory of a plan",
    "ragmeter/test_docs_commands.py": "commands in docs/",
    "ragmeter/test_docs_site.py": "the site of docs/",
    "ragmeter/test_notebook.py": "examples/notebook.ipynb",
    "ragmeter/test_plugin.py": "examples/plugin",
    "ragmeter/test_own_data.py": "examples/own-data",
    "ragmeter/test_serving.py": "examples/serving",
    "ragmeter/test_slurm_scripts.py": "docs/gpus.md",
    "ragmeter/test_real_numbers.py": "real records from loader to table",
    "ragmeter/test_tutorials.py": "the tutorials in docs/",
    "ragmeter/test_invalid_use.py": "unwritable paths and damaged stores, by all commands",
}
"""Tests of a flow through several modules, or of files that are not modules, with their subject."""


def names_a_module(file: Path, root: Path) -> bool:
    """Return whether a file's name starts with a module of the mirrored folder, or equals a folder in it."""
    folder, name = root / file.parent.relative_to(root / "tests"), file.stem.removeprefix("test_")
    modules = {module.stem for module in folder.glob("*.py") if module.stem != "__init__"}
    return name in modules or (folder / name).is_dir() or any(name.startswith(f"{module}_") for module in modules)


def test_every_test_file_is_named_after_a_module_or_listed_as_a_flow() -> None:
    files = sorted(TESTS.rglob("test_*.py"))
    unnamed = {file.relative_to(TESTS).as_posix() for file in files if file.parent != TESTS and not names_a_module(file, ROOT)}
    assert unnamed == set(FLOWS)


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("store/test_losses.py", True),
        ("store/test_losses_after_a_fork.py", True),
        ("test_store.py", True),
        ("test_store_losses.py", False),
        ("store/test_loss.py", False),
        ("store/test___init__.py", False),
        ("test_losses.py", False),
    ],
)
def test_test_file_name_must_start_with_a_module_or_equal_a_folder(file: str, named: bool, tmp_path: Path) -> None:
    package = tmp_path / "results" / "store"
    package.mkdir(parents=True)
    for name in "__init__.py", "losses.py":
        (package / name).touch()
    assert names_a_module(tmp_path / "tests" / "results" / file, tmp_path) is named
