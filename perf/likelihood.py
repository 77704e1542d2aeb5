"""How fast log-likelihood scoring is against one pair at a time with full logits; equal results or no figure.

    python -m perf.likelihood            the sizes of the project's target
    python -m perf.likelihood --quick    small sizes: checks that both sides agree, misses no target

The other side is the loop that one writes first: tokenize a prompt and its target, join the ids, one forward pass,
log-softmax of the logits at all positions, read off the target's. Both sides start from the same texts, use the same
model object and run in this process, one thread, in turns. A figure is the median over the turns of this process's
CPU seconds, which a busy machine disturbs little. The exit code is 1 where a target is missed or a log-probability of
the two sides differs by more than 1e-4.

Models: Llamas of random weights (3.9 million parameters with a vocabulary of 4,096, 11 million with 32,000), and the
real stories260K where the folder of samples (RAGMETER_DATA) has it. Work: a grid of questions over the chunks of one
document, as alignment scores need it; four labels behind each prompt; and a single question over many chunks, where
next to nothing is shared.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from methods.models.causal import CausalConfig, CausalModel
from methods.models.likelihood import LikelihoodScorer, ScoredText, ScoringRequest, ScoringTemplate
from perf.measuring import Bench, medians

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = 1e-4
TARGET = 5.0
TEMPLATE = ScoringTemplate(
    "Answer the question from the context, as briefly as you can.\n\nContext: $chunk\n\nQuestion: $question\nAnswer:"
)


def words(count: int, seed: int) -> list[str]:
    """Generate invented words of one to four syllables."""
    rng = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "an", "er", "il")]
    return ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(count)]


def random_llama(folder: Path, vocabulary: int) -> str:
    """Write a Llama with random weights, and a BPE tokenizer trained on invented text."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=4096, special_tokens=special, show_progress=False)
    raw.train_from_iterator([" ".join(words(200, seed)) for seed in range(200)], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.1,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@dataclass(frozen=True)
class Work:
    """Texts to score: each chunk with each question, or each prompt with each label."""

    name: str
    chunks: list[str]
    questions: list[ScoringRequest]
    target: float | None

    def pairs(self, model: CausalModel) -> list[ScoredText]:
        return [
            ScoredText(TEMPLATE.filled(chunk, question.fields, model)[0], question.target)
            for chunk in self.chunks
            for question in self.questions
        ]


def text_of(model: CausalModel, tokens: int, rng: random.Random, vocabulary: Sequence[str]) -> str:
    """Generate random words with about this many tokens."""
    kept: list[str] = []
    while len(model.text_encoder.prompts([" ".join(kept)])[0]) < tokens:
        kept += rng.choices(vocabulary, k=max(1, tokens // 16))
    return " ".join(kept)


def workloads(model: CausalModel, chunk: int, quick: bool, few: bool) -> list[Work]:
    rng = random.Random(3)
    known = words(400, 1)
    chunks = 2

    def asked(count: int) -> list[ScoringRequest]:
        return [ScoringRequest({"question": text_of(model, 16, rng, known)}, " " + text_of(model, 4, rng, known)) for _ in range(count)]

    labels = [ScoringRequest({"question": text_of(model, 16, rng, known)}, label) for label in (" yes", " no", " maybe", " so")]
    labels = [ScoringRequest(labels[0].fields, label.target) for label in labels]
    long = [text_of(model, chunk, rng, known) for _ in range(chunks)]
    short = [text_of(model, 30, rng, known) for _ in range(4 * chunks)]
    works = [
        Work(f"16 questions x {chunk}-token chunks", long, asked(16), TARGET),
        Work("16 questions x 30-token sentences", short, asked(16), None),
        Work(f"1 question x {chunk}-token chunks", long * 2, asked(1), None),
    ]
    return [
        *works,
        Work(f"8 questions x {chunk}-token chunks", long, asked(8), None),
        Work(f"4 labels behind a prompt of {chunk}", long, labels, None),
        Work("1 question x 30-token sentences", short * 2, asked(1), None),
    ][: len(works) if few else None]


def loop(model: CausalModel, pairs: Sequence[ScoredText]) -> list[list[float]]:
    """Score in the straightforward way: one pair at a time, logits at every position."""
    import torch

    scores = []
    with torch.inference_mode():
        for pair in pairs:
            prompt = model.tokenizer(pair.prompt)["input_ids"]
            prompt = model.text_encoder.before + prompt if prompt[:1] != model.text_encoder.before else prompt
            target = model.text_encoder.target(pair.target)
            ids = torch.tensor([prompt + target])
            values = model.model(input_ids=ids).logits[0].float().log_softmax(dim=-1)
            positions = range(len(prompt) - 1, len(prompt) + len(target) - 1)
            scores.append([float(values[position, token]) for position, token in zip(positions, target, strict=True)])
    return scores


def measure(bench: Bench, name: str, model: CausalModel, chunk: int, quick: bool, few: bool = False) -> None:
    """Measure each workload and print a line."""
    scorer = LikelihoodScorer(model)
    for work in workloads(model, chunk, quick, few):
        pairs = work.pairs(model)

        def ours(work: Work = work) -> list[list[float]]:
            grid = scorer.grid(work.chunks, work.questions, TEMPLATE)
            return [list(likelihood.logprobs) for row in grid for likelihood in row]

        def theirs(pairs: Sequence[ScoredText] = pairs) -> list[list[float]]:
            return loop(model, pairs)

        seconds, (fast, slow) = medians(1 if quick else 3, ours, theirs, warm=True)
        worst = max(abs(a - b) for x, y in zip(fast, slow, strict=True) for a, b in zip(x, y, strict=True))
        remark = f", {len(pairs)} pairs, largest difference {worst:.1e}"
        bench.ratio(f"{name}, {work.name}", *seconds, work.target, equal=worst <= TOLERANCE, remark=remark)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure log-likelihood scoring against the plain loop.

    Returns:
        1 if a target was missed or results differ, else 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, no targets: only that both sides agree")
    options = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(1)
    bench = Bench("likelihood", quick=options.quick)
    stories = Path(os.environ.get("RAGMETER_DATA") or ROOT.parent / "shared" / "data") / "models" / "stories260K"
    with tempfile.TemporaryDirectory() as folder:
        for vocabulary in (4096, 32000):
            path = random_llama(Path(folder) / str(vocabulary), vocabulary)
            model = CausalModel(CausalConfig(model=path), "cpu")
            length = 128 if options.quick else 512
            measure(bench, f"random Llama, {vocabulary:,}", model, length, options.quick, few=vocabulary > 4096)
    if stories.is_dir():
        model = CausalModel(CausalConfig(model=str(stories)), "cpu")
        measure(bench, "stories260K", model, 128 if options.quick else 384, options.quick)
    else:
        print(f"stories260K is not in {stories.parent}: skipped")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
