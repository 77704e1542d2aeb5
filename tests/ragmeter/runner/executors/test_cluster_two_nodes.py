"""Two Ray nodes in two network namespaces, and failures between them; needs root and `ip`."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from results.store.store import Store
from tests.ragmeter.runner.executors.test_ray_method import rows

ROOT = Path(__file__).resolve().parents[4]
PORT, CHAT = 6379, 8123
ADDRESSES = ("10.77.53.1", "10.77.53.2")
SERVE = """
import sys, time
from tests.support.server import OpenAIServer, Written

def answer(request):
    with open(sys.argv[3], "a") as log:
        log.write(request.messages[-1]["content"].replace("\\n", " ") + "\\n")
    time.sleep(float(sys.argv[2]))
    return Written(f"answer {len(request.prompt) % 7}", 10, 2)

OpenAIServer("m", answer, host=sys.argv[1], port=8123).serve_forever()
"""
FILE = """\
name: small
benchmarks: [{id: worlds/multihop, split: validation, setting: distractor, limit: 150}]
methods: [{id: bm25, reader: {id: chat, config: {llm: {model: m, base_url: "http://HOST:8123/v1", key_variable: null, concurrency: 3}}}}]
metrics: [em, recall@5]
"""
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


class Nodes:
    """Two namespaces that are connected by a cable.

    Args:
        folder: Folder of all files; both nodes see its folders `data` and `shared`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = [f"ragmeter{os.getpid()}{end}" for end in "ab"]
        self.served = folder / "served.txt"
        for name in ("data/files", "shared"):
            (folder / name).mkdir(parents=True)
        (folder / "auth").write_text("a" * 64)
        paths = {"PYTHONPATH": str(ROOT), "RAGMETER_DATA": str(folder / "data" / "files")}
        ray = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "auth"), "RAY_USAGE_STATS_ENABLED": "0"}
        self.environment = os.environ | paths | ray | {"OMP_NUM_THREADS": "1"}
        self._server: subprocess.Popen[bytes] | None = None

    def connect(self) -> None:
        """Create the namespaces.

        Raises:
            subprocess.CalledProcessError: The kernel refuses.
        """
        for name in self.names:
            self._ip("netns", "add", name)
        self._ip("link", "add", "ragmeter0", "netns", self.names[0], "type", "veth", "peer", "name", "ragmeter0", "netns", self.names[1])
        for name, address in zip(self.names, ADDRESSES, strict=True):
            self._ip("-n", name, "addr", "add", f"{address}/24", "dev", "ragmeter0")
            for device in ("lo", "ragmeter0"):
                self._ip("-n", name, "link", "set", device, "up")

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    def inside(self, node: int, *command: str) -> list[str]:
        """Return a command that runs on a node."""
        return ["ip", "netns", "exec", self.names[node], *command]

    def serve(self, seconds: float, host: str = ADDRESSES[0]) -> None:
        """Start an endpoint on the first node in place of the previous one, with a delay per reply."""
        self.end_server()
        command = self.inside(0, sys.executable, "-c", SERVE, host, str(seconds), str(self.served))
        self._server = subprocess.Popen(command, env=self.environment)
        deadline = time.monotonic() + 60
        look = self.inside(0, sys.executable, "-c", f"import socket; socket.create_connection(({host!r}, {CHAT}), 1)")
        while subprocess.run(look, capture_output=True, check=False).returncode:
            assert time.monotonic() < deadline

    def end_server(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    def start(self, node: int, *, before: str = "true", python: str = sys.executable) -> None:
        """Start Ray on a node.

        Args:
            node: 0 is the head.
            before: Shell command to run first, in a mount namespace of this node.
            python: Python of the node.
        """
        where = ["--head", "--port", str(PORT), "--include-dashboard", "false"] if node == 0 else ["--address", f"{ADDRESSES[0]}:{PORT}"]
        size = ["--num-cpus", "1", "--object-store-memory", str(80 * 2**20), "--disable-usage-stats"]
        place = ["--node-ip-address", ADDRESSES[node], "--temp-dir", str(self.folder / f"ray{node}")]
        ray = shlex.join([python, "-m", "ray.scripts.scripts", "start", *where, *size, *place])
        subprocess.run(
            self.inside(node, "unshare", "-m", "sh", "-c", f"{before} && exec {ray}"), env=self.environment, check=True, capture_output=True
        )

    def stop(self, node: int) -> None:
        """Kill a node's processes immediately."""
        folder = str(self.folder / f"ray{node}")
        for process in psutil.process_iter(["cmdline"]):
            if any(folder in word for word in process.info["cmdline"] or ()):
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        self.end_server()
        for node in (0, 1):
            self.stop(node)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def begin(self, store: str, *options: str, host: str = ADDRESSES[0], more: str = "") -> subprocess.Popen[str]:
        """Start the experiment on the head's node."""
        file = self.folder / f"{store}.yaml"
        file.write_text(FILE.replace("HOST", host).replace("concurrency: 3", f"concurrency: 3{more}"))
        command = [sys.executable, "-m", "ragmeter", "run", str(file), "--json", "--store", str(self.folder / store), *options]
        return subprocess.Popen(
            self.inside(0, *command),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, store: str, *options: str, **more: str) -> tuple[int, str]:
        """Run the experiment; return the exit code and the code of the error."""
        return ended(self.begin(store, *options, **more))

    @property
    def on_ray(self) -> tuple[str, ...]:
        return ("--executor", "ray", "--address", f"{ADDRESSES[0]}:{PORT}", "--shared", str(self.folder / "shared"))


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a command; return its exit code and the code of its error."""
    _, problems = process.communicate(timeout=300)
    sys.stdout.write(problems)  # shown if the test fails
    errors = [json.loads(line)["error"]["code"] for line in problems.splitlines() if line.startswith('{"error"')]
    return process.returncode, errors[0] if errors else ""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    pytest.importorskip("ray")
    if os.geteuid() or not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("needs root and iproute2")
    both = Nodes(tmp_path_factory.mktemp("n"))
    try:
        both.connect()
    except subprocess.CalledProcessError as error:
        both.close()
        pytest.skip(f"no network namespaces here: {error.stderr.decode()}")
    yield both
    both.close()


def answered(folder: Path) -> int:
    if not (folder / "store.duckdb").exists():
        return 0
    with Store(folder).database.reading() as connection:
        (number,) = connection.execute("SELECT count(*) FROM predictions").fetchone() or (0,)
        return int(number)


def wait_for_answers(folder: Path, number: int) -> None:
    deadline = time.monotonic() + 120
    while answered(folder) < number:
        assert time.monotonic() < deadline
        time.sleep(0.5)


def with_other_version(folder: Path, name: str) -> str:
    """Create an environment with another version of a package; return its Python."""
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (site / f"{name}-0.0.1.dist-info").mkdir(parents=True)
    (site / f"{name}-0.0.1.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.1\n")
    (site / "base.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\ninclude-system-site-packages = false\n")
    return str(folder / "bin" / "python")


def test_rerun_after_a_head_restart_gives_equal_rows(nodes: Nodes) -> None:
    nodes.serve(0.0)
    assert nodes.run("local") == (0, "")
    nodes.serve(2.0)  # Ray takes many seconds to notice the loss of the head, and the other node answers until then
    nodes.start(0)
    nodes.start(1)
    process = nodes.begin("ray", *nodes.on_ray)
    wait_for_answers(nodes.folder / "ray", 10)
    nodes.stop(0)
    assert ended(process)[0] == 1
    before = answered(nodes.folder / "ray")
    assert 10 <= before < 150
    nodes.stop(1)
    nodes.serve(0.4)
    nodes.start(0)
    nodes.start(1)
    served = len(nodes.served.read_text().splitlines())
    assert nodes.run("ray", *nodes.on_ray) == (0, "")
    assert len(nodes.served.read_text().splitlines()) - served <= 150 - before
    every: list[Any] = [rows(nodes.folder / name) for name in ("local", "ray")]
    assert every[0] == every[1]


def test_ctrl_c_keeps_rows_and_a_rerun_continues(nodes: Nodes) -> None:
    nodes.stop(0)
    nodes.stop(1)
    nodes.serve(0.4)
    nodes.start(0)
    nodes.start(1)
    process = nodes.begin("stopped", *nodes.on_ray)
    wait_for_answers(nodes.folder / "stopped", 10)
    os.killpg(process.pid, signal.SIGINT)
    assert ended(process)[0] == 130
    kept = answered(nodes.folder / "stopped")
    assert 10 <= kept < 150
    nodes.serve(0.0)
    assert nodes.run("stopped", *nodes.on_ray) == (0, "")
    assert answered(nodes.folder / "stopped") == 150


@pytest.mark.parametrize(
    ("code", "second", "run"),
    [
        ("node-versions-differ", {"python": "torch"}, {}),
        ("node-without-folder", {"before": "mount -t tmpfs none {folder}/data"}, {}),
        ("node-without-ragmeter", {"before": "mount -t tmpfs none {root}/ragmeter"}, {}),
        ("node-without-connection", {}, {"host": "127.0.0.1"}),
        ("batch-with-ray", {}, {"more": ", batch: true"}),
    ],
)
def test_incompatible_node_is_refused_before_the_first_request(
    nodes: Nodes, code: str, second: dict[str, str], run: dict[str, str], tmp_path: Path
) -> None:
    nodes.stop(0)
    nodes.stop(1)
    nodes.serve(0.0, run.get("host", ADDRESSES[0]))
    nodes.start(0)
    how = {name: text.format(folder=nodes.folder, root=ROOT) for name, text in second.items()}
    if "python" in how:
        how["python"] = with_other_version(tmp_path / "venv", how["python"])
    nodes.start(1, **how)  # type: ignore[arg-type]
    served = nodes.served.read_text() if nodes.served.exists() else ""
    assert nodes.run("refused", *nodes.on_ray, **run) == (2, code)
    assert (nodes.served.read_text() if nodes.served.exists() else "") == served
