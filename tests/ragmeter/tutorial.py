"""Execute the commands of pages block by block, and compare their output with the output on the page.

- A fenced block with a `title` is a file and is written under that name.
- `bash` and `python` blocks are run, in order, in one folder. They must succeed.
- A `text` block is the output of the block before it: its lines occur in that order. `…` matches any text, white space
  matches any white space, and a hash of at least eight digits any hash; a line `…` matches any lines.
- `<!-- not run -->` before a block: it is not executed. `<!-- in the background -->`: a server; the next blocks run when
  it answers. `<!-- in the browser: PATH -->` before a `text` block: text of that server's page at PATH in a browser.

    python tests/ragmeter/tutorial.py PAGE      # runs a page and prints what its blocks print
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PORTS = re.compile(r"\b(?:8000|8501)\b")
"""Ports on pages, which are replaced by free ones."""
_FENCE = re.compile(
    r"(?:^<!-- (?P<directive>[^\n]*?) -->\n+)?^```(?P<language>\w+)(?:[ \t]+title=\"(?P<title>[^\"]+)\")?[^\n]*\n"
    r"(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block, with the page's instructions on how to run it."""

    language: str
    title: str | None
    text: str
    directive: str


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in order, without those that are not run."""
    results = [Block(m["language"], m["title"], m["text"], m["directive"] or "") for m in _FENCE.finditer(page)]
    return [block for block in results if block.directive != "not run"]


def pattern(line: str) -> str:
    """Return the regular expression of a line on a page."""
    text = re.escape(" ".join(line.split()))
    text = text.replace("\\ ", r"\s+").replace("…", ".*")
    return re.sub(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,64}\b", "[0-9a-f]{8,64}", text)


def missing(shown: str, printed: str) -> str | None:
    """Return the first line of a page that was not printed, in order; None if all were."""
    lines = iter(printed.splitlines())
    for line in filter(str.strip, shown.splitlines()):
        if line.strip() == "…":
            continue
        wanted = re.compile(pattern(line))
        if not any(wanted.fullmatch(line.strip()) for line in lines):
            return line
    return None


@dataclass
class Room:
    """Folder in which a page is run, like a new user's shell.

    Attributes:
        folder: Files of the page, and the store that its commands create.
        environment: A separate Python environment, into which a page installs packages.
    """

    folder: Path
    environment: Path
    ports: dict[str, str] = field(default_factory=dict)
    response: str = ""
    _servers: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        # Pages share the cache of these tests, so each benchmark is generated once.
        foreign = ("RAGMETER_", "PYTEST_", "GITHUB_", "PIP_")
        own = {k: v for k, v in os.environ.items() if k == "RAGMETER_CACHE" or not k.startswith(foreign)}
        return own | {
            "PATH": f"{self.environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "110",
            "NO_COLOR": "1",
            "HOME": str(self.environment),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    def filled(self, text: str) -> str:
        """Replace the ports in a text by free ones."""
        return PORTS.sub(lambda m: self.ports.setdefault(m[0], str(_free_port())), text)

    def write(self, block: Block) -> None:
        target = self.folder / str(block.title)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.filled(block.text), "utf-8")

    def run(self, block: Block) -> None:
        """Run a block.

        Raises:
            AssertionError: It failed; with what it printed.
        """
        command = ["bash", "-euo", "pipefail", "-c"] if block.language == "bash" else ["python", "-c"]
        done = subprocess.run(
            [*command, self.filled(block.text)],
            cwd=self.folder,
            env=self.variables,
            text=True,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.response = done.stdout
        assert done.returncode == 0, f"exit code {done.returncode} of\n{block.text}\n{done.stdout}"

    def serve(self, block: Block) -> None:
        """Start a server and wait until it listens."""
        before = set(self.ports)
        process = subprocess.Popen(
            ["bash", "-c", f"exec {self.filled(block.text.strip())}"],
            cwd=self.folder,
            env=self.variables,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._servers.append(process)
        (port,) = set(self.ports) - before
        deadline = time.monotonic() + 180
        while not _listens(int(self.ports[port])):
            assert process.poll() is None, f"{block.text} ended with {process.returncode}"
            assert time.monotonic() < deadline, f"{block.text} does not answer"
            time.sleep(0.2)

    def visit(self, browser: Any, path: str) -> None:
        """Open a page of the leaderboard and keep what it shows."""
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(self.filled(path))
        page.wait_for_selector("h1.page", timeout=60_000)
        page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=60_000)
        page.wait_for_timeout(700)
        self.response = page.evaluate(_SHOWN)
        page.close()

    def close(self) -> None:
        for process in self._servers:
            process.terminate()
            process.wait(60)


_SHOWN = """() => {
  const texts = [];
  const walk = node => {
    if (['STYLE', 'SCRIPT', 'NOSCRIPT'].includes(node.tagName)) return;
    if (node.shadowRoot) walk(node.shadowRoot);
    for (const child of node.childNodes) {
      if (child.nodeType !== Node.TEXT_NODE) walk(child);
      else if (child.data.trim()) texts.push(child.data.trim().replace(/\\s+/g, ' '));
    }
  };
  walk(document);
  return texts.join('\\n');
}"""


@contextlib.contextmanager
def forks(folder: Path) -> Iterator[Path]:
    """Start a process whose forks run commands, and yield its socket; see `forks.py`."""
    own, address = Room(folder, folder), folder / "forks"
    process = subprocess.Popen([sys.executable, str(Path(__file__).with_name("forks.py")), "serve", str(address)], env=own.variables)
    try:
        deadline = time.monotonic() + 120
        while not address.exists():
            assert process.poll() is None, f"it ended with {process.returncode}"
            assert time.monotonic() < deadline, "it does not listen"
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def room(folder: Path, forks: Path | None = None) -> Iterator[Room]:
    """Create a room with an environment that sees this one's packages and keeps new installations to itself.

    Args:
        folder: Folder to create it in.
        forks: Socket of a process whose forks run commands other than servers; None starts a process per command.
    """
    import venv

    environment = folder / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    ours = sorted({str(Path(path)) for path in sys.path if path.endswith("site-packages")})
    (site / "ours.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in ours))
    for name, module in (("ragmeter", "ragmeter.cli"), ("pip", "pip")):
        script = environment / "bin" / name
        start = f'exec "{environment}/bin/python" -m {module} "$@"\n'
        if name == "ragmeter" and forks:
            client = f'exec "{environment}/bin/python" -I -S "{Path(__file__).with_name("forks.py")}" ask "{forks}" "{site}" "$@"\n'
            start = f'if [ "$1" = leaderboard ]; then {start.strip()}; fi\n{client}'
        script.write_text(f"#!/bin/sh\n{start}")
        script.chmod(0o755)
    work = folder / "work"
    work.mkdir()
    opened = Room(work, environment)
    try:
        yield opened
    finally:
        opened.close()


def play(page: str, where: Room, browser: Any = None, tell: bool = False) -> None:
    """Run a page.

    Args:
        page: Markdown of the page.
        where: Room to run it in.
        browser: Browser for blocks with browser output, which are skipped without one.
        tell: Print the output of blocks, and ignore differences from the page.

    Raises:
        AssertionError: A block failed, or printed something else than the page shows.
    """
    for block in blocks(page):
        address = re.fullmatch(r"in the browser: (\S+)", block.directive)
        if block.title:
            where.write(block)
        elif block.directive == "in the background":
            where.serve(block)
        elif block.language in ("bash", "python"):
            where.run(block)
            if tell:
                sys.stdout.write(f"$ {block.text}{where.response}\n")
        elif block.language == "text":
            if address and browser is None:
                warnings.warn(f"no Chromium: what {address[1]} shows was not looked at", stacklevel=1)
                continue
            if address:
                where.visit(browser, address[1])
            line = missing(where.filled(block.text), where.response)
            if tell and line is not None:
                sys.stdout.write(f"!!! not printed: {line}\n{where.response if address else ''}\n")
            assert tell or line is None, f"the page shows\n  {line}\nand this was printed\n{where.response}"


def _free_port() -> int:
    """A free port below those that the system hands out: nothing else takes it before the server listens."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", random.SystemRandom().randrange(20_000, 32_000)))
            return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, room(Path(scratch)) as opened:
        play(Path(sys.argv[1]).read_text("utf-8"), opened, tell=True)
