"""The leaderboard in Chromium on a store of a million score rows: first paint of every page, and every change on it.

A page counts as painted when its title is drawn, no placeholder is left, and its script has ended; a change when nothing on
the page has moved any more after the script's end. Every select, toggle, segment, search and button that a page shows
is used once; one that starts no script has changed nothing and does not count. The named alternative is a bare
Streamlit page with a title and one select, on this machine in this run; of both, the median of three paints counts. Then
ten visitors load and use the board while a run writes, and ten load the bare page. At last a server that has just started
paints the board of 300 methods on 7 benchmarks.

Targets: 1.5 times the first paint of the bare page, for one visitor and for ten; 250 ms for a change at the median; 1 GiB of
memory in the server; 3 s for 300 methods.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import numpy as np
import psutil

from methods.api import Prediction
from perf.measuring import Bench
from results.store.store import Run, Store

HELPERS = Path(__file__).parent.parent / "tests" / "leaderboard"
PAGES = ("", "methods", "compare", "questions", "styles", "budget", "judges", "datasets", "runs")
CLICKS = (("thead button[data-key^=sort]", 3), ("button:text-is('next')", 1), ("button:text-is('hide')", 1))
"""Within tables: heads that sort, the next rows, a row that goes; how many of each."""
PAINT, CHANGE_S, MEMORY_GIB, VISITORS, PAINTS = 1.5, 0.25, 1.0, 10, 3
MANY, MANY_S = (300, 7, 300), 3.0
"""Methods, benchmarks and questions of the cold board, and seconds for its first paint."""
BARE = """import streamlit as st
st.html('<h1 class="page">Bare</h1>')
st.write(st.selectbox("One", list(range(20))))
"""
WATCH = """() => { window.moved = window.acted = performance.now();
for (const kind of ['click', 'keydown']) document.addEventListener(kind, () => { window.acted = performance.now() }, true);
const all = {subtree: true, childList: true, characterData: true, attributes: true};
const app = document.querySelector('[data-testid=stApp]');
new MutationObserver(records => {
  if (records.some(one => one.attributeName !== 'aria-describedby')) window.moved = performance.now() }).observe(
  document.querySelector('[data-testid=stMain]'), all);
new MutationObserver(() => { window.moved = performance.now() }).observe(app,
  {attributes: true, attributeFilter: ['data-test-script-state']}) }"""
PAINTED = """(() => {
const titled = root => root.querySelector('h1.page') ||
  [...root.querySelectorAll('*')].some(one => one.shadowRoot && titled(one.shadowRoot));
const timer = setInterval(() => { const app = document.querySelector('[data-testid=stApp]');
const drawn = app && app.dataset.testScriptState === 'notRunning' && !document.querySelector('[data-testid=stSkeleton]');
if (drawn && titled(document)) { window.painted = performance.now(); clearInterval(timer) } }, 10)
})()"""
# The page looks for its title itself: the driver's waiting looks only every half second after the first quarter of a second.
# Only the page itself is watched: lists that close and help that fades in over a button lie beside it; that a button is
# described by such help is said half a second after the mouse has come to rest there, whatever the button does. Focus
# rings and the "running" sign move, too, but before and with the script: what is last is what was asked for.
AT_REST = """() => { const app = document.querySelector('[data-testid=stApp]');
return app && app.dataset.testScriptState === 'notRunning' && performance.now() - window.moved > 400 }"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 0 if every target is met, or if there is no browser."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", type=int, default=100)
    parser.add_argument("--datasets", type=int, default=20)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--pages", nargs="*", choices=[page or "board" for page in PAGES], help="all by default")
    query = parser.parse_args(argv)
    pages = [page for page in PAGES if not query.pages or (page or "board") in query.pages]
    shots, large = _helper("screenshots"), _helper("large")
    executable = shots.chromium()
    if executable is None or importlib.util.find_spec("playwright") is None:
        print("skipped: no Chromium, or no playwright, on this machine")
        return 0
    bench = Bench("leaderboard")
    with tempfile.TemporaryDirectory() as folder, shots.browsing(executable) as browser:
        with _bare(Path(folder), shots) as address:
            bare, bare_changes = _page(browser, address, paints=1 + PAINTS, used="[data-testid=stSelectbox]")
            bare_paint = median(bare[1:])  # the first one loads the server's own modules
            bare_crowd, windows = _crowd(browser, address)
            _close(windows)
        bench.figure("bare Streamlit: paint", bare_paint, "s", remark=f" (change {1000 * median(bare_changes):.0f} ms)")
        bench.figure(f"{VISITORS} visitors, bare Streamlit: paint", bare_crowd, "s")
        store = large.fill_large(Path(folder) / "store", query.methods, query.datasets, query.questions)
        rows = query.methods * query.datasets * query.questions
        with shots.serving(store.folder) as address:
            server = _server(address)
            _page(browser, address, changes=False)  # the server's own start is not a visitor's
            peak = _each_page(bench, browser, address, [(page, f"{page or 'board'}, {rows:,} rows") for page in pages], bare_paint)
            paint, changes, written = _crowd_while_writing(browser, address, store)
            remark = f" ({paint / bare_crowd:.1f}x bare, change at the median {1000 * median(changes):.0f} ms, {written:,} answers written)"
            name = f"{VISITORS} visitors while a run writes: paint"
            bench.figure(name, paint, "s", at_most=PAINT * bare_crowd, equal=written > 0, remark=remark)
            bench.figure("memory of the server", max(peak, _memory(server)), "GiB", at_most=MEMORY_GIB)
        many = large.fill_large(Path(folder) / "many", *MANY)
        with shots.serving(many.folder) as address:
            server = _server(address)
            before = _cpu_seconds(server)
            paints, _ = _page(browser, address, changes=False)
            name = f"{MANY[0]} methods on {MANY[1]} benchmarks, cold"
            bench.figure(f"{name}: CPU of the server", _cpu_seconds(server) - before, "s")
            bench.figure(f"{name}: paint", paints[0], "s", at_most=MANY_S)
    return bench.finish()


def _helper(name: str) -> ModuleType:
    """A helper of the tests, which make and look at such stores as well."""
    spec = importlib.util.spec_from_file_location(name, HELPERS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _bare(folder: Path, shots: ModuleType) -> Iterator[str]:
    script, port = folder / "bare.py", shots.free_port()
    script.write_text(BARE, "utf-8")
    options = ("--server.headless", "true", "--browser.gatherUsageStats", "false", "--server.fileWatcherType", "none")
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        shots.wait_until_healthy(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def _server(address: str) -> psutil.Process:
    """The process that listens there."""
    port = int(address.rpartition(":")[2])
    for process in psutil.Process().children(recursive=True):
        if any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in process.net_connections("tcp")):
            return process
    raise RuntimeError(f"nothing of ours listens at {address}")


def _memory(server: psutil.Process) -> float:
    """Return the server's resident memory in GiB."""
    return float(server.memory_info().rss) / 2**30


def _cpu_seconds(server: psutil.Process) -> float:
    spent = server.cpu_times()
    return float(spent.user + spent.system)


def _each_page(bench: Bench, browser: Any, address: str, pages: Sequence[tuple[str, str]], bare_paint: float) -> float:
    """Measure each page (its address and its name in the record); return the server's peak memory in GiB."""
    server, peak = _server(address), 0.0
    for page, name in pages:
        paints, changes = _page(browser, f"{address}/{page}", paints=PAINTS)
        paint = median(paints)
        bench.figure(f"{name}: paint", paint, "s", at_most=PAINT * bare_paint, remark=f" ({paint / bare_paint:.2f}x bare)")
        if changes:  # a page without results has no choices
            remark = f" (median of {len(changes)}, slowest {1000 * max(changes):.0f} ms)"
            bench.figure(f"{name}: change", 1000 * median(changes), "ms", at_most=1000 * CHANGE_S, remark=remark)
        peak = max(peak, _memory(server))
    return peak


def _page(browser: Any, address: str, *, changes: bool = True, paints: int = 1, used: str = "h1.page") -> tuple[list[float], list[float]]:
    """Return the seconds to each first paint of a page, every time in a new window, and of each change in the last one.

    Args:
        browser: The browser.
        address: Address of the page.
        changes: Whether to use what the page offers.
        paints: Number of first paints.
        used: Selector of what must be there.
    """
    painted: list[float] = []
    while True:
        page = _window(browser)
        page.set_default_timeout(60_000)
        try:
            painted.append(_visit(page, address, used))
            if len(painted) == paints:
                return painted, list(_changes(page)) if changes else []
        finally:
            page.close()


def _window(browser: Any) -> Any:
    """Open a new window; its attribute `requested` counts the messages to the server."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.add_init_script(PAINTED)
    page.requested = 0

    def count(_: object) -> None:
        page.requested += 1

    page.on("websocket", lambda socket: socket.on("framesent", count))
    return page


def _painted(page: Any) -> float:
    """Wait until a page is painted; return the seconds since its address was opened."""
    page.wait_for_function("window.painted", polling=50)
    return float(page.evaluate("window.painted")) / 1000


def _visit(page: Any, address: str, used: str) -> float:
    page.goto(address, wait_until="commit")
    painted = _painted(page)
    # The code of a widget may come after the script has ended: without it there would be nothing to change.
    page.wait_for_selector(used)
    page.evaluate(WATCH)
    page.wait_for_function(AT_REST, polling=50)
    return painted


def _changes(page: Any) -> Iterator[float]:
    """Use what the page offers, each thing once; seconds until it stands there."""
    for index in range(_count(page, "stSelectbox")):
        field = page.locator("[data-testid=stSelectbox]:visible").nth(index).locator("input")
        if field.is_enabled():
            field.click()
            page.keyboard.press("ArrowDown")
            page.wait_for_function(AT_REST, polling=50)
            yield from _until_rest(page, lambda: page.keyboard.press("Enter"))
    for kind in ("stCheckbox", "stTextInput", "stButtonGroup", "stButton"):
        for index in range(_count(page, kind)):
            part = page.locator(f"[data-testid={kind}]:visible").nth(index)
            if kind == "stTextInput":
                part.locator("input").fill("05")
                yield from _until_rest(page, lambda: page.keyboard.press("Enter"))
                continue
            inner = {"stCheckbox": "label", "stButtonGroup": "button:not([kind*=Active])", "stButton": "button"}[kind]
            target = part.locator(inner).first
            if target.is_enabled():
                yield from _until_rest(page, lambda target=target: target.click(no_wait_after=True))
    for selector, most in CLICKS:
        for index in range(min(most, page.locator(f"{selector}:visible").count())):
            target = page.locator(f"{selector}:visible").nth(index)
            if target.count() and target.is_enabled():
                yield from _until_rest(page, lambda target=target: target.click(no_wait_after=True))
    yield from _filters(page)


def _filters(page: Any) -> Iterator[float]:
    """Each list of the board's filters: its second entry is taken."""
    opener = page.locator("[data-testid=stPopover] button", has_text="Filters")
    if not opener.count():
        return
    opener.first.click()
    page.wait_for_function(AT_REST, polling=50)
    body = page.locator("[data-testid=stPopoverBody]")
    for kind in ("stMultiSelect", "stSelectbox"):
        for index in range(body.locator(f"[data-testid={kind}]").count()):
            field = body.locator(f"[data-testid={kind}]").nth(index).locator("input")
            if not field.is_enabled():
                continue
            field.click()
            page.keyboard.press("ArrowDown")
            page.wait_for_function(AT_REST, polling=50)
            yield from _until_rest(page, lambda: page.keyboard.press("Enter"))
            page.keyboard.press("Escape")
            if not body.count():
                opener.first.click()
            page.wait_for_function(AT_REST, polling=50)


def _count(page: Any, kind: str) -> int:
    return int(page.locator(f"[data-testid={kind}]:visible").count())


def _until_rest(page: Any, act: Any) -> list[float]:
    """Return the seconds from an act to the last change that it made; nothing if the server was not asked."""
    query = page.requested
    act()
    page.wait_for_timeout(50)
    page.wait_for_function(AT_REST, polling=50)
    # The state that the app shows of its script will not do: of a short one the browser never draws it.
    # Counted from the click or key itself: before it, the driver scrolls to the element and waits until it is stable.
    return [page.evaluate("() => window.moved - window.acted") / 1000] if page.requested > query else []


def _crowd(browser: Any, address: str) -> tuple[float, list[Any]]:
    """Open a page for all visitors at once; return the seconds until the last one is painted, and their windows."""
    pages = [_window(browser) for _ in range(VISITORS)]
    started = time.perf_counter()
    for page in pages:
        page.set_default_timeout(120_000)
        page.goto(address, wait_until="commit")
    for page in pages:
        _painted(page)
    return time.perf_counter() - started, pages


def _close(pages: Sequence[Any]) -> None:
    for page in pages:
        page.close()


def _crowd_while_writing(browser: Any, address: str, store: Store) -> tuple[float, list[float], int]:
    """Let visitors load and use the board while another thread writes a run; return seconds, changes, and answers written."""
    stop, written = threading.Event(), [0]
    writer = threading.Thread(target=_write, args=(store, stop, written))
    writer.start()
    pages: list[Any] = []
    try:
        painted, pages = _crowd(browser, address)
        for page in pages:
            page.evaluate(WATCH)
        return painted, [spent for page in pages for spent in islice(_changes(page), 2)], written[0]
    finally:
        stop.set()
        writer.join()
        _close(pages)


def _write(store: Store, stop: threading.Event, written: list[int]) -> None:
    """A run of its own that answers ten questions every tenth of a second."""
    dataset, fingerprint = "data0:test", f"{1:016x}"
    run = Run("f" * 16, "written meanwhile", "perf", "method", {}, dataset, fingerprint, "distractor", 0, 500, {})
    store.start(run)
    for first in range(0, 500, 10):
        if stop.wait(0.1):
            break
        predictions = [Prediction(f"d0q{number}", "an answer") for number in range(first, first + 10)]
        store.append(run.run, predictions, {"f1(rules=hotpotqa)#v2": np.ones(len(predictions))})
        written[0] += len(predictions)


if __name__ == "__main__":
    sys.exit(main())
