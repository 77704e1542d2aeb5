"""The notebook under `examples`: its stored output equals the output of its cells."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


def shown(notebook: Any) -> list[Any]:
    """Return the output of each code cell, as text or by MIME type, without measured times."""

    def text(lines: str | list[str]) -> str:
        return re.sub(r", at [\d.,]+× its time", "", "".join(lines))

    return [
        [
            text(output.get("text", "")) or {kind: text(lines) for kind, lines in output.get("data", {}).items()}
            for output in cell["outputs"]
        ]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def test_notebook_is_executed_in_order_and_contains_no_local_paths() -> None:
    text = FILE.read_text("utf-8")
    notebook = json.loads(text)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    kinds = [output["output_type"] for cell in code for output in cell["outputs"]]
    assert len(kinds) >= 6
    assert "error" not in kinds
    assert "stderr" not in [output.get("name") for cell in code for output in cell["outputs"]]
    assert len(text) < 64 * 1024
    for position in ("/home/", "/root/", "/tmp/", "/work/", "/Users/", "site-packages"):
        assert position not in text


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_notebook_output_is_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.delenv("RAGMETER_STORE", raising=False)
    notebook = nbformat.read(FILE, as_version=4)
    before = shown(json.loads(FILE.read_text("utf-8")))
    position = tmp_path / "place"
    position.mkdir()
    NotebookClient(notebook, timeout=500, kernel_name="python3", resources={"metadata": {"path": str(position)}}).execute()
    assert shown(notebook) == before
