"""Take screenshots of the leaderboard with headless Chromium: light, dark and at phone width.

    python tests/leaderboard/screenshots.py STORE FOLDER [--chromium PATH]
    python tests/leaderboard/screenshots.py STORE docs/pictures/pages --views light --highest 1000 --colors 255 \
        --page board "" --page compare "" --page questions "" --page budget experiment=demo-compression

The second command creates the pictures of the documentation from the demo's store: one small file per page. The server runs on a free port
of the loopback interface and is stopped afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
"""The last flag disables name resolution, so that no other host is reached."""
VIEWS = {"light": ("light", 1440, 900), "dark": ("dark", 1440, 900), "phone": ("light", 390, 844)}
PAGES = {
    "board": "",
    **{name: name for name in ("methods", "compare", "questions", "styles", "budget", "judges", "datasets", "runs", "submit")},
}
SERVE = "import sys; from pathlib import Path; from leaderboard.server import serve; sys.exit(serve(Path(sys.argv[1]), int(sys.argv[2])))"
SERVE_SUBMISSIONS = (
    "import sys; from pathlib import Path; from leaderboard.server import serve; sys.exit(serve("
    "Path(sys.argv[1]), int(sys.argv[2]), submit=[sys.executable, '-P', '-m', 'ragmeter.cli', 'submit']))"
)


def chromium() -> str | None:
    """Return the path of Chromium, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def free_port() -> int:
    """A free port below those that the system hands out: nothing else takes it before the server listens."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", random.SystemRandom().randrange(20_000, 32_000)))
            return int(probe.getsockname()[1])


@contextlib.contextmanager
def serving(store: Path, program: str | None = None, log: IO[str] | None = None) -> Iterator[str]:
    """Serve the leaderboard of a store in another process and yield its address.

    The server's output goes to `log` if given.
    """
    printed = log or subprocess.DEVNULL
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-c", program or SERVE, str(store), str(port)],
        stdout=printed,
        stderr=printed,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        wait_until_healthy(address, process)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def wait_until_healthy(address: str, process: subprocess.Popen[Any], patience: float = 180.0) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=2) as reply:
                if reply.status == 200:
                    return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextlib.contextmanager
def browsing(executable: str) -> Iterator[Any]:
    """Open a headless browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def settled(page: Any) -> None:
    """Wait until the page has drawn our components, its script has ended, and no new one has started."""
    idle, spinner = '[data-testid="stApp"][data-test-script-state="notRunning"]', '[data-testid="stSpinner"]'
    page.wait_for_selector("h1.page", timeout=60_000)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        page.wait_for_selector(idle, timeout=60_000)
        page.wait_for_selector(spinner, state="detached", timeout=60_000)
        # The last click may not have reached the server yet.
        page.wait_for_timeout(300)
        if page.locator(idle).count() and not page.locator(spinner).count():
            return
    raise TimeoutError("the page's script does not come to rest")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chromium", default=chromium())
    parser.add_argument("--query", default="", help="URL parameters of every page")
    parser.add_argument(
        "--page",
        nargs=2,
        action="append",
        metavar=("NAME", "QUERY"),
        default=[],
        help="these pages alone, each with URL parameters of its own",
    )
    parser.add_argument("--submissions", action="store_true", help="as where submissions are allowed")
    parser.add_argument("--views", default=",".join(VIEWS), help="which of them, with commas between")
    parser.add_argument("--highest", type=int, default=6000, help="pixels at which a page is cut off")
    parser.add_argument("--colors", type=int, help="so many colors in a palette, for small files; all without")
    value = parser.parse_args()
    if not value.chromium:
        parser.error("no Chromium found: apt-get install chromium, or --chromium PATH")
    value.folder.mkdir(parents=True, exist_ok=True)
    queries = dict(value.page) or dict.fromkeys(PAGES if value.submissions else list(PAGES)[:-1], value.query)
    program = SERVE_SUBMISSIONS if value.submissions else SERVE
    with serving(value.store, program) as address, browsing(value.chromium) as browser:
        for view in value.views.split(","):
            scheme, width, height = VIEWS[view]
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=1)
            page = context.new_page()
            page.set_default_navigation_timeout(120_000)  # the first page of a server loads all modules
            for name, query in queries.items():
                page.goto(f"{address}/{PAGES[name]}?{query}")
                settled(page)
                # Streamlit scrolls inside the window: make the window as high as its content.
                content = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
                page.set_viewport_size({"width": width, "height": max(height, min(content + 60, value.highest))})
                page.wait_for_timeout(500)
                target = value.folder / f"{name}-{view}.png"
                page.screenshot(path=str(target))
                if value.colors:
                    reduce(target, value.colors)
                page.set_viewport_size({"width": width, "height": height})
                print(target)


def reduce(picture: Path, colors: int) -> None:
    """Rewrite a picture with a palette."""
    from PIL import Image

    with Image.open(picture) as opened:
        few = opened.convert("RGB").quantize(colors, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(picture, optimize=True)


if __name__ == "__main__":
    main()
