"""Identity of plug-in code: edits that change the hash, and code whose identity is unknown."""

from __future__ import annotations

import ast
import importlib
import json
import os
import runpy
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from benchmarks.core import distribution, syntax
from benchmarks.core.code import Code, shortened
from benchmarks.core.syntax import DOCUMENTED, PLAIN, SOURCE, syntax_of
from methods.registry import METHODS, Component, register
from tests.support.plugin import METHOD, Plugin


def code_of(made: Plugin) -> Code:
    made.load()
    code = METHODS.get("acme").code
    assert code is not None
    return code


def test_package_hash_covers_imported_modules_and_templates(plugin: Plugin) -> None:
    code = code_of(plugin)
    assert list(code.files) == ["acme/__init__.py", "acme/app.py", "acme/helper.py", "acme/templates/ask.txt"]
    assert code.folder == plugin.folder / "acme"
    value = code.to_json()
    assert (value["distribution"], value["version"], list(value["dependencies"])) == ("acme-rag", "1.2", ["numpy"])
    assert Component.of("acme").describe()["code"] == code.hash


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("acme/app.py", "    def answer", "    # a comment\n\n\n    def answer"),
        ("acme/app.py", "Answers without looking.", "Answers at once."),
        ("acme/app.py", '"""The method of this package."""', ""),
        (
            "acme/app.py",
            "Prediction(query.id, self.words)",
            "Prediction(\n                query.id,\n                self.words,\n            )",
        ),
        ("acme/app.py", '"acme"', "'acme'"),
        ("acme/app.py", '"""Needs none."""', "pass"),
        ("acme/unused.py", "1", "2"),
        ("acme_rag-1.2.dist-info/METADATA", "1.2", "1.3"),
    ],
)
def test_edit_without_effect_on_behavior_keeps_the_hash(plugin: Plugin, name: str, old: str, new: str) -> None:
    before = code_of(plugin)
    plugin.edit(name, old, new)
    assert code_of(plugin).hash == before.hash


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("acme/app.py", "self.words)", '"")'),
        ("acme/helper.py", ".strip()", ".strip().lower()"),
        ("acme/templates/ask.txt", "Lyon", "Rome"),
        ("acme/__init__.py", "", "import sys\n"),
    ],
)
def test_edit_that_can_change_answers_changes_one_file_hash(plugin: Plugin, name: str, old: str, new: str) -> None:
    before = code_of(plugin)
    plugin.edit(name, old, new)
    after = code_of(plugin)
    assert after.hash != before.hash
    assert [file for file in after.files if after.files[file] != before.files[file]] == [name]


DEEP = ["acme/deep/__init__.py", "acme/deep/tool.py"]
WHOLE = ["acme/more/x.py", "acme/unused.py"]


@pytest.mark.parametrize(
    ("source", "more", "expected"),
    [
        ("def later():\n    from acme import tool", {"acme/tool.py": ""}, ["acme/tool.py"]),
        ("import acme.deep.tool as t", {"acme/deep/__init__.py": "", "acme/deep/tool.py": ""}, DEEP),
        ("from . import deep", {"acme/deep/__init__.py": "from .. import up", "acme/up.py": ""}, ["acme/deep/__init__.py", "acme/up.py"]),
        ("from .deep import *", {"acme/deep/__init__.py": "__all__ = ['tool']", "acme/deep/tool.py": ""}, DEEP),
        ("from .a import x", {"acme/a.py": "import acme.b\nx = 1", "acme/b.py": "import acme.a"}, ["acme/a.py", "acme/b.py"]),
        ("try:\n    import acme.bad\nexcept SyntaxError:\n    pass", {"acme/bad.py": "def ("}, ["acme/bad.py"]),
        ("import importlib\ndef f():\n    importlib.import_module('.tool', __package__)", {"acme/tool.py": ""}, ["acme/tool.py"]),
        ("TABLE = {'x': 'acme.tool:make'}", {"acme/tool.py": ""}, ["acme/tool.py"]),
        ("from importlib import import_module as load\ndef f(n):\n    load(n)", {"acme/more/x.py": ""}, WHOLE),
        ("import importlib\ndef f(n):\n    importlib.import_module('acme.' + n)", {"acme/more/x.py": ""}, WHOLE),
        ("def f():\n    import acme.native", {"acme/native.abi3.so": b"\x7fELF"}, ["acme/native.abi3.so"]),
        ("P = __file__, 'assets', 'a.bin'", {"acme/assets/a.txt": "x", "acme/assets/.git/b.txt": ""}, ["acme/assets/a.txt"]),
        ("NAME = 'few shots/one.prompt'", {"acme/few shots/one.prompt": "x"}, ["acme/few shots/one.prompt"]),
        ("NAME = 'shots/one.dat'", {"acme/shots/one.dat": "x"}, ["acme/shots/one.dat"]),
        ("x = 1", {"acme/README.md": "x", "acme/rules.yaml": "x"}, ["acme/rules.yaml"]),
        ("x = 1", {"acme/prompts/deep/notice.j2": "x"}, ["acme/prompts/deep/notice.j2"]),
        ("STORE = 'store'", {"acme/store/store.duckdb": "x", "acme/store/notes.txt": "x"}, []),
        ("import numpy, judges.metric, acme_other", {"acme_other.py": "", "numpy.txt": ""}, []),
    ],
)  # fmt: skip
def test_hash_covers_the_expected_files(plugin: Plugin, source: str, more: dict[str, str | bytes], expected: list[str]) -> None:
    plugin.write({**more, "acme/helper.py": f"{source}\ndef reply():\n    return ''\n"})
    usual = {"acme/__init__.py", "acme/app.py", "acme/helper.py", "acme/templates/ask.txt"}
    assert [name for name in code_of(plugin).files if name not in usual] == expected


def test_docstrings_are_hashed_if_a_framework_sends_them_to_a_model(plugin: Plugin) -> None:
    plugin.write({"acme/tool.py": 'def look():\n    """Look it up."""\n'})
    plugin.edit("acme/helper.py", "def reply", "def tools():\n    from . import tool\n    import dspy\n\n\ndef reply")
    before = code_of(plugin)
    plugin.edit("acme/tool.py", "Look it up.", "Look it up twice.")
    assert code_of(plugin).hash != before.hash


@pytest.mark.parametrize(
    ("source", "level"),
    [
        ("def f():\n    return 1", PLAIN),
        ("import argparse\nargparse.ArgumentParser(description=__doc__)", DOCUMENTED),
        ("from pydantic import BaseModel", DOCUMENTED),
        ("from langchain_core.tools import tool", DOCUMENTED),
        ("import inspect\ninspect.getsource(f)", SOURCE),
    ],
)
def test_hash_level_follows_from_the_features_that_a_file_uses(source: str, level: int) -> None:
    assert syntax_of(source.encode()).level == level


def test_each_syntax_node_changes_the_hash() -> None:
    source = "async def f(a, *, b: int = 0x10) -> str:\n    return f'{a!r:>{b}}x' if a[1:2] else {**b, 'k': (yield)}"
    hashes = {syntax_of(source.encode()).hashes[PLAIN]}
    tree = ast.parse(source)
    changed = ["a[1:3]", "'m'", "0x11", "!s", "x' if", "*, c"]
    for old, new in zip(["a[1:2]", "'k'", "0x10", "!r", "x' if", "*, b"], [*changed[:4], "y' if", "b"], strict=True):
        hashes.add(syntax_of(source.replace(old, new).encode()).hashes[PLAIN])
    assert len(hashes) == 7
    assert syntax_of(ast.unparse(tree).encode()).hashes[PLAIN] in hashes


def test_hash_is_equal_in_every_python_version() -> None:
    source = "class A(B, metaclass=C):\n    def f(self, /, a: int = 1, *b, **c): return f'{a!r:>{b}} {{x}}' 'y' f'{c=}'\n"
    source += "async def g():\n    async with a as b, c:\n        match b:\n            case [1, *_]: pass\n"
    source += "\n            case _: return lambda: (x := -1.5e3j, b'\\x00', ..., None, True, 0xFFFF, '\u00e9\U0001f600')"
    assert syntax_of(source.encode()).hashes[PLAIN] == "3951b3b58977de2b"


def test_single_module_hash_covers_neighboring_templates_and_named_files(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    helper = "def reply():\n    return open('words.txt').read()\n"
    more = {"acme_one.py": METHOD.format(more="").replace(".helper", "acme_two"), "acme_two.py": helper}
    data = dict.fromkeys(("words.txt", "templates/look.txt", "mine.yaml", "report.json", "pyproject.toml", "other.py"), "x")
    Plugin(project).write({**more, **data})
    monkeypatch.syspath_prepend(str(project))
    importlib.import_module("acme_one")
    code = METHODS.get("acme").code
    assert code is not None
    assert list(code.files) == ["acme_one.py", "acme_two.py", "templates/look.txt", "words.txt"]
    assert (code.folder, code.owner) == (project, None)
    Plugin(project).forget()


def test_installed_single_module_excludes_files_of_its_neighbors(plugin: Plugin) -> None:
    plugin.write({
        "acme/app.py": "",
        "acme_one.py": METHOD.format(more="").replace(".helper", "acme_two"),
        "acme_two.py": "NAME = 'acme'\ndef reply():\n    return ''\n",
        "templates/look.txt": "",
        "acme_rag-1.2.dist-info/entry_points.txt": "[ragmeter.methods]\nacme = acme_one\n",
        "acme_rag-1.2.dist-info/RECORD": "acme_one.py,,\nacme_two.py,sha256=x,12\n",
    })  # fmt: skip
    assert list(code_of(plugin).files) == ["acme_one.py", "acme_two.py"]


def test_editable_project_hash_covers_all_its_folders(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    Plugin(project).write({
        "src/acme_one/__init__.py": "",
        "src/acme_one/app.py": METHOD.format(more="").replace(".helper", "acme_tools"),
        "tools/acme_tools.py": "import acme\ndef reply():\n    return ''\n",
    })  # fmt: skip
    plugin.write({"acme_rag-1.2.dist-info/direct_url.json": json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}})})
    monkeypatch.syspath_prepend(str(project / "src"))
    monkeypatch.syspath_prepend(str(project / "tools"))
    distribution._projects.cache_clear()
    try:
        importlib.import_module("acme_one.app")
    finally:
        distribution._projects.cache_clear()
        Plugin(project).forget()
    code = METHODS.get("acme").code
    assert code is not None
    assert list(code.files) == ["acme_one/__init__.py", "acme_one/app.py", "acme_tools.py"]
    assert code.owner is not None
    assert code.owner.name == "acme-rag"


def test_script_that_registers_a_component_is_a_single_module(plugin: Plugin, tmp_path: Path) -> None:
    script = tmp_path / "bench.py"
    script.write_text(METHOD.format(more="").replace("from .helper import reply", "import acme.helper"))
    runpy.run_path(str(script), run_name="__main__")
    code = METHODS.get("acme").code
    assert code is not None
    assert (list(code.files), code.unknown, code.edited) == (["bench.py"], "", False)


def test_broken_links_and_pipes_are_skipped(plugin: Plugin) -> None:
    templates = plugin.folder / "acme" / "templates"
    (templates / "lost.txt").symlink_to(templates / "nowhere.txt")
    os.mkfifo(templates / "pipe.txt")
    assert [name for name in code_of(plugin).files if "templates" in name] == ["acme/templates/ask.txt"]


def test_namespace_package_excludes_files_of_another_distribution(plugin: Plugin) -> None:
    plugin.write({
        "shared/acme/__init__.py": "",
        "shared/acme/app.py": METHOD.format(more="").replace(".helper", "shared.acme.helper"),
        "shared/acme/helper.py": "from shared.other import tool\ndef reply():\n    return ''\n",
        "shared/other/tool.py": "",
        "acme_rag-1.2.dist-info/entry_points.txt": "[ragmeter.methods]\nacme = shared.acme.app\n",
    })  # fmt: skip
    assert list(code_of(plugin).files) == ["shared/acme/__init__.py", "shared/acme/app.py", "shared/acme/helper.py"]


def test_archived_package_hashes_like_the_package_on_disk(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = code_of(plugin)
    archive = tmp_path / "acme.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        for path in sorted((plugin.folder / "acme").rglob("*.*")):
            opened.write(path, path.relative_to(plugin.folder))
    plugin.forget()
    monkeypatch.syspath_prepend(str(archive))
    importlib.import_module("acme.app")
    zipped = METHODS.get("acme").code
    assert zipped is not None
    assert (zipped.files, zipped.unknown) == (code.files, "")
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]


def test_linked_packages_and_link_cycles_are_read_once(plugin: Plugin, tmp_path: Path) -> None:
    code = code_of(plugin)
    (plugin.folder / "acme").rename(tmp_path / "elsewhere")
    (plugin.folder / "acme").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "templates" / "again").symlink_to(tmp_path / "elsewhere" / "templates")
    assert code_of(plugin).files == code.files


@pytest.mark.parametrize("content", [b"b" * (2**20 + 1), b"a" * (2**20 + 2), b"a" * 2**20 + b"b", b"b" + b"a" * 2**20])
def test_large_data_files_are_hashed_by_size_and_blocks(plugin: Plugin, content: bytes) -> None:
    plugin.write({"acme/large.jsonl": b"a" * (2**20 + 1)})
    before = code_of(plugin)
    assert code_of(plugin).hash == before.hash
    plugin.write({"acme/large.jsonl": content})
    assert code_of(plugin).hash != before.hash


def test_identity_by_version_excludes_the_code_hash(plugin: Plugin) -> None:
    plugin.write({"acme/app.py": METHOD.format(more=', identity="version"')})
    code = code_of(plugin)
    first = Component.of("acme").fingerprint
    assert "code" not in Component.of("acme").describe()
    assert code.files
    plugin.edit("acme/app.py", "self.words)", '"")')
    assert code_of(plugin).hash != code.hash
    assert Component.of("acme").fingerprint == first
    plugin.edit("acme/app.py", 'identity="version"', 'identity="version", version=2')
    code_of(plugin)
    assert Component.of("acme").fingerprint != first


def test_unknown_identity_word_is_refused() -> None:
    with pytest.raises(ValueError, match="'none'"):
        register("acme", kind="method", summary="x", identity="none")(type("A", (), {}))  # type: ignore[arg-type]


def test_component_named_in_options_adds_its_code_hash(plugin: Plugin) -> None:
    retriever = METHOD.format(more="").replace('"acme", kind="method"', '"acme", kind="retriever"')
    plugin.write({"acme/app.py": retriever})
    code = code_of(plugin)
    fused = Component.of("hybrid", {"retrievers": ["bm25", "acme"]})
    assert fused.describe()["code"] == code.hash
    assert list(fused.codes) == ["acme"]
    assert "code" not in Component.of("hybrid", {"retrievers": ["bm25", "random"]}).describe()


@pytest.mark.parametrize("file", [None, "/tmp/ipykernel_1/2.py"])
def test_code_without_a_source_never_equals_other_code(plugin: Plugin, file: str | None) -> None:
    scope = {"__name__": "acme_cell", "register": register}
    if file is not None:
        scope["__file__"] = file
    module = type(sys)("acme_cell")
    module.__dict__.update(scope)
    sys.modules["acme_cell"] = module
    try:
        cell = compile(textwrap.dedent(METHOD.format(more="").replace("from .helper import reply", "")), "<cell>", "exec")
        exec(cell, module.__dict__)
        first = METHODS.get("acme").code
        exec(cell, module.__dict__)
        second = METHODS.get("acme").code
    finally:
        del sys.modules["acme_cell"]
    assert first is not None
    assert second is not None
    assert first.unknown
    assert (first.files, first.hash[0]) == ({}, "u")
    assert first.hash != second.hash


def test_code_defined_by_exec_within_a_module_is_unknown(plugin: Plugin) -> None:
    exec(compile(METHOD.format(more="").replace("from .helper import reply", ""), "<text>", "exec"), globals())
    code = METHODS.get("acme").code
    assert code is not None
    assert "<text>" in code.unknown


def test_edit_after_loading_is_noticed(plugin: Plugin) -> None:
    code = code_of(plugin)
    assert not code.edited
    plugin.edit("acme/helper.py", ".strip()", ".strip().upper()")
    assert code.edited


def test_analyses_are_cached_by_content(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    code = code_of(plugin)
    monkeypatch.setattr(syntax, "_ANALYZED", {})
    monkeypatch.setattr(syntax, "syntax_of", lambda content: pytest.fail("analyzed again"))
    assert code_of(plugin).files == code.files


def test_shipped_components_are_identified_by_version() -> None:
    assert all(entry.code is None for entry in METHODS if METHODS.source(entry.id).startswith("methods."))
    assert "code" not in Component.of("bm25").describe()


def test_common_folder_is_removed_from_file_names() -> None:
    assert shortened(["a/b/x.py", "a/b/c/y.txt"]) == ["c/y.txt", "x.py"]
    assert shortened(["x.py", "a/y.py"]) == ["a/y.py", "x.py"]
