"""Milliseconds per query of rerankers over 50 candidates (SARK, figure 6): of real ones, or of random weights.

On any machine, what is checked is a ratio in one run: SARK's head of two layers against the head that the same encoder
comes with, the two taking turns. With `--reranker` registered rerankers are timed as a pipeline calls them, tokenizing
and sorting included, one query at a time with the device waited for. With `--architectures` the figure is measured on
random weights of the real sizes, where no weights are at hand. Both say median and 95th percentile for every type and
batch. What a reranker takes within a pipeline stands in `ragmeter results show`, by stage.

python -m perf.reranking [--reranker ID[=JSON]]… [--benchmark REF [--config JSON] [--setting SETTING]]
                         [--architectures sark-base,bge-large,…] [--tokens N]
                         [--dtypes float32,bfloat16] [--batches 16,64] [--queries N] [--candidates N]
                         [--device cpu|cuda]

e.g. --reranker 'sark={"model": "FOLDER"}' --reranker 'cross_encoder={"preset": "minilm-l6"}' --reranker bm25_reranker
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from benchmarks.core.errors import UserError
from benchmarks.registry import Benchmark, load
from benchmarks.settings import Setting
from methods.api import Ranking, Services
from methods.models.pretrained import device_of
from methods.registry import METHODS, Component
from perf.measuring import Bench, say
from perf.reranker_models import ARCHITECTURES, Timing, Workload, measure_reranker, measure_stand_in, stand_in
from ragmeter.experiment import in_setting

PARITY = 0.9
"""Least speed of SARK's head beside the encoder's own."""
TURNS = 5
SIDES = ("minilm-l6", "sark-minilm")
WORLDS = "worlds/multihop:test"
"""What rerankers are timed on where no benchmark is named."""
FIXED = "–"
"""Stands for a type or batch that a reranker does not have, or that its options set."""


def heads(work: Workload, device: str) -> int:
    """Measure whether SARK's head costs no more than the encoder's own; return the exit code."""
    models = {name: stand_in(name, "float32", device) for name in SIDES}
    turns: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(TURNS):
        for name, model in models.items():
            turns[name].append(measure_stand_in(model, 1, work).ms_per_query)
    # The best turn of each: what a busy machine adds is in neither.
    plain, sark = (min(turns[name]) for name in SIDES)
    bench = Bench("reranking")
    remark = f" (medians: {', '.join(f'{name} {statistics.median(turns[name]):.1f} ms/query' for name in SIDES)})"
    bench.figure(f"{SIDES[1]} against {SIDES[0]}", plain / sark, "x", at_least=PARITY, remark=remark)
    return bench.finish()


def head(width: int) -> str:
    """Return the head of the table."""
    return f"{'reranker':<{width}}{'type':<10}{'batch':>6}{'ms/query':>12}{'queries/s':>12}{'p50 ms':>12}{'p95 ms':>12}"


def line(name: str, dtype: str, batch: int | str, timing: Timing, width: int) -> str:
    """Format one row of the table."""
    return (
        f"{name:<{width}}{dtype:<10}{batch:>6}{timing.ms_per_query:>12.2f}{timing.queries_per_second:>12.2f}"
        f"{timing.percentile(50):>12.2f}{timing.percentile(95):>12.2f}"
    )


def figure(names: Sequence[str], dtypes: Sequence[str], work: Workload, batches: Sequence[int], queries: int, device: str) -> None:
    """Print timings of rerankers with random weights; listwise rerankers have one row per type."""
    say(head(14))
    for name in names:
        for dtype in dtypes:
            model = stand_in(name, dtype, device)
            chosen = batches if model.architecture.family != "llm_listwise" else batches[:1]
            for batch in chosen:
                sized = Workload(work.candidates, work.pair_tokens, work.passage_tokens, batch, work.answer_tokens)
                say(line(name, dtype, batch, measure_stand_in(model, queries, sized), 14))
            del model
            _forget(device)


def _forget(device: str) -> None:
    """Give memory back before the next model, which may need all of it."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()


@dataclass(frozen=True)
class Variant:
    """Reranker in one type with one batch size.

    Attributes:
        dtype, batch: Type and batch size, as displayed.
        component: The component to build.
    """

    dtype: str
    batch: int | str
    component: Component


def json_object(text: str, what: str, where: str) -> dict[str, Any]:
    """Parse options written as a JSON object.

    Raises:
        UserError: The text is not a JSON object.
    """
    try:
        options = json.loads(text)
    except ValueError as error:
        raise UserError(f"{what} are not JSON: {error}", where=where) from None
    if not isinstance(options, dict):
        raise UserError(f"{what} are no JSON object", where=where)
    return options


def named(text: str) -> tuple[str, str, dict[str, Any]]:
    """Parse `ID[=JSON]` into a label for the row, the id and the options.

    Raises:
        UserError: The options are not a JSON object, or the reranker is unknown.
    """
    identifier, _, value = text.partition("=")
    options = json_object(value or "{}", f"the options of {identifier}", "--reranker")
    entry = METHODS.get(identifier, where="--reranker")
    if entry.kind != "reranker":
        raise UserError(
            f"{identifier!r} is a {entry.kind}, not a reranker",
            where="--reranker",
            try_this="`ragmeter list methods --kind reranker` lists what fits",
        )
    # Checkpoints are called alike (`…/HASH/reranker`): the folder above tells them apart.
    which = options.get("preset") or "/".join(Path(str(options.get("model", ""))).parts[-2:])
    return (f"{identifier}[{which}]" if which else identifier), identifier, options


def variants(identifier: str, options: dict[str, Any], dtypes: Sequence[str], batches: Sequence[int]) -> Iterator[Variant]:
    """Yield a reranker in every type and batch size that its options leave open.

    Cross-encoders batch by a token budget, which holds this many pairs of maximum length, and more shorter ones.

    Raises:
        UserError: An option is invalid.
    """
    fields = METHODS.get(identifier).config.model_fields
    sized = next((name for name in ("token_budget", "batch_size") if name in fields and name not in options), None)
    for dtype in dtypes if "dtype" in fields and "dtype" not in options else (None,):
        typed = options if dtype is None else {**options, "dtype": dtype}
        for batch in batches if sized else (None,):
            try:
                component = Component.of(identifier, typed, where="--reranker")
                if sized and batch:
                    size = batch * component.config.max_length if sized == "token_budget" else batch  # type: ignore[attr-defined]
                    component = Component.of(identifier, {**typed, sized: size}, where="--reranker")
            except ValidationError as error:
                raise UserError(f"the options of {identifier} are not right: {error}", where="--reranker") from None
            yield Variant(str(typed.get("dtype", FIXED)), batch or FIXED, component)


def questions_of(reference: str, config: str | None, setting: str | None, queries: int, candidates: int) -> Benchmark:
    """Load the first questions of a benchmark, each with exactly this many candidates.

    Raises:
        UserError: A question has fewer candidates.
    """
    options = json_object(config or "{}", "the benchmark's options", "--config")
    if reference == WORLDS:
        options = {"questions": queries, "candidates": candidates, **options}
    benchmark = load(reference, options).limited(queries)
    if setting is not None:
        with tempfile.TemporaryDirectory() as folder:
            benchmark = in_setting(Setting.parse(setting, where="--setting"), benchmark, Services(artifacts=Path(folder)))
    fewest = min((len(question.candidates or ()) for question in benchmark.questions), default=0)
    if fewest < candidates:
        # BM25 finds only what shares a word with the query.
        other = f'--setting "corpus(retriever=dense,n={candidates})"'
        raise UserError(
            f"a question of {benchmark.name} has {fewest} candidates, not {candidates}",
            where="--benchmark",
            try_this=f"--candidates {fewest}, or {other}" if fewest else other,
        )
    return benchmark


def real(
    rerankers: Sequence[str], dtypes: Sequence[str], batches: Sequence[int], benchmark: Benchmark, candidates: int, device: str
) -> None:
    """Print timings of rerankers with their real weights."""
    rows = [named(text) for text in rerankers]
    width = max(14, *(len(label) + 2 for label, _, _ in rows))
    queries = [question.query() for question in benchmark.questions]
    rankings = [Ranking(query.id, tuple(query.candidates or ())[:candidates], (0.0,) * candidates) for query in queries]
    words = [len(text.full_text.split()) for ranking in rankings for text in benchmark.corpus.get(ranking.ids)]
    say(f"{len(queries)} queries of {benchmark.name}, {candidates} candidates of {statistics.mean(words):.0f} words, {device}")
    say(head(width))
    for label, identifier, options in rows:
        for variant in variants(identifier, options, dtypes, batches):
            variant.component.preflight()
            reranker = variant.component.build(Services(device=device))
            timing = measure_reranker(reranker, queries, rankings, benchmark.corpus, device)
            say(line(label, variant.dtype, variant.batch, timing, width))
            del reranker
            _forget(device)


def main(argv: Sequence[str] | None = None) -> int:
    """Time rerankers.

    Returns:
        1 if the target was missed, else 0.

    Raises:
        UserError: A reranker, an architecture or the benchmark is invalid.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--reranker", action="append", default=[], metavar="ID[=JSON]", help="a registered reranker with its options, may be repeated"
    )
    parser.add_argument("--benchmark", default=WORLDS, help=f"whose candidates rerankers get (default: {WORLDS})")
    parser.add_argument("--config", default=None, help="the benchmark's options, JSON")
    parser.add_argument("--setting", default=None, help="where candidates come from (default: the benchmark's own)")
    parser.add_argument("--architectures", default="", help=f"random weights of {', '.join(ARCHITECTURES)}; or all")
    parser.add_argument("--dtypes", default="float32", help="types of the weights, comma-separated")
    parser.add_argument("--batches", default="64", help="pairs at once, comma-separated")
    parser.add_argument("--queries", type=int, default=20, help="how many are timed, after one to warm up")
    parser.add_argument("--candidates", type=int, default=50, help="passages of a query")
    parser.add_argument("--tokens", type=int, default=None, help="of a pair; 168, without --architectures 64")
    parser.add_argument("--device", default=None, help="cpu, cuda … (default: the best there is)")
    query = parser.parse_args(argv)
    device = device_of(query.device)
    if not query.architectures and not query.reranker:
        work = Workload(query.candidates, query.tokens or 64)
        say(f"{work.candidates} candidates of {work.pair_tokens} tokens, {device}, float32, random weights")
        return heads(work, device)
    dtypes, batches = query.dtypes.split(","), [int(item) for item in query.batches.split(",")]
    if query.reranker:
        benchmark = questions_of(query.benchmark, query.config, query.setting, query.queries, query.candidates)
        real(query.reranker, dtypes, batches, benchmark, query.candidates, device)
    if query.architectures:
        names = list(ARCHITECTURES) if query.architectures == "all" else query.architectures.split(",")
        work = Workload(query.candidates, query.tokens or Workload().pair_tokens)
        say(f"{work.candidates} candidates of {work.pair_tokens} tokens, {query.queries} queries, {device}, random weights")
        figure(names, dtypes, work, batches, query.queries, device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
