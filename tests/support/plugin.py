"""A plug-in package in a folder of a test, loaded by its entry points as an installed one is."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

METHOD = '''"""The method of this package."""
from .helper import reply
from methods.registry import MethodConfig, register
from methods.api import Prediction


@register("acme", kind="method", summary="says what its template says"{more})
class Acme:
    """Answers without looking."""

    def __init__(self, config: MethodConfig, services):
        self.words = reply()

    def index(self, corpus):
        """Needs none."""

    def answer(self, queries):
        for query in queries:
            yield Prediction(query.id, self.words)
'''
HELPER = """from importlib.resources import files


def reply():
    # read again for every method that is built
    return files(__package__).joinpath("templates/ask.txt").read_text().strip()
"""
FILES: Mapping[str, str] = {
    "acme/__init__.py": "",
    "acme/app.py": METHOD.format(more=""),
    "acme/helper.py": HELPER,
    "acme/templates/ask.txt": "Lyon\n",
    "acme/unused.py": "x = 1\n",
    "acme_rag-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme-rag\nVersion: 1.2\nRequires-Dist: numpy>=1\n",
    "acme_rag-1.2.dist-info/entry_points.txt": "[ragmeter.methods]\nacme = acme.app\n",
}
"""A package with a method, a module that the method imports and a template."""


class Plugin:
    """A folder of installed packages.

    Args:
        folder: An empty folder on `sys.path`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Write files, replacing those of equal names."""
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that must occur in a file."""
        text = (self.folder / name).read_text()
        assert old in text
        self.write({name: text.replace(old, new)})

    def load(self) -> None:
        """Load all entry points of the packages from their files, like a new process."""
        self.forget()
        for group in ("ragmeter.methods", "ragmeter.benchmarks", "ragmeter.judges"):
            for point in entry_points(group=group):
                if point.dist is not None and Path(str(point.dist.locate_file(""))) == self.folder:
                    point.load()

    def forget(self) -> None:
        """Remove the packages' modules from the process."""
        importlib.invalidate_caches()
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(self.folder)):
                del sys.modules[name]
