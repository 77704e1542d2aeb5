"""CLaRa's time, part by part (table 16), on random weights: decoding from memory against the same documents as text.

On any machine what is checked is a ratio in one run, the two taking turns on a small model: answering from the memory
of five documents must cost at most what answering from their text does. With `--architectures` the table itself is
measured, for every ratio and batch, on the device at hand; no weights are needed.

python -m perf.clara [--architectures mistral-7b,phi-4-mini] [--rates 4,16,32,64,128,256] [--batches 1,4]
                     [--queries N] [--words N] [--reply N] [--dtype bfloat16] [--device cpu|cuda]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from methods.models.pretrained import device_of
from perf.clara_models import ARCHITECTURES, PARTS, Timings, Workload, measure, measure_text, random_clara
from perf.measuring import Bench, say

TARGET = 1.0
"""Most that prefill and decoding from memory may take, as a share of those from text."""
TURNS = 3
HEADS = ("", "ratio", "batch", "prompt", *PARTS, "decoding", "tokens/s", "KiB/doc")


def line(name: str, rate: int | None, result: Timings, size: int) -> str:
    """Format one table row with the median milliseconds per batch."""
    prompt = result.tokens["prompt"]
    parts = "".join(f"{result.median_ms(part):>13.2f}" for part in PARTS)
    return (
        f"{name:<12}{'text' if rate is None else f'{rate}x':>7}{result.batch:>7}{prompt:>8}{parts}"
        f"{result.decoding_ms:>13.2f}{result.tokens_per_second:>12,.0f}{size / 1024:>9.1f}"
    )


def heading() -> str:
    name, rate, batch, prompt, *rest, rate_of, size = HEADS
    return f"{name:<12}{rate:>7}{batch:>7}{prompt:>8}" + "".join(f"{item:>13}" for item in rest) + f"{rate_of:>12}{size:>9}"


def ratio(work: Workload, device: str) -> int:
    """Measure whether decoding from memory costs no more than decoding from text; return the exit code."""
    clara = random_clara("small", 16, "float32", device)
    best = {"memory": float("inf"), "text": float("inf")}
    for turn in range(TURNS):
        memory, text = measure(clara, work, turn), measure_text(clara, work, turn)
        best = {"memory": min(best["memory"], memory.decoding_ms), "text": min(best["text"], text.decoding_ms)}
    # The best turn of each: what a busy machine adds is in neither.
    share = best["memory"] / best["text"]
    bench = Bench("clara")
    say(heading())
    say(line("small", 16, memory, 2 * clara.memory_tokens * clara.hidden_size))
    say(line("small", None, text, 0))
    bench.figure("decoding from memory", share, "times_plain", at_most=TARGET, remark=" the seconds of decoding from text")
    return bench.finish()


def table(names: Sequence[str], rates: Sequence[int], batches: Sequence[int], work: Workload, dtype: str, device: str) -> None:
    """Print the table of timings."""
    say(heading())
    for name in names:
        for number, rate in enumerate(rates):
            clara = random_clara(name, rate, dtype, device)
            for batch in batches:
                sized = replace(work, batch=batch)
                if not number:
                    say(line(name, None, measure_text(clara, sized), 0))
                say(line(name, rate, measure(clara, sized), 2 * clara.memory_tokens * clara.hidden_size))
            del clara
            _forget(device)


def _forget(device: str) -> None:
    """Give memory back before the next model, which may need all of it."""
    if device.startswith("cuda"):
        import gc

        import torch

        gc.collect()
        torch.cuda.empty_cache()


def main(argv: Sequence[str] | None = None) -> int:
    """Time CLaRa's compression and decoding.

    Returns:
        1 if the target was missed, else 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--architectures", default="", help=f"of {', '.join(ARCHITECTURES)}; or all")
    parser.add_argument("--rates", default="4,16,32,64,128,256")
    parser.add_argument("--batches", default="1,4")
    parser.add_argument("--queries", type=int, default=None, help="50; without --architectures 3")
    parser.add_argument("--words", type=int, default=None, help="of a document; 256")
    parser.add_argument("--reply", type=int, default=32)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--device", default=None)
    query = parser.parse_args(argv)
    device = device_of(query.device)
    work = Workload(words=query.words or 256, reply=query.reply, queries=query.queries or 50)
    if not query.architectures:
        small = replace(work, queries=query.queries or 3, warm_up=1, candidates=5)
        return ratio(small, device)
    names = list(ARCHITECTURES) if query.architectures == "all" else query.architectures.split(",")
    say(
        f"{work.candidates} documents of {work.words} tokens, {work.k} read, {work.reply} tokens written, {device}, "
        f"{query.dtype}, random weights; milliseconds of a batch, medians of {work.queries} questions"
    )
    table(
        names, [int(item) for item in query.rates.split(",")], [int(item) for item in query.batches.split(",")], work, query.dtype, device
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
