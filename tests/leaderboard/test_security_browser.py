"""Every page in a real browser, on a store with hostile texts: nothing runs, loads or links elsewhere."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from leaderboard import pages

pytestmark = pytest.mark.slow
PAGES = sorted(address or "board" for _, _, _, address in pages.PAGES)
VIEWS = {"board": ["view=matrix", "view=benchmark"], "runs": ["with=1111111111111111"], "styles": ["experiment=restyled", ""]}
PARAMETERS = ("experiment", "board", "metric", "run", "search", "method", "judge", "from")
ADDRESS = {"board": ""}
SERVE = """import sys; from pathlib import Path; from leaderboard.server import serve
submit = [sys.executable, "-P", "-m", "ragmeter.cli", "submit"]
sys.exit(serve(Path(sys.argv[1]), int(sys.argv[2]), submit=submit))"""
FOREIGN = """() => {
  const found = [], look = (root) => {
    for (const one of root.querySelectorAll("*")) {
      for (const { name, value } of one.attributes) {
        if (/^on/i.test(name)) found.push(`${one.tagName} ${name}`);
        if (!/^(href|src|action|formaction|srcdoc|data)$/i.test(name)) continue;
        const leads = new URL(value, location.href);
        if (/^(javascript|vbscript):$/.test(leads.protocol) || /evil/.test(leads.host) || /^srcdoc$/i.test(name))
          found.push(`${one.tagName} ${name}=${value}`);
      }
      if (/^(iframe|object|embed|base)$/i.test(one.tagName)) found.push(one.tagName);
      if (one.tagName === "SCRIPT" && /pwned/.test(one.textContent)) found.push("SCRIPT");
      if (one.shadowRoot) look(one.shadowRoot);
    }
  };
  look(document);
  return found;
}"""


@pytest.fixture(scope="module")
def site(hostile_store: Path, screenshots: ModuleType) -> Iterator[str]:
    pytest.importorskip("streamlit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(screenshots, "SERVE", SERVE)
        with screenshots.serving(hostile_store) as address:
            yield address


@pytest.fixture
def visit(site: str, window: Any, screenshots: ModuleType) -> Callable[[str], Any]:
    """Return a function from an address to the open page."""

    def open_page(path: str) -> Any:
        window.set_viewport_size({"width": 1280, "height": 1600})
        window.goto(f"{site}/{path}")
        screenshots.settled(window)
        return window

    return open_page


def nothing_ran(page: Any) -> None:
    assert page.evaluate("window.pwned") is None
    assert page.evaluate(FOREIGN) == []
    assert page.noted == []


@pytest.mark.parametrize("name", PAGES)
def test_script_in_a_name_or_url_never_runs(visit: Any, name: str, hostile: ModuleType, screenshots: ModuleType) -> None:
    bad = quote(hostile.TEXT)
    for view in VIEWS.get(name, [""]):
        queries = [item for item in PARAMETERS if f"{item}=" not in view]
        page = visit(f"{ADDRESS.get(name, name)}?{'&'.join([view, *(f'{item}={bad}' for item in queries)])}")
        addresses = [urlsplit(item) for item in page.locator("a[href]").evaluate_all("all => all.map(one => one.href)")]
        assert {address.scheme for address in addresses} <= {"http", "https"}
        if name != "submit":
            # Text of the store, and not of the note about unknown names in the URL.
            page.locator(":text('pwned'):not(.missing, .missing *)").locator("visible=true").first.wait_for(timeout=30_000)
        nothing_ran(page)
        # Popups are drawn only on click or hover.
        for summary in page.locator("summary").all()[:4]:
            # A click on an outer element may have closed its container.
            if summary.is_visible():
                summary.click(timeout=20_000)
        for explained in page.locator(".explained").all()[:5]:
            if explained.is_visible():
                explained.hover(timeout=20_000, force=True)
        for box in page.locator("[data-testid=stSelectbox] input").all()[:3]:
            box.click(timeout=20_000)
            page.wait_for_timeout(150)
            nothing_ran(page)
            page.keyboard.press("Escape")
        for chart in page.locator(".chart svg:first-child").all()[:2]:
            for x in (0.3, 0.5, 0.7):
                around = chart.bounding_box()
                if around:
                    page.mouse.move(around["x"] + x * around["width"], around["y"] + 0.5 * around["height"])
                    page.wait_for_timeout(100)
        screenshots.settled(page)
        nothing_ran(page)


def test_uploaded_file_name_and_content_are_shown_as_text(visit: Any, tmp_path: Path, hostile: ModuleType, screenshots: ModuleType) -> None:
    name = "<img src=x onerror=window.pwned=1>.jsonl"
    (tmp_path / name).write_text('{"question_id": "<script>window.pwned=1</script>", "answer": "x"}\n')
    (tmp_path / "card.yaml").write_text(f"method: {{name: m, '{hostile.SCRIPT}': 1}}\n")
    page = visit("submit")
    for number, file in enumerate((tmp_path / name, tmp_path / "card.yaml")):
        with page.expect_response(lambda reply: reply.request.method == "PUT"):
            page.locator("input[type=file]").nth(number).set_input_files(file)
        page.get_by_text(file.suffix).nth(1).wait_for(timeout=20_000)
    # A check covers files that have arrived; a file that arrives after a click discards the check's result.
    screenshots.settled(page)
    page.get_by_role("button", name="Check and preview").click()
    page.get_by_text("It cannot be read as a submission").wait_for(timeout=90_000)
    screenshots.settled(page)
    assert "<script>window.pwned=1</script>" in page.locator("section.message").last.inner_text()
    nothing_ran(page)


def ask(site: str, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    """Send a request without the normalization of a browser."""
    with closing(http.client.HTTPConnection(urlsplit(site).netloc, timeout=20)) as connection:
        connection.putrequest(method, path, skip_accept_encoding=True)
        connection.putheader("Content-Length", str(len(body)))
        connection.putheader("Content-Type", "multipart/form-data; boundary=x")
        connection.endheaders(body)
        reply = connection.getresponse()
        return reply.status, reply.read()


def test_server_does_not_serve_local_files(site: str) -> None:
    for path in (
        "/../../../../../../etc/passwd",
        "/static/../../../../../../../../etc/passwd",
        "/..%2f..%2f..%2f..%2fetc/passwd",
        "/app/static/..%2f..%2fetc%2fpasswd",
        "/component/x/../../../../etc/passwd",
        "/media/../../../../etc/passwd",
        "//etc/passwd",
        "/_stcore/../../etc/passwd",
        "/app/static/board.py",
        "/store.duckdb",
    ):
        _, body = ask(site, "GET", path)
        assert b"root:" not in body, path
        assert b"DUCK" not in body[:16], path
        assert b"from leaderboard" not in body, path


def test_read_only_server_refuses_uploads(filled: Path, screenshots: ModuleType) -> None:
    form = b'--x\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\nx\r\n--x--\r\n'
    with screenshots.serving(filled) as address:
        assert ask(address, "PUT", "/_stcore/upload_file/session/file", form)[0] >= 400
        assert b"Submit" not in ask(address, "GET", "/submit")[1]


def test_running_run_is_refreshed_automatically(tmp_path: Path, window: Any, screenshots: ModuleType, synthetic: ModuleType) -> None:
    import numpy as np

    from methods.api import Prediction
    from results.store.store import FINISHED, RUNNING, Store

    store = Store(tmp_path / "live")
    world, run = synthetic.benchmark(20), "ab" * 8

    def prepared(run: str) -> Any:
        return synthetic.Run(run, f"slow {run[:2]}", "m", "method", {}, "madeup:test", world.fingerprint, "distractor", 0, 20, {})

    store.put_benchmark(world, world.fingerprint)
    store.put_cards([], synthetic.METRICS)
    store.start(prepared(run))
    with screenshots.serving(store.folder) as address:
        page = window
        page.goto(f"{address}/runs")
        page.get_by_text("0 of 20", exact=True).first.wait_for(timeout=60_000)
        responses = [Prediction(question.id, "x") for question in world.questions]
        store.append(run, responses[:5], {"em#v2": np.ones(5)})
        page.get_by_text("5 of 20", exact=True).first.wait_for(timeout=20_000)
        store.append(run, responses[5:], {"em#v2": np.ones(15)})
        store.end(run, RUNNING)
        page.get_by_text("20 of 20", exact=True).first.wait_for(timeout=20_000)
        store.end(run, FINISHED)
        page.get_by_text("Nothing is running").wait_for(timeout=20_000)
        # And one that starts without any interaction.
        store.start(prepared("cd" * 8))
        page.get_by_text("0 of 20", exact=True).first.wait_for(timeout=60_000)
