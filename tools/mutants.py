"""Mutation run: which small changes of the code does a test notice?

    python tools/mutants.py TREE --out FILE.jsonl [--sample 60] [--like EARLIER.jsonl] [--only judges/metrics]

A mutant is one changed expression inside a function. It is known by its function, the expression and the how-manieth
such expression it is there, not by file or line, and the sample is drawn by a hash of that: the same mutants are drawn
again after files were merged or moved. `--like` runs those of an earlier run and ends with 1 if one is no longer killed.
The tree is copied, and one run of the unchanged tests finds which of them call which function; a mutant is then shown
only to those, the quickest first, up to `--budget` seconds of CPU time. Resumable: what the output holds is not run again.
Linux only: every run is a fork of one process that has imported the large libraries.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import hashlib
import importlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

SETS = {
    "judges/metrics": (["judges/metrics"], ["tests/judges"], ""),
    "results/statistics": (["results/statistics"], ["tests/results"], "statistics"),
    "benchmarks/text": (
        [f"benchmarks/{name}.py" for name in ("text", "text_batch")],
        ["tests/benchmarks"],
        "answer_places|text_batch|benchmarks.text|benchmarks import .*text",
    ),
}
"""What is mutated, folders of tests, and what a test file has to mention."""
LIBRARIES = (
    "pytest hypothesis numpy scipy.stats scipy.optimize pandas pyarrow.parquet duckdb pydantic yaml typer rich.table torch transformers "
    "sentence_transformers rouge_score.rouge_scorer bert_score rapidfuzz.fuzz Stemmer bm25s openai ragas"
)
COMPARED = {"Lt": "LtE", "LtE": "Lt", "Gt": "GtE", "GtE": "Gt", "Eq": "NotEq", "NotEq": "Eq"}
COMPARED |= {"In": "NotIn", "NotIn": "In", "Is": "IsNot", "IsNot": "Is"}
COMPUTED = {"Add": "Sub", "Sub": "Add", "Mult": "Div", "Div": "Mult", "FloorDiv": "Mult", "Mod": "FloorDiv", "Pow": "Mult"}
COMPUTED |= {"BitAnd": "BitOr", "BitOr": "BitAnd", "MatMult": "Mult", "LShift": "RShift", "RShift": "LShift", "BitXor": "BitOr"}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "ceil": "floor", "floor": "ceil"}


def changes(node: ast.AST, parent: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Return the possible mutations of one expression as (kind, changed expression) pairs."""
    new = deepcopy(node)
    match new:
        case ast.Compare(ops=[first, *rest]) if type(first).__name__ in COMPARED:
            yield "compare", ast.Compare(new.left, [getattr(ast, COMPARED[type(first).__name__])(), *rest], new.comparators)
        case ast.BinOp() if type(new.op).__name__ in COMPUTED and not isinstance(new.left, ast.JoinedStr):
            yield "arithmetic", ast.BinOp(new.left, getattr(ast, COMPUTED[type(new.op).__name__])(), new.right)
        case ast.BoolOp():
            yield "boolean", ast.BoolOp(ast.Or() if isinstance(new.op, ast.And) else ast.And(), new.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield "unary", new.operand
        case ast.Constant(value=bool()):
            yield "constant", ast.Constant(not new.value)
        case ast.Constant(value=int() | float() as number):
            yield "constant", ast.Constant(number + 1)
        case ast.Call(args=[first, second, *rest]) if not any(isinstance(a, ast.Starred) for a in new.args):
            yield "arguments", ast.Call(new.func, [second, first, *rest], new.keywords)
        case ast.Tuple(elts=[first, second, *rest]) if isinstance(parent, ast.Return):
            yield "returned", ast.Tuple([second, first, *rest], ast.Load())
    match new:
        case ast.Call(func=ast.Name(id=name)) if name in CALLED:
            yield "function", ast.Call(ast.Name(CALLED[name], ast.Load()), new.args, new.keywords)
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in CALLED:
            yield "function", ast.Call(ast.Attribute(owner, CALLED[name]), new.args, new.keywords)
    if isinstance(parent, ast.If | ast.While | ast.IfExp) and node is parent.test:
        yield "condition", ast.UnaryOp(ast.Not(), deepcopy(node))
    if isinstance(parent, ast.Return) and not (isinstance(node, ast.Constant) and node.value in (None, False)):
        yield "returned", ast.Constant(None)


def expressions(node: ast.AST, parent: ast.AST) -> Iterator[tuple[ast.expr, ast.AST]]:
    """Yield the expressions below a node that can be mutated, in source order; nested functions are handled separately."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Raise | ast.JoinedStr):
        return
    if isinstance(node, ast.expr):
        yield node, parent
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in ("annotation", "ctx"):
                yield from expressions(child, node)


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function below a node with its qualified name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
            yield from functions(child, f"{prefix}{child.name}.<locals>.")
        else:
            yield from functions(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)


def mutants(root: Path, label: str) -> dict[str, dict[str, Any]]:
    """Collect all mutants of one set of modules, by identity."""
    files = [f for name in SETS[label][0] for f in ([root / name] if name.endswith(".py") else sorted((root / name).rglob("*.py")))]
    named = [(name, ast.dump(item), item, f) for f in files if f.is_file() for name, item in functions(ast.parse(f.read_bytes()))]
    seen: Counter[str] = Counter()
    result: dict[str, dict[str, Any]] = {}
    for name, _, function, file in sorted(named, key=lambda row: row[:2]):
        seen[name] += 1
        ordinals: Counter[tuple[str, str, str]] = Counter()
        for node, parent in (pair for statement in function.body for pair in expressions(statement, function)):
            before = ast.unparse(node)
            for kind, new in changes(node, parent):
                after = ast.unparse(ast.fix_missing_locations(new))
                ordinals[kind, before, after] += 1
                known = [label, name, seen[name], kind, before, after, ordinals[kind, before, after]]
                row = {
                    "set": label,
                    "function": name,
                    "file": str(file.relative_to(root)),
                    "before": before,
                    "after": after,
                    "place": [node.lineno, node.col_offset, node.end_lineno, node.end_col_offset],
                }
                result[hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]] = row
    return result


def mutated(source: bytes, mutant: dict[str, Any]) -> bytes:
    """Apply a mutant to a file's source."""
    line, column, last, end = mutant["place"]
    lines = source.splitlines(keepends=True)
    start, stop = sum(map(len, lines[: line - 1])) + column, sum(map(len, lines[: last - 1])) + end
    return source[:start] + f"({mutant['after']})".encode() + source[stop:]


class Watch:
    """Pytest plug-in for the unchanged code: records which functions of the mutated files each test calls, and its CPU seconds."""

    def __init__(self, root: Path, files: set[str]) -> None:
        self.names = {str(root / file): file for file in files}
        self.items: dict[str, float] = {}
        self.hits: defaultdict[str, set[str]] = defaultdict(set)
        self.shared: defaultdict[str, set[str]] = defaultdict(set)
        self.failed: set[str] = set()
        self.now: set[str] = set()
        sys.settrace(self._called)

    def _called(self, frame: FrameType, event: str, arg: object) -> None:
        if frame.f_code.co_filename in self.names:
            self.now.add(f"{self.names[frame.f_code.co_filename]}:{frame.f_code.co_qualname}")

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> None:
        self.now = set()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.shared[report.nodeid.partition("::")[0]] |= self.now

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.now, self.began = set(), time.process_time()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        # What a fixture made may serve every test of the file.
        (self.shared[report.nodeid.partition("::")[0]] if report.when == "setup" else self.hits[report.nodeid]).update(self.now)
        self.now = set() if report.when == "setup" else self.now
        self.items[report.nodeid] = time.process_time() - self.began

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        sys.settrace(None)
        called = {item: sorted(self.hits[item] | self.shared[item.partition("::")[0]]) for item in self.items}
        rows = {item: [round(self.items[item], 3), called[item]] for item in self.items if item not in self.failed}
        Path("report.json").write_text(json.dumps({"items": rows, "failed": sorted(self.failed)}))


class Show:
    """Pytest plug-in for a mutant: runs only the tests that call the mutated function, quick files first, until one fails."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        files: defaultdict[str, float] = defaultdict(float)
        for item in (chosen := [item for item in items if item.nodeid in self.seconds]):
            files[item.nodeid.partition("::")[0]] += self.seconds[item.nodeid]
        items[:] = sorted(chosen, key=lambda item: files[item.nodeid.partition("::")[0]])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.pytest_collectreport(report)

    def pytest_collectreport(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.failed:
            Path("report.json").write_text(json.dumps(report.nodeid))


def forked(
    root: Path, files: Sequence[str], plugin: Callable[[Path], Watch | Show], cpu_s: float, options: Sequence[str]
) -> tuple[int, Any]:
    """Run pytest in a forked process; return the exit code (negative for a signal) and the plug-in's result."""
    import pytest

    (root / "report.json").unlink(missing_ok=True)
    child = os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 5))
        with open(root / "log.txt", "wb") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        fixed = ["-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", f"--basetemp={root.parent / 'tmp'}", "-m", "not soak and not gpu"]
        code = 3
        with contextlib.suppress(BaseException):
            code = int(pytest.main([*fixed, *options, *files], plugins=[plugin(root)]))
        os._exit(code)
    ends = time.monotonic() + 100 * cpu_s
    while not (done := os.waitpid(child, os.WNOHANG))[0]:
        time.sleep(0.05)
        if time.monotonic() > ends:
            os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    report = root / "report.json"
    return os.waitstatus_to_exitcode(done[1]), json.loads(report.read_text()) if report.exists() else None


def run_set(root: Path, label: str, value: argparse.Namespace, earlier: dict[str, dict[str, Any]], done: dict[str, dict[str, Any]]) -> None:
    """Run those mutants of one set that have no result yet."""
    every = mutants(root, label)
    drawn = sorted(every)[: value.sample] if value.like is None else [key for key, row in earlier.items() if row["set"] == label]
    _, folders, mention = SETS[label]
    files = sorted(file for folder in folders for file in Path(folder).rglob("test_*.py") if re.search(mention, file.read_text()))
    tests, kept = [str(file) for file in files], value.out.with_suffix(f".{label.replace('/', '.')}.json")
    if not (drawn := [key for key in drawn if key not in done]):
        return
    if not kept.exists():
        _, report = forked(root, tests, lambda at: Watch(at, {every[key]["file"] for key in every}), 7200, [])
        kept.write_text(json.dumps(report))
    items = json.loads(kept.read_text())["items"]
    for key in drawn:
        row = {"id": key, **(every.get(key) or {**earlier[key], "status": "gone", "by": None})}
        if key in every:
            called = f"{row['file']}:{row['function']}"
            row |= tried(root, row, {item: s for item, (s, names) in items.items() if called in names}, value.budget)
            if row["status"] != "killed" and key in earlier and earlier[key]["status"] == "killed":
                row |= tried(root, row, {item: s for item, (s, _) in items.items()}, 1e9)
        done[key] = row
        with value.out.open("a") as out:
            print(json.dumps(row, ensure_ascii=False), file=out)
        print(row["status"], row["file"], row["place"][0], f"{row['function']}: {row['before']} → {row['after']} | {row['by']}", flush=True)


def tried(root: Path, mutant: dict[str, Any], seconds: dict[str, float], budget: float) -> dict[str, Any]:
    """Run one mutant, and return its result: killed by which test, or survived, and the seconds."""
    shown: dict[str, float] = {}
    total, began = 0.0, time.monotonic()
    for item in sorted(seconds, key=lambda item: (seconds[item], item)):
        total += seconds[item]
        if total <= budget or not shown:
            shown[item] = seconds[item]
    if not shown:
        return {"status": "uncalled", "by": None, "seconds": 0}
    file, limit = root / mutant["file"], 30 + 4 * sum(shown.values())
    source = file.read_bytes()
    try:
        file.write_bytes(mutated(source, mutant))
        code, by = forked(root, sorted({item.partition("::")[0] for item in shown}), lambda at: Show(shown), limit, ["-x"])
    finally:
        file.write_bytes(source)
    status = "survived" if code == 0 else "timeout" if code in (-signal.SIGXCPU, -signal.SIGKILL) else "killed"
    return {"status": status, "by": by or (None if code == 0 else f"exit {code}"), "seconds": round(time.monotonic() - began, 1)}


def rows_of(path: Path | None) -> dict[str, dict[str, Any]]:
    """Read the stored results by mutant identity."""
    lines = path.read_text().splitlines() if path and path.exists() else []
    return {row["id"]: row for row in map(json.loads, lines)}


def main() -> int:
    """Select and run mutants, and compare with earlier results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sample", type=int, default=60, help="mutants of each set")
    parser.add_argument("--like", type=Path, help="run the mutants of this earlier run")
    parser.add_argument("--only", choices=SETS, action="append")
    parser.add_argument("--budget", type=float, default=40.0, help="CPU seconds of tests that a mutant is shown to")
    value = parser.parse_args()
    value.out = value.out.absolute()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"})
    os.nice(10)
    earlier, done = rows_of(value.like), rows_of(value.out)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tree"
        shutil.copytree(value.tree, root, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", "*-store", ".hypothesis"))
        # By hash: a file that changes twice within a second is still read anew.
        subprocess.run([sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", root], check=False)
        os.chdir(root)
        sys.path[0] = os.environ["PYTHONPATH"] = str(root)
        os.environ |= {"RAGAS_DO_NOT_TRACK": "true", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        for name in LIBRARIES.split():
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        gc.freeze()
        for label in value.only or SETS:
            run_set(root, label, value, earlier, done)
    rows = [row for row in done.values() if not value.only or row["set"] in value.only]
    for label, status in sorted(Counter((row["set"], row["status"]) for row in rows).items()):
        print(*label, status)
    killed = {key for key, row in earlier.items() if row["status"] in ("killed", "timeout")}
    lost = [row for row in rows if row["id"] in killed and row["status"] in ("survived", "uncalled")]
    for row in lost:
        print(f"no longer killed: {row['file']} {row['function']}: {row['before']} → {row['after']}; was by", earlier[row["id"]]["by"])
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
