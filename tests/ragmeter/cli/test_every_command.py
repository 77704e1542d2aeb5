"""Every command of `ragmeter`: its help, its JSON, and its exit on wrong usage."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer.main

from benchmarks.core.errors import Broke, Incomplete, UserError
from docs._site import facts
from ragmeter import cli
from ragmeter.cli import errors

ROOT = Path(__file__).resolve().parents[3]
EXPERIMENT = """
name: small
reference: bm25
benchmarks: [{id: worlds/multihop, split: test, limit: 4}]
methods: [{id: bm25}, {id: random}, {id: gold_answer}]
metrics: [em, recall@5]
"""

# Command lines after `ragmeter` and their exit codes: every command occurs, with success if that is cheap.
WALK: tuple[tuple[str, int], ...] = (
    ("run", 0), ("run x.yaml --dry-run", 0), ("run x.yaml", 0), ("run --resume", 0), ("init --schema", 0), ("demo --device nowhere", 2),
    ("results", 0), ("results table small", 0), ("results paper", 0), ("results paper ark", 0), ("results show bm25", 0),
    ("results compare bm25 random", 0), ("results power bm25 random --effect 5pp", 0),
    ("results tag main bm25", 0), ("results tag", 0), ("results report -o b.html", 0),
    ("results log --to notebook", 2),
    ("results export bm25 -o run.trec", 0), ("results style", 0), ("results style gap", 0), ("results style curve", 2),
    ("results style sensitivity worlds/multihop:test --limit 2", 2), ("leaderboard --port {occupied_port}", 2),
    ("gate --baseline bm25 --candidate bm25 --metric em --margin 1.0pp --allow-same", 101),
    ("submit", 0), ("submit add nowhere.jsonl", 2), ("submit check nowhere.jsonl", 2), ("submit verify bm25", 2),
    *((f"submit {action} bm25 --reason why", 2) for action in ("accept", "hold", "reject", "withdraw")),
    ("submit template worlds/multihop:test -o template --limit 2", 0), ("submit bundle bm25 -o b.zip", 0),
    ("data", 0), ("data list", 0), ("data worlds", 0), ("data download worlds/multihop:test", 2),
    ("data check worlds/multihop:test", 0), ("data stats worlds/multihop:test", 0),
    ("data sample worlds/multihop:test --count 1", 0), ("data build-corpus nowhere -o target", 2),
    ("data overlap --train nowhere --eval worlds/multihop:test", 2),
    ("data restyle worlds/multihop:test -o p.jsonl --style informal --rewriter rule --limit 2", 0),
    ("data style-quality p.jsonl", 0), ("data mix worlds/multihop:test p.jsonl -o m.jsonl --mix informal=1", 0),
    ("data style-export worlds/multihop:test --limit 2 -o s.jsonl", 0), ("data style-pairs p.jsonl -o q.jsonl", 2),
    ("data questions nowhere -o q.csv", 2),
    ("data pretraining-rows worlds/multihop:train -o rows.jsonl --by worlds --count 2", 0),
    ("data instruction-rows worlds/multihop:train -o taught.jsonl --limit 6 --set llm.scripted=worlds/multihop:train", 0),
    ("train", 0), ("train run", 0), ("train checkpoints", 0), ("train checkpoints list", 0),
    ("train checkpoints add nowhere", 2), ("train checkpoints check", 0), ("train checkpoints shrink nowhere -o s", 2),
    ("train checkpoints convert ./nowhere --as x", 2), ("train record x.jsonl --into nowhere", 2),
    ("method", 0), ("method list", 0), ("method check random", 0), ("method try bm25 Who?", 2),
    ("method index clara_compressor worlds/multihop --set model=nowhere", 2),
    ("method explain bm25 x --benchmark worlds/multihop:test", 2),
    ("judge", 0), ("judge list", 0), ("judge run rule_pairwise", 0), ("judge replay rule", 0), ("judge win-rates", 0),
    ("judge card rule", 0), ("judge score --metric f1", 0), ("judge labels", 0), ("judge labels show", 0),
    ("judge labels export -o i.csv --criterion accuracy --count 2", 0), ("judge labels import i.csv --annotator a", 0),
    ("list", 0), ("list overview", 0), ("list datasets", 0), ("list datasets musique", 0), ("list methods", 0),
    ("list methods bm25", 0), ("list metrics", 0), ("list metrics em", 0), ("list experiments", 0), ("list runs", 0),
    ("list judges", 0), ("list checkpoints", 0), ("list trainings", 0), ("list trainings gpr", 0),
    ("store", 0), ("store show", 0), ("store export -o out", 0), ("store import out", 0), ("store prune --orphans", 0),
    ("store replies", 0), ("store replies show", 0), ("store replies export -o t.jsonl", 0),
    ("store replies import t.jsonl", 0), ("store replies prune --all", 0), ("doctor", 0),
)  # fmt: skip

Say = Callable[..., tuple[int, str, str]]


def commands() -> dict[str, Any]:
    """Return every command by its command line."""
    results: dict[str, Any] = {}

    def walk(command: Any, path: tuple[str, ...]) -> None:
        if not hasattr(command, "commands"):
            results[" ".join(path)] = command
            return
        for name in command.list_commands(None):
            walk(command.get_command(None, name), (*path, name))

    walk(TREE, ())
    return results


OURS = cli.app
TREE: Any = typer.main.get_command(cli.app)
COMMANDS = commands()


@pytest.fixture
def run_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Say:
    """Return a function that runs a command line and returns its exit code, standard output and standard error."""

    def typed(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ragmeter", *words])
        if cli.app is OURS:
            # Built once from the same declarations.
            monkeypatch.setattr(cli, "app", TREE)
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert isinstance(end.value.code, int)
        return end.value.code, *capfd.readouterr()

    return typed


def test_help_lists_the_common_options_of_every_command(run_line: Say) -> None:
    for name in COMMANDS:
        code, shown, response = run_line(*name.split(), "--help")
        assert (code, response) == (0, ""), name
        assert shown.startswith(f"Usage: ragmeter {name}")
        for option in ("--json", "--store", "--quiet", "--verbose", "--help"):
            assert option in shown, name


def test_every_option_has_a_help_text() -> None:
    silent = [f"{name} {parameter.name}" for name, command in COMMANDS.items() for parameter in command.params if not parameter.help]
    assert silent == []


def test_overview_lists_every_command_group(run_line: Say) -> None:
    code, shown, _ = run_line("--help")
    assert (code, *run_line()) == (0, 0, shown, ""), "alone it says the same"
    flat = " ".join(shown.split())
    for lines in cli.GROUPS.values():
        for name, line in lines.items():
            assert f" {name} {line}" in flat
            # Its help equals the help of the group.
            group = TREE.get_command(None, name)
            own = import_module(f"ragmeter.cli.{name}").app.info.help
            assert own == line or own is None, name
            assert group.name == name


@pytest.mark.parametrize("line", ["nonsense", "{group} --help", "{group} --nonsense"])
def test_help_and_errors_do_not_import_numpy(line: str) -> None:
    words = [line.format(group=name).split() for name in cli.NAMES] if "{" in line else [line.split()]
    code = (
        "import os, sys\nfrom ragmeter.cli import main\n"
        # OpenBLAS reads it when NumPy is imported.
        "assert os.environ['OPENBLAS_THREAD_TIMEOUT'] == '4'\n"
        f"for words in {words!r}:\n  sys.argv = ['ragmeter', *words]\n"
        "  try: main()\n  except SystemExit: pass\n"
        "  if 'numpy' in sys.modules: sys.exit(f'{words} imports numpy')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr.splitlines()[-1]


HEAVY = (
    *("torch", "transformers", "sentence_transformers", "tokenizers", "sklearn", "pandas", "bm25s", "openai"),
    *("datasets", "ray", "faiss", "scipy.stats", "scipy.optimize", "numba", "Stemmer"),
    *("ragmeter.plan", "ragmeter.runner.executors.cluster", "benchmarks.styles.mix"),
    *("ragmeter.runner.judging", "judges.llm.ask", "methods.models.chat", "methods.prompts", "results.statistics.bradley_terry"),
)


@pytest.mark.slow
def test_rerun_with_nothing_to_do_imports_no_model_library(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        "name: x\nbenchmarks: [{id: worlds/multihop, split: test, config: {questions: 5}}]\nmethods: [{id: bm25}, {id: random}]\n"
    )
    command = ["run", str(tmp_path / "x.yaml"), "--store", str(tmp_path / "store"), "-q"]
    code = (
        "import sys\nfrom ragmeter.cli import main\n"
        f"sys.argv = ['ragmeter', *{command!r}]\n"
        "try: main()\nexcept SystemExit as end:\n  assert not end.code\n"
        f"print('imported', *sorted(set({HEAVY}) & set(sys.modules)))"
    )
    first, again = (subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert "Stemmer" in first.splitlines()[-1]
    assert not {"bm25s", "numba", "ragmeter.plan"} & set(first.splitlines()[-1].split())
    assert again.splitlines()[-1] == "imported"


def test_printed_version_equals_the_installed_package(run_line: Say) -> None:
    assert run_line("--version") == (0, f"ragmeter {version('ragmeter')}\n", "")


def test_unknown_option_exits_with_2_and_one_message(run_line: Say) -> None:
    for name in COMMANDS:
        code, shown, response = run_line(*name.split(), "--nonsense")
        assert (code, shown) == (2, ""), name
        first, where, remedy = response.splitlines()
        assert first == "error: there is no option '--nonsense'"
        assert where == f"  where: ragmeter {name}"
        assert remedy.startswith("  try:   ")
        assert f"ragmeter {name} --help" in remedy


def test_wrong_usage_is_reported_as_json_on_request(run_line: Say) -> None:
    for name in COMMANDS:
        code, shown, response = run_line(*name.split(), "--json", "--nonsense")
        assert (code, shown) == (2, ""), name
        assert set(json.loads(response)["error"]) == {"code", "what", "where", "try"}


@pytest.mark.parametrize(
    ("line", "what", "remedy"),
    [
        ("rum x.yaml", "there is no command 'rum'", "did you mean 'run'?"),
        ("judge rn", "there is no command 'rn'", "did you mean 'run'?"),
        ("list nonsense", "there is no command 'nonsense'", "ragmeter list --help"),
        ("run x --limt 3", "there is no option '--limt'", "did you mean '--limit'?"),
        ("train run gpr --seed 0", "there is no option '--seed'", "--set seed=VALUE"),
        ("results compare one", "missing argument 'second'", "ragmeter results compare --help"),
        ("gate --strict", "missing option '--baseline'", "ragmeter gate --help"),
        ("run x --limit many", "invalid value for '--limit'", "ragmeter run --help"),
        ("run x --limit 0", "invalid value for '--limit'", "ragmeter run --help"),
        ("run x y", "got unexpected extra argument", "ragmeter run --help"),
        ("run x --limit", "option '--limit' requires an argument", "ragmeter run --help"),
        ("store prune --store", "option '--store' requires an argument", "ragmeter store prune --help"),
    ],
)
def test_typos_suggest_the_nearest_name(line: str, what: str, remedy: str, run_line: Say) -> None:
    code, shown, response = run_line(*line.split())
    assert (code, shown) == (2, "")
    assert response.startswith(f"error: {what}")
    assert remedy in response


def test_command_without_required_options_shows_only_its_help(run_line: Say) -> None:
    code, shown, response = run_line("gate")
    assert (code, response) == (0, "")
    assert "--baseline" in shown


class Stopped(Exception):
    """Exception like `ragmeter.runner.loop.Interrupted`."""

    exit_code = 130


class OutOfMemoryError(RuntimeError):
    """Exception like `torch.OutOfMemoryError`."""


@pytest.mark.parametrize(
    ("raised", "code", "response"),
    [
        (None, 0, ""),
        (typer.Exit(100), 100, ""),
        (typer.Exit(101), 101, ""),
        (UserError("that is wrong", where="x:1", try_this="it"), 2, "error: that is wrong\n  where: x:1\n  try:   it"),
        (Broke("the endpoint is dead"), 1, "error: the endpoint is dead"),
        (Stopped("interrupted; go on"), 130, "interrupted; go on"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OutOfMemoryError("CUDA out of memory. Tried"), 1, "error: not enough memory: CUDA out of memory\n  try:   a smaller micro_batch"),
        (RuntimeError("I/O error: No space left on device (os error 28)"), 1, "error: the disk is full: I/O error"),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 277824 vs 277712"), 1, "error: the disk is full"),
        (ValueError("odd"), 1, "error: ragmeter broke: ValueError: odd\n  try:   run it again with --verbose"),
    ],
)
def test_every_failure_has_its_exit_code_and_a_message_on_stderr(
    raised: BaseException | None, code: int, response: str, run_line: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.callback()
    def group() -> None: ...

    @app.command()
    def end(as_json: bool = typer.Option(False, "--json")) -> None:
        if raised is not None:
            raise raised

    monkeypatch.setattr(cli, "app", app)
    run_command = run_line("end")
    assert run_command[:2] == (code, "")
    assert run_command[2].startswith(response)
    assert "Traceback" not in run_command[2]
    run_command = run_line("end", "--json")
    assert run_command[:2] == (code, "")
    assert not response or json.loads(run_command[2])["error"]["what"]


def test_internal_error_shows_its_traceback_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def end(verbose: bool = typer.Option(False, "--verbose")) -> None:
        raise ValueError("odd")

    monkeypatch.setattr(sys, "argv", ["ragmeter", "--verbose"])
    with pytest.raises(ValueError, match="odd"):
        errors.run_command(app)


def test_command_line_page_lists_every_exit_code() -> None:
    page = facts.cli_page()
    table = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert table == {
        errors.FINE,
        errors.BROKE,
        errors.WRONG,
        Incomplete.exit_code,
        errors.INTERRUPTED,
        errors.UNREAD,
        errors.HUNG_UP,
        errors.TERMINATED,
        100,
        101,
    }
    # Commands that it names exist.
    assert set(re.findall(r"`ragmeter ([a-z][a-z-]*)", page)) <= set(cli.NAMES)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("walk")
    (folder / "x.yaml").write_text(EXPERIMENT)
    return folder


@pytest.fixture
def occupied_port() -> Iterator[int]:
    """Return an occupied port."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_command_walk_visits_every_command() -> None:
    typed = {" ".join(line.split()[:length]) for line, _ in WALK for length in (1, 2, 3)}
    assert set(COMMANDS) - typed == set()
    assert set(cli.NAMES) - {line for line, code in WALK if code != 2} == {"demo", "leaderboard", "gate", "init"}, "alone it does something"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_stdout_is_json_or_empty(place: Path, occupied_port: int, run_line: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """One walk through one store in one test, because later commands read the output of earlier ones."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("RAGMETER_STORE", str(place / "store"))
    wrong = {
        line: result
        for line, code in WALK
        if (result := _wrong(code, *run_line(*line.format(occupied_port=occupied_port).split(), "--json")))
    }
    assert wrong == {}


def _wrong(code: int, run_command: int, shown: str, response: str) -> str:
    """Return what is wrong with the exit of a command with `--json`, or an empty text."""
    if run_command != code:
        return f"ended with {run_command}, not {code}: {response}"
    try:
        reported = json.loads(shown if code in (0, 100, 101) else response)
    except ValueError:
        return f"no JSON: {shown!r}, {response!r}"
    if code in (0, 100, 101):
        return f"an error beside success: {response}" if "error" in response else ""
    return "" if shown == "" and reported["error"]["what"] else f"a mistake that is not reported: {shown!r}, {response!r}"


@pytest.mark.slow
def test_leaderboard_prints_its_url_as_json_without_server_output(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ragmeter.cli", "leaderboard", "--json", "--port", str(port), "--store", str(tmp_path)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    lines = ""
    while not lines.endswith("}\n"):
        lines += process.stdout.readline()
    assert any("URL" in line for line in process.stderr), "the server said nothing when it began to listen"
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(lines + rest) == {"url": f"http://127.0.0.1:{port}", "store": str(tmp_path)}


def in_terminal(arguments: list[str], **environment: str) -> str:
    """Return what a command writes to a terminal."""
    parent, child = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    process = subprocess.Popen([sys.executable, "-m", "ragmeter.cli", *arguments], stdout=child, stderr=child, env=env)
    os.close(child)
    text = b""
    while select.select([parent], [], [], 60)[0]:
        try:
            piece = os.read(parent, 65536)
        except OSError:
            break
        if not piece:
            break
        text += piece
    process.wait(timeout=60)
    os.close(parent)
    return text.decode()


COLOR = re.compile(r"\x1b\[[0-9;]*\b(3[0-7]|4[0-7]|9[0-7]|10[0-7]|38|48)[0-9;]*m")


@pytest.mark.slow
def test_terminal_output_is_colored_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert COLOR.search(in_terminal(["frob"]))
    assert not COLOR.search(in_terminal(["frob"], NO_COLOR="1"))


@pytest.mark.slow
def test_piped_output_has_no_color() -> None:
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    for arguments in (["list"], ["frob"]):
        done = subprocess.run([sys.executable, "-m", "ragmeter.cli", *arguments], capture_output=True, text=True, env=env)
        assert done.stdout + done.stderr
        assert "\x1b" not in done.stdout + done.stderr
