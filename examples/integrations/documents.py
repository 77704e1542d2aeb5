"""Documents that the three applications search; the benchmark's passages are the same texts, cut otherwise."""

from benchmarks.registry import load

BENCHMARK = load("worlds/multihop:test")
TEXTS = {passage.id: passage.full_text for passage in BENCHMARK.corpus}


def quoted(passages: list[str]) -> str:
    """Stand in for a model: answer with the first sentence of the first passage."""
    return passages[0].splitlines()[-1].split(". ")[0] if passages else "unknown"
