"""No question waits for another: wall time at an endpoint whose replies take as long as real ones.

The endpoint runs in a process of its own. A reply takes 0.5 s and, one time in twenty (drawn by the prompt), 6 s. For a
chat reader, HyDE, RQ-RAG by prompts, a pair judge and a program, each at 64 in flight, the time from the first request to the last
stored row is compared with the ideal (the sum of the latencies / 64 + the longest; of a program of seven dependent calls the
longest question), and with a bare `AsyncOpenAI` loop
that asks the same prompts and appends the replies to a file. Start-up is the same command with `--limit 1` at an endpoint
that answers at once. `--kill` starts a job of 6 s replies again and again and kills it 8 s after its first request.
`--many` asks 4,000 questions at an endpoint of 20 ms, 256 in flight: calls per second and processor time against the bare
loop, and memory. Its figures go to `measured/flow.json`.
`--inspect PYTHON` asks the prompts by inspect_ai too, of which PYTHON is an interpreter that has it.

`--faults` plays 25 kinds of fault in virtual time (`perf/_faults.py`).

python -m perf.flow [--questions 1000] [--only reader] [--kill] [--many] [--faults] [--inspect PYTHON]
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from methods.models.chat import PREFLIGHT
from perf import _server
from perf.measuring import record
from tests.support.server import ChatRequest, OpenAIServer, Written

TARGET = 1.25
IN_FLIGHT = 64
MANY, MANY_IN_FLIGHT, MANY_TARGET, MANY_MS, MANY_MIB = 4000, 256, 0.7, 2.0, 500
FAST_S, SLOW_S, SLOW_SHARE = 0.5, 6.0, 20
PASSAGE = "The old bridge was built by Ann in the year when the river rose."
LLM = "{model: m, base_url: URL, key_variable: null, concurrency: SLOTS, timeout_s: 60}"
CASES = {
    "reader": ("{id: bm25, reader: {id: chat, config: {llm: LLM}}}", 1),
    "hyde": ("{id: hyde, config: {samples: 4, llm: LLM}, reader: extractive}", 5),
    "rq_rag": ("{id: rq_rag_prompted, config: {retriever: bm25, llm: LLM}, reader: extractive}", 3),
    "judge": ("{id: bm25, reader: extractive}, {id: random, reader: extractive}", 4),
    # Seven calls, each of which waits for the one before.
    "program": ("{id: ircot, config: {retriever: bm25, sentences: 6, llm: LLM}}", 7),
}
"""Methods of an experiment, and by what its questions are divided, so that all make about as many calls."""


def latency(prompt: str) -> float:
    """Return the simulated latency of a prompt, in seconds."""
    return SLOW_S if hashlib.blake2b(prompt.encode(), digest_size=2).digest()[0] % SLOW_SHARE == 0 else FAST_S


def _serve(pipe: Any, mode: str, totals: Any, log: Path) -> None:
    lock, prompts = threading.Lock(), log.open("a")

    def answer(request: ChatRequest) -> Written:
        if request.prompt == PREFLIGHT:  # before anything is indexed
            return Written("ok", 1, 1)
        seconds = {"real": latency(request.prompt), "slow": SLOW_S, "none": 0.0}.get(mode)
        seconds = float(mode) if seconds is None else seconds
        with lock:
            totals[0] += 1
            totals[1] += seconds
            totals[2] = max(totals[2], seconds)
            totals[3] = totals[3] or time.time()
            prompts.write(json.dumps(request.prompt) + "\n")
            prompts.flush()
        time.sleep(seconds)
        verdict = '{"reasoning": "", "faithfulness": "Tie", "conciseness": "Tie", "overall": "Tie"}'
        return Written(verdict if "conciseness" in request.prompt.casefold() else PASSAGE, 100, 16)

    server = OpenAIServer("m", answer)
    pipe.send(server.url)
    server.serve_forever()


class Endpoint:
    """Test endpoint in its own process; counts calls, their total and longest latency, and the time of the first.

    Args:
        mode: Latencies: `real`, `slow`, `none`, `quick` (20 ms, on one event loop), or seconds per reply.
        log: File that prompts are appended to.
    """

    def __init__(self, mode: str, log: Path = Path(os.devnull)) -> None:
        context = multiprocessing.get_context("spawn")
        self.totals = context.Array("d", 4)
        ours, theirs = context.Pipe()
        quick = (_server.serve, (theirs, self.totals, log, PREFLIGHT))
        target, arguments = quick if mode == "quick" else (_serve, (theirs, mode, self.totals, log))
        self._process = context.Process(target=target, args=arguments, daemon=True)
        self._process.start()
        self.url = ours.recv()

    @property
    def ideal(self) -> float:
        return self.totals[1] / IN_FLIGHT + self.totals[2]

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()


@dataclass(frozen=True)
class Measured:
    """Result of one case: seconds from the first request to the last row, CPU seconds, the ideal, and memory."""

    calls: int
    wall_s: float
    cpu_s: float
    ideal_s: float
    peak_mib: float


def _experiment(folder: Path, case: str, questions: int, url: str, slots: int = IN_FLIGHT) -> Path:
    methods, divided = CASES[case]
    llm = LLM.replace("URL", url).replace("SLOTS", str(slots))
    methods = methods.replace("LLM", llm)
    judges = f"judges: [{{id: pairwise, config: {{llm: {llm}}}}}]\n" if case == "judge" else ""
    path = folder / "flow.yaml"
    path.write_text(
        f"name: flow\nbenchmarks: [{{id: worlds/multihop, split: test, setting: distractor, limit: {questions // divided}, "
        f"config: {{worlds: {-(-questions // 1000)}, questions: {questions}}}}}]\n"
        f"methods: [{methods}]\nmetrics: [f1(rules=squad)]\n{judges}"
    )
    return path


def _command(path: Path, store: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "ragmeter.cli", "run", str(path), "--store", str(store), "-q", *more]


def measure(case: str, questions: int, log: Path, mode: str = "real", slots: int = IN_FLIGHT, *more: str) -> Measured:
    """Measure one case at a new endpoint, which logs its prompts to a file."""
    with Endpoint(mode, log) as endpoint, tempfile.TemporaryDirectory() as folder:
        path = _experiment(Path(folder), case, questions, endpoint.url, slots)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(_command(path, Path(folder) / "store", *more), check=True, stdout=subprocess.DEVNULL)
        ended = _last_write(Path(folder) / "store")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        ideal = endpoint.ideal if case != "program" else endpoint.totals[1] / IN_FLIGHT + _longest_chain(log)
        return Measured(int(endpoint.totals[0]), ended - endpoint.totals[3], cpu, ideal, after.ru_maxrss / 1024)


def _longest_chain(log: Path) -> float:
    """Seconds of latency of the question whose calls, one after another, take longest."""
    chains: defaultdict[str, float] = defaultdict(float)
    for prompt in map(json.loads, log.read_text().splitlines()):
        question = re.search(r"^Question: (.*)$", prompt, re.MULTILINE)
        chains[question[1] if question else prompt] += latency(prompt)
    return max(chains.values())


def _last_write(store: Path) -> float:
    return max(path.stat().st_mtime for path in store.glob("store.duckdb*"))


def bare(log: Path, mode: str = "real", slots: int = IN_FLIGHT) -> tuple[float, float]:
    """Measure a plain loop over the prompts of a file; return seconds and CPU seconds."""
    import openai

    prompts = [json.loads(line) for line in log.read_text().splitlines()]

    async def all_of() -> None:
        client = openai.AsyncOpenAI(api_key="none", base_url=endpoint.url, max_retries=0)
        free = asyncio.Semaphore(slots)
        with log.with_suffix(".replies").open("w") as file:

            async def one(prompt: str) -> None:
                async with free:
                    messages: Any = [{"role": "user", "content": prompt}]
                    completion = await client.chat.completions.create(model="m", messages=messages)
                file.write(json.dumps(completion.choices[0].message.content) + "\n")

            await asyncio.gather(*map(one, prompts))
        await client.close()

    with Endpoint(mode) as endpoint:
        started, cpu = time.perf_counter(), time.process_time()
        asyncio.run(all_of())
        return time.perf_counter() - started, time.process_time() - cpu


INSPECT = """
import json, sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

log, url = sys.argv[1:]
prompts = [json.loads(line) for line in open(log)]
samples = [Sample(input=prompt, target="bridge", id=number) for number, prompt in enumerate(prompts)]
model = get_model("openai-api/perf/m", base_url=url, api_key="none", config=GenerateConfig(max_connections=SLOTS))
eval(Task(dataset=samples, solver=generate(), scorer=includes()), model=model, max_samples=2 * SLOTS,
     log_dir=log + ".logs", display="none")
"""


def inspected(log: Path, python: str) -> float:
    """Measure seconds from the first request to the end of inspect_ai's command."""
    with Endpoint("real") as endpoint:
        script = INSPECT.replace("SLOTS", str(IN_FLIGHT))
        subprocess.run([python, "-c", script, str(log), endpoint.url], check=True, stdout=subprocess.DEVNULL)
        return time.time() - float(endpoint.totals[3])


def many() -> bool:
    """Measure many questions at a fast endpoint; print calls per second and memory, and return whether both targets are met."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "prompts"
        result = measure("reader", MANY, log, "quick", MANY_IN_FLIGHT)
        bare_s, bare_cpu = bare(log, "quick", MANY_IN_FLIGHT)
    with tempfile.TemporaryDirectory() as folder:
        # What the command takes before and after its calls: the same data, one question.
        started = measure("reader", MANY, Path(folder) / "prompts", "quick", MANY_IN_FLIGHT, "--limit", "1")
    ratio = bare_s / result.wall_s
    more_ms = 1000 * ((result.cpu_s - started.cpu_s) / (result.calls - started.calls) - bare_cpu / result.calls)
    met = ratio >= MANY_TARGET and more_ms <= MANY_MS and result.peak_mib < MANY_MIB
    figures = {"calls": result.calls, "in_flight": MANY_IN_FLIGHT, "ratio": round(ratio, 3), "more_cpu_ms": round(more_ms, 2)}
    figures |= {"calls_per_s": round(result.calls / result.wall_s), "bare_calls_per_s": round(result.calls / bare_s)}
    record("flow", {"many": {**figures, "peak_mib": round(result.peak_mib), "load": os.getloadavg()[0]}})
    sys.stdout.write(
        f"flow.many {result.calls} calls: {result.calls / result.wall_s:.0f} a second, bare AsyncOpenAI {result.calls / bare_s:.0f}, "
        f"ratio {ratio:.2f} target >= {MANY_TARGET:g}; CPU {more_ms:.2f} ms a call more, target <= {MANY_MS:g}; "
        f"memory {result.peak_mib:.0f} MiB target < {MANY_MIB}: "
        f"{'met' if met else 'MISSED'}\n"
    )
    return met


def start_up(case: str) -> float:
    """Measure the seconds of the whole command for one question at an endpoint without latency."""
    with Endpoint("none") as endpoint, tempfile.TemporaryDirectory() as folder:
        path = _experiment(Path(folder), case, 1000, endpoint.url)
        started = time.perf_counter()
        subprocess.run(_command(path, Path(folder) / "store", "--limit", "1"), check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - started


def killed(questions: int) -> int:
    """Count how often a job must be restarted until it ends if it is killed 8 s after its first request each time."""
    with Endpoint("slow") as endpoint, tempfile.TemporaryDirectory() as folder:
        path = _experiment(Path(folder), "reader", questions, endpoint.url)
        for starts in range(1, 1000):
            endpoint.totals[3] = 0.0
            process = subprocess.Popen(_command(path, Path(folder) / "store"), stdout=subprocess.DEVNULL, start_new_session=True)
            while process.poll() is None and not (endpoint.totals[3] and time.time() - endpoint.totals[3] > 8):
                time.sleep(0.05)
            if process.poll() == 0:
                return starts
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise SystemExit("the job does not get on")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--inspect", metavar="PYTHON")
    parser.add_argument("--faults", action="store_true")
    options = parser.parse_args(argv)
    if options.faults:
        from perf import _faults

        return _faults.main()
    if options.kill:
        sys.stdout.write(f"flow.killed {options.questions} questions, ended at start {killed(options.questions)}\n")
        return 0
    if options.many:
        return 0 if many() else 1
    met = True
    for case in [options.only] if options.only else CASES:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "prompts"
            result = measure(case, options.questions, log)
            bare_s, bare_cpu = bare(log)
            inspect = f"inspect_ai {inspected(log, options.inspect):.1f} s; " if options.inspect else ""
        ratio = result.wall_s / result.ideal_s
        met = met and ratio <= TARGET
        sys.stdout.write(
            f"flow.{case} {result.calls} calls: {result.wall_s:.1f} s, ideal {result.ideal_s:.1f} s, ratio {ratio:.2f} "
            f"target <= {TARGET:g}: {'met' if ratio <= TARGET else 'MISSED'}; bare AsyncOpenAI {bare_s:.1f} s; {inspect}"
            f"CPU {1000 * result.cpu_s / result.calls:.1f} ms a call (bare {1000 * bare_cpu / result.calls:.1f}), "
            f"start-up {start_up(case):.1f} s\n"
        )
        sys.stdout.flush()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
