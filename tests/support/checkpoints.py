"""A folder of weights, and runs of a part with given weights."""

from __future__ import annotations

from pathlib import Path

from results.store.store import FINISHED, Run, Store


def model(folder: Path, weights: bytes = b"weights") -> Path:
    (folder / "question").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "question" / "config.json").write_text("{}")
    return folder


def run_with(store: Store, name: str, weights: str | None, *, dataset: str = "d", status: str = FINISHED) -> str:
    part = {"id": "ark", "version": 1, "config": {}, "weights": weights}
    run = Run(
        f"{name:0<16}",
        name,
        "ark",
        "retriever",
        {"method": part, "rerankers": [], "reader": None},
        f"toy/{dataset}:test",
        f"fp-{dataset}",
        "corpus",
        0,
        3,
        {},
    )
    store.start(run)
    store.end(run.run, status)
    return run.run
