"""References in docstrings, comments and pages to existing and missing modules and files."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tools.references import broken


def test_broken_reference_is_reported_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "results" / "store").mkdir(parents=True)
    (tmp_path / "results" / "__init__.py").write_text('"""Start at `results.store.tables`, or `store/tables.py`."""\n')
    (tmp_path / "results" / "store" / "__init__.py").write_text("")
    (tmp_path / "results" / "store" / "tables.py").write_text(
        "class Table:\n"
        '    """A table of `results.store.rows`."""\n'
        "    width: int = 3\n"
        '    """See `results.store.tables.Table.width` and `results.store.tables.height`."""\n'
        'x = "`results.gone.name` in a string is data"  # but `rows.py` here is a reference\n'
    )
    (tmp_path / "page.md").write_text("# A page\n\nOpen `results/store/gone.py`, `results.failed`, `tables.py` and `data.json`.\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert sorted(broken(tmp_path)) == [
        "page.md:3: results/store/gone.py",
        "results/store/tables.py:2: results.store.rows",
        "results/store/tables.py:4: results.store.tables.height",
        "results/store/tables.py:5: rows.py",
    ]
