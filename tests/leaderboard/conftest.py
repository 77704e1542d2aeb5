"""Fixtures of a synthetic store, the app on it, and the helper scripts of this folder as modules."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leaderboard import pages
from leaderboard.elements.nodes import Node
from results.store.store import Store
from tests.support.nodes import from_json

HERE = Path(__file__).parent
APP = Path(pages.__file__).with_name("app.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that draw pages with Streamlit or a browser as slow, except the one walk over all pages."""
    for item in items:
        pages = HERE in item.path.parents and {"app", "browser"} & {*getattr(item, "fixturenames", ())}
        if pages and not item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def synthetic(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(HERE / "synthetic.py")


@pytest.fixture(scope="session")
def large(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(HERE / "large.py")


@pytest.fixture(scope="session")
def matrix_store(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(HERE / "matrix_store.py")


@pytest.fixture(scope="session")
def several(tmp_path_factory: pytest.TempPathFactory, matrix_store: ModuleType) -> Path:
    """Return the folder of a store with several benchmarks; do not write to it."""
    folder = tmp_path_factory.mktemp("several") / "store"
    matrix_store.fill(folder)
    Store(folder).database.close()
    return folder


@pytest.fixture(scope="session")
def screenshots(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(HERE / "screenshots.py")


# Module scope, because an event loop runs while it is open, and other tests could not start one.
@pytest.fixture(scope="module")
def browser(screenshots: ModuleType) -> Iterator[Any]:
    """Start a headless Chromium; skip without one."""
    pytest.importorskip("playwright")
    executable = screenshots.chromium()
    if executable is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with screenshots.browsing(executable) as opened:
        yield opened


@pytest.fixture(scope="module")
def window(browser: Any) -> Iterator[Any]:
    """Open one page for all visits, because a new context would load all of Streamlit's code again.

    It records faults: requests to other hosts, dialogs and additional windows in `noted`, errors in `complaints`.
    """
    context = browser.new_context(accept_downloads=True, reduced_motion="reduce")
    page = context.new_page()
    page.noted, page.complaints = [], []

    def note(query: Any) -> None:
        if not query.url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")):
            page.noted.append(query.url)

    page.on("request", note)
    page.on("websocket", note)
    page.on("dialog", lambda dialog: (page.noted.append(f"dialog {dialog.message}"), dialog.dismiss()))
    context.on("page", lambda other: page.noted.append(f"window {other.url}"))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("console", lambda response: page.complaints.append(response.text) if response.type == "error" else None)
    page.on("response", lambda reply: page.complaints.append(f"{reply.status} {reply.url}") if reply.status == 404 else None)
    yield page
    context.close()


@pytest.fixture(scope="session")
def accessible() -> Callable[[Any], None]:
    """Return a check that axe-core finds no serious problem on an open page, in dark and light colors; skip without axe-core."""
    package = pytest.importorskip("axe_playwright_python", reason="no axe-core: pip install axe-playwright-python")
    source = (Path(package.__path__[0]) / "axe.min.js").read_text("utf-8")

    def check(page: Any) -> None:
        color = "getComputedStyle(document.querySelector('[data-testid=stApp]') ?? document.body).color"
        # Streamlit fades what is being drawn again.
        ready = "!document.querySelector('[data-stale=true]')"
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_function(
                f"dark => {ready} && ({color}.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + +part, 0) > 382) === dark",
                arg=scheme == "dark",
                timeout=30_000,
            )
            page.evaluate(source)
            result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            assert "color-contrast" in {item["id"] for item in (*result["passes"], *result["incomplete"])}
            serious = [item for item in result["violations"] if item["impact"] in ("serious", "critical")]
            assert [(item["id"], node["target"], node["failureSummary"]) for item in serious for node in item["nodes"]] == []

    return check


@pytest.fixture(scope="session")
def hostile(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(HERE / "hostile.py")


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory, synthetic: ModuleType) -> Path:
    """Return the folder of a store with synthetic results; do not write to it."""
    folder = tmp_path_factory.mktemp("filled") / "store"
    synthetic.fill(folder)
    Store(folder).database.close()
    return folder


@pytest.fixture(scope="module")
def copied(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Return a function that copies that store for writing, because filling one takes seconds."""
    return lambda: Path(shutil.copytree(filled, tmp_path_factory.mktemp("copied") / "store"))


@pytest.fixture(scope="session")
def hostile_store(tmp_path_factory: pytest.TempPathFactory, filled: Path, synthetic: ModuleType, hostile: ModuleType) -> Path:
    """Return the folder of a store with hostile texts and API keys; do not write to it."""
    folder = Path(shutil.copytree(filled, tmp_path_factory.mktemp("hostile") / "store"))
    hostile.add_hostile_content(Store(folder), synthetic)
    return folder


class App:
    """The app as a reader sees it, without a browser."""

    def __init__(self, test: Any) -> None:
        self.test = test

    def open(self, page: str = "", /, **parameters: str) -> App:
        self.test.query_params.clear()
        for name, value in parameters.items():
            self.test.query_params[name] = value
        if page:
            # The app starts with its first page, which is cheap without a store.
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RAGMETER_STORE", str(HERE / "none"))
                self.test.run()
            self.switch(page)
            for name, value in parameters.items():
                self.test.query_params[name] = value
        self.test.run()
        return self

    def switch(self, page: str) -> App:
        from streamlit.util import calc_hash

        # `AppTest.switch_page` knows only pages that are files.
        self.test._page_hash = calc_hash(page)
        return self

    def part(self, key: str) -> Node:
        """Return the tree that was drawn under a key."""
        results = [tree for name, tree in self._parts() if name == key]
        assert len(results) == 1, f"{key}: {[name for name, _ in self._parts()]}"
        return from_json(json.dumps(results[0]))

    def has(self, key: str) -> bool:
        return any(name == key for name, _ in self._parts())

    def _parts(self) -> Iterator[tuple[str, Any]]:
        """Keys and trees of components, and of what they show together."""
        for element in self.test.get("bidi_component"):
            tree = json.loads(element.proto.bytes or "null")
            yield re.sub(r"^.*?-[0-9a-f]{32}-", "", element.proto.id), tree
            if tree and tree[1] == "stack":
                yield from ((part[3]["attributes"]["key"], part[2][0]) for part in tree[2] if part[1] == "part")

    def choose(self, label: str, value: str) -> App:
        next(box for box in self.test.selectbox if box.label == label).set_value(value).run()
        return self

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] if isinstance(values, list) else values for name, values in self.test.query_params.items()}


@pytest.fixture
def streamlit_app(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], App]:
    """Return a function from a store's folder to the app."""
    testing = pytest.importorskip("streamlit.testing.v1")
    # For every app, Streamlit searches all packages for components, which takes five times as long as a page.
    monkeypatch.setattr("streamlit.components.v2.manifest_scanner.scan_component_manifests", list)

    def start(folder: Path) -> App:
        monkeypatch.setenv("RAGMETER_STORE", str(folder))
        return App(testing.AppTest.from_file(str(APP), default_timeout=60))

    return start


@pytest.fixture
def app(streamlit_app: Callable[[Path], App]) -> Callable[[Path], App]:
    """Return the same for tests of the slow ring."""
    return streamlit_app


def text(node: Node) -> str:
    return " ".join(node.texts())


@dataclass(frozen=True)
class Sent:
    """A store with one board, and a valid submission for it."""

    folder: Path
    predictions: bytes
    card: bytes
    questions: tuple[str, ...]


@pytest.fixture(scope="session")
def _sent(tmp_path_factory: pytest.TempPathFactory) -> Sent:
    """Create a board over six questions with one run, and predictions of which the first is correct."""
    from benchmarks import registry, settings
    from benchmarks.settings import Setting
    from judges.metric import parse
    from judges.score import score
    from methods.api import Prediction
    from results.store.store import FINISHED, Run
    from results.submission.bundle import write_template
    from results.submission.validate import Target

    tmp_path = tmp_path_factory.mktemp("sent")
    loaded = registry.load("worlds/multihop:validation").limited(6)
    store, mark = Store(tmp_path / "board"), loaded.fingerprint
    metrics = [parse("em"), parse("f1(rules=hotpotqa)")]
    responses = [Prediction(item.id, item.answers[0] if n < 3 else "no") for n, item in enumerate(loaded.questions)]
    store.put_benchmark(loaded, mark)
    store.put_cards([], metrics)
    store.start(Run("ab" * 8, "half right", "m", "method", {}, loaded.name, mark, "distractor", 0, 6, {}))
    store.append("ab" * 8, responses, score(loaded.questions, responses, metrics))
    store.end("ab" * 8, FINISHED)
    store.database.close()  # else its file may be written while it is copied
    target = Target(loaded, settings.apply("distractor", loaded, 0))
    write_template(tmp_path / "mine", target, Setting.parse("distractor"), limit=6)
    answers = [question.answers[0] if n < 1 else "no" for n, question in enumerate(loaded.questions)]
    rows = [{"question_id": q.query_id, "answer": a} for q, a in zip(loaded.questions, answers, strict=True)]
    return Sent(
        store.folder,
        "".join(json.dumps(row) + "\n" for row in rows).encode(),
        (tmp_path / "mine" / "card.yaml").read_bytes().replace(b"# training_data: []", b"training_data: []"),
        tuple(question.query_id for question in loaded.questions),
    )


@pytest.fixture
def sent(_sent: Sent, tmp_path: Path) -> Sent:
    """Return a copy for writing."""
    return replace(_sent, folder=Path(shutil.copytree(_sent.folder, tmp_path / "board")))


_run = subprocess.run


def in_this_process(command: list[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run `ragmeter …` of `subprocess.run` in this process, because starting it takes longer than most tests."""
    from ragmeter import cli

    if "ragmeter.cli" not in command:
        return _run(command, **options)
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(options["cwd"])
        patch.setattr(sys, "argv", ["ragmeter", *command[command.index("ragmeter.cli") + 1 :]])
        with pytest.raises(SystemExit) as run_command:
            cli.main()
    return subprocess.CompletedProcess(command, int(run_command.value.code or 0), out.getvalue().encode(), err.getvalue().encode())


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return a server that accepts submissions and runs their command in this process."""
    from leaderboard import intake

    command = [sys.executable, "-P", "-m", "ragmeter.cli", "submit"]
    monkeypatch.setenv(intake.VARIABLE, json.dumps(command))
    monkeypatch.setattr(intake.subprocess, "run", in_this_process)
