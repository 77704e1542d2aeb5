"""Measure on one GPU what the `paper` commands take at real size, next to their plan; run by `make gpu-real`.

Weights are random and texts are drawn, one word a token: both take as long as real ones of the same shape. Trainings run as
`ragmeter train` runs them, with the options of their `paper` preset: towers loaded from a folder, the shared loop, the
optimizer. CLaRa reads memory and, with the same adapter, text (table 16); RankZephyr orders one window of twenty passages.

A plan's seconds and bytes are those of `ragmeter/plan/gpus.py` for the tokens that were read.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from methods.training import Silent
from methods.work import DTYPES, Use
from perf.clara_models import ARCHITECTURES, WORDS, Timings, measure, measure_text, random_clara
from perf.clara_models import Workload as Reading
from perf.measuring import Bench, made_as, parser, say, synchronizer
from perf.reranker_models import Architecture, StandIn, Workload, measure_stand_in
from ragmeter.plan.gpus import GPUS, Gpu, memory, seconds
from ragmeter.runner.sizes import ModelSize, size_of

QWEN = {
    "vocab_size": 151_669,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": True,
}
XLM_R = {"vocab_size": 250_002, "max_position_embeddings": 514, "type_vocab_size": 1}
BASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {"ark": ("Qwen3", QWEN), "gpr": ("DistilBert", {}), "sark": ("XLMRoberta", XLM_R)}
"""Class of `transformers` and shape of each training's base: Qwen3-Embedding-0.6B, DistilBERT, bge-reranker-base."""
TINY: Mapping[str, Mapping[str, Any]] = {
    "ark": {
        "vocab_size": 1200,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
    },
    "gpr": {"vocab_size": 1200, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "sark": {
        "vocab_size": 1200,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
    },
}
_QUICK = {"clara": Reading(4, 2, 20, 5, 4, queries=1, warm_up=1), "window": Workload(4, passage_tokens=12, answer_tokens=4)}


@dataclass
class Sizes:
    """Sizes of the parts of the benchmark.

    Attributes:
        device: Device to run on.
        quick: Use tiny shapes, to test this script.
        steps: Number of optimizer steps; the first is not timed.
        rows: Rows per training step of ARK; None uses the preset.
        chunk, triple, passage: Number of words per text in ARK, GPR and SARK.
    """

    device: str
    quick: bool = False
    steps: int = 3
    rows: int | None = None
    chunk: int = 511
    triple: int = 16
    passage: int = 148

    @classmethod
    def tiny(cls) -> Sizes:
        """Return benchmark sizes so small that all parts take seconds on a CPU."""
        return cls("cpu", True, 2, 4, 12, 6, 12)


@dataclass
class Stamps(Silent):
    """Progress receiver that records the time of each step, with the device synchronized."""

    device: str
    at: list[float] = field(default_factory=list)

    def begin(self, what: str, total: int | None = None, done: int = 0) -> None:
        self._now()

    def advance(self, steps: int = 1) -> None:
        self._now()

    def _now(self) -> None:
        synchronizer(self.device)()
        self.at.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """Return the median seconds per step, without the first."""
        return float(np.median(np.diff(self.at)[1:]))


def words(draw: np.random.Generator, count: int) -> str:
    """Generate a text of random words from the vocabulary."""
    return " ".join(f"w{number}" for number in draw.integers(0, WORDS, count))


def base_of(part: str, folder: Path, sizes: Sizes) -> Path:
    """Write a base model with random weights, and a tokenizer with one token per word, as a folder that trainings load."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    kind, shape = BASES[part]
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    raw = Tokenizer(models.WordLevel({name: number for number, name in enumerate([*special, *(f"w{n}" for n in range(WORDS))])}, "<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if part != "ark":
        raw.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B </s>", [("<s>", 0), ("</s>", 2)])
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
    target = folder / part
    if target.exists():
        return target
    transformers.PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=512, **names).save_pretrained(target)
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    config = getattr(transformers, f"{kind}Config")(**(TINY[part] if sizes.quick else shape), **ids)
    with made_as("float32", sizes.device):
        torch.manual_seed(0)
        model = getattr(transformers, f"{kind}Model")(config)
    model.cpu().save_pretrained(target)
    return target


@contextmanager
def measured(device: str) -> Iterator[Callable[[], float]]:
    """Provide a function that returns the device's peak memory in bytes; 0 on a CPU."""
    import gc

    import torch

    gc.collect()
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    yield lambda: float(torch.cuda.max_memory_allocated()) if cuda else 0.0


def planned(uses: Sequence[Use], sizes: Sequence[ModelSize], gpu: Gpu) -> tuple[float, float]:
    """Return the seconds and bytes that the planner estimates for this work; each model is on the device once."""
    every = list(zip(uses, sizes, strict=True))
    largest: dict[str, float] = {}
    for use, size in every:
        largest[size.model] = max(largest.get(size.model, 0.0), memory(use, size))
    return sum(seconds(use, size, gpu) for use, size in every), sum(largest.values())


@dataclass
class Report:
    """Prints measured against planned values of each part."""

    bench: Bench
    gpu: Gpu

    def part(self, name: str, spent: float, taken: float, uses: Sequence[Use], models: Sequence[ModelSize]) -> None:
        """Report the measured seconds and bytes of a part next to the plan."""
        plan_s, plan_bytes = planned(uses, models, self.gpu)
        remark = f" (plan {plan_s:.3g} s: {spent / plan_s:.2f} of it)"
        self.bench.figure(f"{name}: time", spent, "s", remark=remark, plan=plan_s, gpu=self.gpu.name)
        if taken:
            remark = f" (plan {plan_bytes / 1e9:.3g} GB: {taken / plan_bytes:.2f} of it)"
            self.bench.figure(f"{name}: memory", taken / 1e9, "GB", remark=remark, plan=plan_bytes / 1e9, gpu=self.gpu.name)


def ark_step(folder: Path, sizes: Sizes, report: Report, name: str, **changed: Any) -> None:
    """Measure steps of ARK's stage 2: each row has a question, a positive and twenty negatives of 512 tokens."""
    from methods.ark.config import PRESETS, ArkTrainingConfig
    from methods.ark.data import TrainRow
    from methods.ark.planning import GRADIENT_CACHING
    from methods.ark.tower import Prompts, Tower, load_tower
    from methods.ark.train import StagePlan, StageTrainer
    from methods.training.loop import LoopPlace
    from methods.training.ranks import accelerator

    preset = PRESETS["paper"]
    rows_changed = {"batch_size": 2, "accumulation": 2} if sizes.quick else {}
    train = {**preset["train"], **rows_changed, "precision": "no" if sizes.quick else preset["train"]["precision"], **changed}
    config = ArkTrainingConfig.model_validate({**preset, "base": str(base_of("ark", folder, sizes)), "train": train})
    draw, batch = np.random.default_rng(0), config.train.batch_size * config.train.accumulation
    negatives = config.mine.sample
    rows: list[TrainRow] = []
    texts: dict[str, str] = {}
    for number in range(batch * sizes.steps):
        chunks = [f"{number}-{position}" for position in range(1 + negatives)]
        texts |= {chunk: words(draw, sizes.chunk) for chunk in chunks}
        rows.append(TrainRow(f"q{number}", f"d{number}", "stage2", words(draw, 16), chunks[0], tuple(chunks[1:]), (chunks[0],)))
    process, stamps = accelerator(config.train.precision, sizes.device), Stamps(sizes.device)
    with measured(sizes.device) as taken:
        tower = Tower(load_tower(config.encoder, sizes.device), Prompts("", ""), config.train, process)
        plan = StagePlan("stage2", rows, 1, config.train.learning_rate[1], 0.0)
        StageTrainer(tower, plan, texts, config, LoopPlace(folder / name, name, stamps, process)).loop.run()
        most = taken()
    read = (1 + negatives) * sizes.chunk + 16
    held = min(read * config.train.batch_size, config.train.held_tokens)
    encoded_twice = read > config.train.held_tokens
    use = Use(
        config.base,
        dtype=DTYPES[config.train.precision],
        trained=batch * read * (GRADIENT_CACHING if encoded_twice else 1.0),
        length=sizes.chunk,
        held=config.train.micro_batch * sizes.chunk if encoded_twice else held,
        checkpointed=config.train.recompute,
    )
    report.part(name, stamps.seconds, most, [use], [size_of(config.base)])


class DrawnTriples:
    """Synthetic training rows for GPR: a question, its triple, a neighbor and a negative, all distinct."""

    def __init__(self, rows: int, length: int) -> None:
        draw = np.random.default_rng(0)
        self._questions = [words(draw, length) for _ in range(rows)]
        self._triples = [words(draw, length) for _ in range(3 * rows)]

    def __len__(self) -> int:
        return len(self._questions)

    def rows(self, epoch: int) -> Any:
        """Return the rows of an epoch in their order."""
        from methods.gpr.data import Rows

        numbers = np.arange(len(self))
        return Rows(numbers, *(3 * numbers + number for number in range(3)))

    def texts(self, rows: Any) -> Any:
        """Return the texts of some rows."""
        from methods.gpr.data import Texts

        numbers = np.arange(len(rows))
        chosen = np.stack([rows.anchor, rows.neighbor, rows.negative], axis=1).ravel()
        triples = [self._triples[place] for place in chosen]
        return Texts([self._questions[place] for place in rows.question], triples, numbers, *(3 * numbers + n for n in range(3)))


def gpr_step(folder: Path, sizes: Sizes, report: Report, name: str) -> None:
    """Measure steps of GPR with 512 rows and two encoders."""
    from methods.gpr.config import PRESETS, GprTrainingConfig
    from methods.gpr.train import GprTrainer, Towers
    from methods.training.loop import LoopPlace
    from methods.training.ranks import accelerator

    preset, tiny = PRESETS["paper"], {"batch_size": 8, "micro_batch": 4, "precision": "no"} if sizes.quick else {}
    options = {**preset, "base": str(base_of("gpr", folder, sizes)), "train": {**preset["train"], "epochs": 1, **tiny}}
    config = GprTrainingConfig.model_validate(options)
    train = config.train
    process, stamps = accelerator(train.precision, sizes.device), Stamps(sizes.device)
    material: Any = DrawnTriples(train.batch_size * sizes.steps, sizes.triple - 2)
    with measured(sizes.device) as taken:
        towers = Towers.load(config, sizes.device, process)
        GprTrainer(towers, material, config, LoopPlace(folder / name, name, stamps, process)).loop.run()
        most = taken()
    read = train.batch_size * sizes.triple
    question = Use("question", dtype=DTYPES[train.precision], trained=read, length=sizes.triple, held=train.micro_batch * sizes.triple)
    triple = replace(question, model="triple", trained=3 * read, held=3 * question.held)
    size = size_of(config.base)
    report.part(name, stamps.seconds, most, [question, triple], [replace(size, model=use.model) for use in (question, triple)])


def sark_step(folder: Path, sizes: Sizes, report: Report, name: str) -> None:
    """Measure steps of SARK with eight rows: a labeled passage and a list of six, in both styles."""
    from methods.sark.config import PRESETS, SarkTrainingConfig
    from methods.sark.model import new_reranker
    from methods.sark.objective import Objective
    from methods.sark.rows import SarkRow
    from methods.sark.train import SarkTrainer
    from methods.training.loop import LoopPlace
    from methods.training.ranks import accelerator

    preset = PRESETS["paper"]
    tiny = {"batch_size": 2, "precision": "no"} if sizes.quick else {}
    options = {**preset, "data": ["nq:train"], "base": str(base_of("sark", folder, sizes))}
    config = SarkTrainingConfig.model_validate({**options, "train": {**preset["train"], "epochs": 1, "keep": "last", **tiny}})
    train, draw = config.train, np.random.default_rng(0)

    def both() -> tuple[str, str]:
        return words(draw, sizes.passage), words(draw, sizes.passage)

    def row(n: int) -> SarkRow:
        return SarkRow(words(draw, 16), f"p{n}", *both(), n % 2, tuple(both() for _ in range(6)), f"q{n}")

    rows = [row(number) for number in range(train.batch_size * sizes.steps)]
    process, stamps = accelerator(train.precision, sizes.device), Stamps(sizes.device)
    with measured(sizes.device) as taken:
        objective = Objective(new_reranker(config, sizes.device), config, process)
        SarkTrainer(objective, rows, config, LoopPlace(folder / name, name, stamps, process)).loop.run()
        most = taken()
    pair = 16 + sizes.passage + 3
    read = train.batch_size * 2 * 7 * pair
    use = Use(config.base, dtype=DTYPES[train.precision], trained=read, length=pair, causal=False, held=min(read, train.token_budget))
    report.part(name, stamps.seconds, most, [use], [size_of(config.base)])


def clara_reading(sizes: Sizes, report: Report) -> None:
    """Measure reading from memory and, with the same adapter, from text: a model of CLaRa-7B's shape, five of twenty documents."""
    work = _QUICK["clara"] if sizes.quick else Reading(queries=3, warm_up=1)
    assert isinstance(work, Reading)
    shape, dtype = ("small", "float32") if sizes.quick else ("mistral-7b", "bfloat16")
    rate, name = (4, "small") if sizes.quick else (16, "mistralai/Mistral-7B-Instruct-v0.2")
    size = ModelSize(name, 5e6, width=256, layers=6, kv_width=128) if sizes.quick else size_of(name)
    with measured(sizes.device) as taken:
        clara = random_clara(shape, rate, dtype, sizes.device, max_length=work.words)
        memory_, text = measure(clara, work), measure_text(clara, work, adapter="generator")
        most = taken()

    def use(result: Timings) -> Use:
        prompt, completion = result.tokens["prompt"], work.reply * work.batch
        return Use(name, dtype=dtype, calls=1, prompt=prompt * work.batch, completion=completion, batch=work.batch, length=prompt)

    read = memory_.tokens["compressed"] + work.candidates * work.batch * clara.config.memory_tokens
    compressed = Use(name, dtype=dtype, encoded=read, length=work.words)
    report.part("CLaRa-7B, compressing 20 documents", memory_.median_ms("compression") / 1000, 0.0, [compressed], [size])
    report.part("CLaRa-7B, answering from memory", memory_.decoding_ms / 1000, most, [use(memory_)], [size])
    report.part("CLaRa-7B, answering from text", text.decoding_ms / 1000, 0.0, [use(text)], [size])
    ratio = text.decoding_ms / memory_.decoding_ms
    report.bench.figure("CLaRa-7B: text to memory", ratio, "x", remark=f" ({text.tokens['prompt']} and {memory_.tokens['prompt']} tokens)")


def rankzephyr_window(sizes: Sizes, report: Report) -> None:
    """Measure the ranking of one window of twenty passages with a model of RankZephyr's shape."""
    work = _QUICK["window"] if sizes.quick else Workload(candidates=20)
    assert isinstance(work, Workload)
    shape = ARCHITECTURES["small" if sizes.quick else "mistral-7b"][1]
    kind, name = ("LlamaForCausalLM", "small") if sizes.quick else ("MistralForCausalLM", "castorini/rank_zephyr_7b_v1_full")
    size = ModelSize(name, 5e6, width=256, layers=6, kv_width=128) if sizes.quick else size_of(name)
    dtype = "float32" if sizes.quick else "bfloat16"
    with measured(sizes.device) as taken:
        model = StandIn(Architecture("llm_listwise", kind, {**shape, "pad_token_id": 0}), dtype, sizes.device)
        timing = measure_stand_in(model, 1 if sizes.quick else 3, work)
        most = taken()
    prompt = work.candidates * work.passage_tokens
    use = Use(name, dtype=dtype, calls=1, prompt=prompt, completion=work.answer_tokens, length=prompt)
    report.part("RankZephyr, one window of 20", timing.ms_per_query / 1000, most, [use], [size])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all parts and record them."""
    query = parser(__doc__).parse_args(argv)
    import torch

    if not query.quick and not torch.cuda.is_available():
        say("make gpu-real needs a CUDA device; `python -m perf.gpu_real --quick` tries the script on a CPU")
        return 2
    name = "" if query.quick else torch.cuda.get_device_name()
    gpu = next((item for item in GPUS if item.name in name), GPUS[1])
    say(f"device: {name or 'CPU'}; plan for {gpu.name}")
    sizes = Sizes.tiny() if query.quick else Sizes("cuda")
    report = Report(Bench("gpu_real", quick=query.quick), gpu)
    kept = {"recompute": False, "held_tokens": 1, "micro_batch": 16, "accumulation": 1}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        ark_step(folder, sizes, report, "ARK, a step of stage 2")
        ark_step(folder, sizes, report, "ARK, a batch of stage 2 with activations kept", **kept)
        gpr_step(folder, sizes, report, "GPR, a step")
        sark_step(folder, sizes, report, "SARK, a step")
    clara_reading(sizes, report)
    rankzephyr_window(sizes, report)
    return report.bench.finish()


if __name__ == "__main__":
    sys.exit(main())
