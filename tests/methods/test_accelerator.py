"""Memory of the accelerator, queried while torch is being imported."""

from __future__ import annotations

import importlib
import sys
import threading
import types
from pathlib import Path

import pytest

from methods.accelerator import accelerators, loaded_torch, peak_memory, reset_peak_memory

HALF = """
import builtins
builtins.half_way.set()
builtins.goes_on.wait(10)
class cuda:
    is_available = staticmethod(lambda: True)
    is_initialized = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    get_device_name = staticmethod(lambda number: "H100")
    max_memory_allocated = staticmethod(lambda: 7)
    reset_peak_memory_stats = staticmethod(lambda: None)
"""


def test_torch_half_imported_by_another_thread_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import builtins

    half_way, goes_on = threading.Event(), threading.Event()
    monkeypatch.setattr(builtins, "half_way", half_way, raising=False)
    monkeypatch.setattr(builtins, "goes_on", goes_on, raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    (tmp_path / "torch.py").write_text(HALF)
    monkeypatch.syspath_prepend(tmp_path)
    thread = threading.Thread(target=importlib.import_module, args=("torch",))
    thread.start()
    try:
        assert half_way.wait(10)
        assert "torch" in sys.modules
        assert not hasattr(sys.modules["torch"], "cuda")
        reset_peak_memory()
        assert (loaded_torch(), peak_memory(), accelerators()) == (None, 0, [])
    finally:
        goes_on.set()
        thread.join()
        imported = sys.modules.pop("torch")  # no test after this one may meet the stand-in
    monkeypatch.setitem(sys.modules, "torch", imported)
    assert (peak_memory(), accelerators()) == (7, ["H100"])


@pytest.mark.parametrize("attributes", [{}, {"cuda": object()}, {"cuda": None}])
def test_module_without_cuda_reports_no_memory_and_no_accelerators(monkeypatch: pytest.MonkeyPatch, attributes: dict[str, object]) -> None:
    module = types.ModuleType("torch")
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, "torch", module)
    reset_peak_memory()
    assert (peak_memory(), accelerators()) == (0, [])
