"""Train DRO (`ragmeter train dro`): a selector and a reader that are optimized alternately (expectation maximization).

    E step   draw m orders z ~ p_S(z | x);  w(z) = p_R(y | x, d_z) / Σ over the draws
    M step   −Σ w(z) log p_S(z | x)  for the selector,  −Σ w(z) log p_R(y | x, d_z)  for the reader

x is a question with its retrieved passages, y its answer, and d_z the first passages of order z. With one sample every weight
would be 1, so at least two are required. Samples that name no passage are dropped. Before the first round, the selector is
trained to reproduce the retriever's order from shuffled passages; the authors use RankZephyr's rankings instead.

Source: Shi et al. 2025, Direct Retrieval-augmented Optimization (arXiv:2505.03075), and its code.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.schema import Passage
from methods.baselines.rerank.prompts import PROMPTS, Writer
from methods.baselines.rerank.replies import UNUSABLE, order_of
from methods.baselines.tuned import PRESETS, Example, StageCost, SystemTuned, TunedTraining, once, tuned_needs, tuned_work
from methods.models.decoding import Sampling
from methods.models.likelihood import softmax
from methods.prompts import OURS
from methods.training import register_training
from methods.training.stages import PreparedRun
from methods.training.tuning import Row, StepOptions, Tuned, TuningConfig, by_weight, tuning, write_card

if TYPE_CHECKING:
    from torch import Tensor

WARM_UP, SELECTOR, READER = "warm_up", "selector", "reader"
Bundle = tuple[Row, ...]
"""Training rows of one question for both models."""


class DroTrainingConfig(TuningConfig):
    """Options of DRO's training."""

    samples: int = Field(8, ge=2, description="orders sampled per question; paper: 8, code: 16")
    rounds: int = Field(5, ge=1, description="rounds of sampling and training; paper: 5")
    round_questions: int | None = Field(None, ge=1, description="questions per round, sampled with the seed; null: all")
    temperature: float = Field(1.0, gt=0, description="random seed")
    named: int = Field(5, ge=1, description="passages that an order names")
    passage_words: int | None = Field(300, ge=1, description="words of a passage that the selector is shown; null: all")
    prompt: str = Field(OURS, description="the selector's prompt: `ours` or a template file")
    warming: StepOptions = StepOptions.model_validate({"epochs": 3, "batch_size": 16, "learning_rate": 2e-5})
    train: StepOptions = StepOptions.model_validate({"batch_size": 16, "learning_rate": 1e-5})

    @property
    def in_rounds(self) -> StepOptions:
        """Return the optimization options of the rounds; one epoch is one round."""
        return self.train.model_copy(update={"epochs": self.rounds})


def weights(log_likelihoods: Sequence[float]) -> tuple[float, ...]:
    """Return the weight w(z) of each sampled order from the answer's log-likelihoods (softmax)."""
    return softmax(log_likelihoods)


def order_text(order: Sequence[int]) -> str:
    """Format an order as the selector writes it."""
    return " > ".join(f"[{position + 1}]" for position in order)


class Selecting:
    """Builds the selector's prompts and parses its replies.

    Args:
        tuned: The model.
        config: Options for the format of passages and orders.
    """

    def __init__(self, tuned: SystemTuned, config: DroTrainingConfig) -> None:
        options: dict[str, Any] = {"plain_references": True, "passage_words": config.passage_words}
        self._write = Writer(PROMPTS["dro"].load(config.prompt), tuned.counter, tuned.causal.room, **options)
        self._tuned, self._named = tuned, config.named

    def prompt(self, question: str, passages: Sequence[Passage]) -> tuple[int, ...] | None:
        """Build the prompt for some passages; None if it does not fit."""
        labels = [str(number) for number in range(1, len(passages) + 1)]
        messages = self._write(question, [self._write.shown(passage) for passage in passages], labels)
        return None if messages is None else self._tuned.asking(messages)

    def order(self, reply: str, n: int) -> tuple[int, ...] | None:
        """Parse the passages that a reply names, best first; None if it names none."""
        order = order_of(reply, n, named=self._named)
        return None if order.fault == UNUSABLE else order.positions[: self._named]


def both(tuned: Tuned, part: Sequence[Bundle], step: Sequence[Bundle]) -> Tensor:
    """Compute the summed losses of selector and reader for some questions."""
    return by_weight(tuned, [row for bundle in part for row in bundle], [row for bundle in step for row in bundle])


def _costs(config: DroTrainingConfig) -> list[StageCost]:
    """Return the stages' costs; both models read every sample in each round."""
    both_read = config.retrieved + config.k
    draws = config.samples * config.rounds
    return [
        StageCost(WARM_UP, config.warming, config.retrieved),
        StageCost(SELECTOR, config.in_rounds, both_read, reads=config.samples, calls=draws, shown=config.retrieved),
    ]


@register_training(
    "dro",
    summary="DRO: samples orders from a selector, weights them by the reader's likelihood of the answer, and trains both",
    stages=(WARM_UP, SELECTOR, READER),
    config=DroTrainingConfig,
    paper="Shi et al. 2025, Direct Retrieval-augmented Optimization (arXiv:2505.03075)",
    presets={"worlds": PRESETS["dro"], "paper": PRESETS["dro-paper"]},
    work=tuned_work(_costs),
    needs=tuned_needs,
)
class DroTraining(TunedTraining):
    """Training of DRO: warm-up of the selector, then selector and reader in alternation."""

    stages = (WARM_UP, SELECTOR, READER)

    def begin(self, stage: str, data: Sequence[Example], before: Mapping[str, Path], where: tuple[Any, Any, str]) -> PreparedRun:
        config, context = self.config, where[0]
        kept = context.work / "reader-of-rounds"
        if stage == READER:
            # The rounds trained both models; this stage only copies the reader to its own folder.
            return PreparedRun(Finished(), lambda folder, figures: _copied(kept, folder), {})
        tuned = SystemTuned(config, context, (SELECTOR, READER))
        selecting = Selecting(tuned, config)
        if stage == WARM_UP:
            rows = self._ranked(tuned, selecting, data)
            tuned.train(SELECTOR)
            return tuning(tuned, stage, config.warming, rows, len(rows), *where, save=partial(self._saved, tuned, SELECTOR))
        tuned.load(SELECTOR, before[WARM_UP])
        tuned.train(SELECTOR, READER)
        usable = [item for item in data if selecting.prompt(item.text, item.passages) and tuned.reading(item.text, ())]
        count = min(config.round_questions or len(usable), len(usable))
        bundles = partial(self._round, tuned, selecting, usable, count, where)

        def save(folder: Path) -> None:
            self._saved(tuned, READER, kept)
            self._saved(tuned, SELECTOR, folder)

        return tuning(tuned, stage, config.in_rounds, bundles, count, *where, loss=both, save=save)

    def _saved(self, tuned: SystemTuned, name: str, folder: Path) -> None:
        tuned.save(name, folder)
        write_card(folder, f"A {name} trained as DRO's is", self.config, {})

    def _ranked(self, tuned: SystemTuned, selecting: Selecting, data: Sequence[Example]) -> list[Row]:
        rows = []
        for example in data:
            shown = list(range(len(example.passages)))
            Draws("dro warm-up", self.config.seed, example.question.id).shuffle(shown)
            prompt = selecting.prompt(example.text, [example.passages[n] for n in shown])
            if prompt is not None:
                order = [shown.index(n) for n in range(min(self.config.named, len(shown)))]
                rows.append(Row(prompt, tuned.reply(prompt, order_text(order)), adapter=SELECTOR))
        return rows

    def _round(
        self, tuned: SystemTuned, selecting: Selecting, data: Sequence[Example], count: int, where: tuple[Any, Any, str], number: int
    ) -> list[Bundle]:
        """Sample and weigh the rows of a round with both models' current weights."""
        config, (context, _, identity) = self.config, where
        chosen = Draws("dro round", config.seed, number).sample(data, count)

        def drawn(some: Sequence[Example]) -> list[list[list[Any]]]:
            prompts = [selecting.prompt(item.text, item.passages) or () for item in some]
            results: list[list[list[Any]]] = [[] for _ in some]
            for sample in range(config.samples):
                seed = int(fingerprint("dro", config.seed, number, sample), 16) % 2**31
                replies = tuned.write(prompts, SELECTOR, Sampling(config.temperature, seed=seed))
                for own, item, reply in zip(results, some, replies, strict=True):
                    order = selecting.order(reply, len(item.passages))
                    if order is not None:
                        own.append([list(order)])
            requests = [(item, own) for item, drafts in zip(some, results, strict=True) for own in drafts]
            prompts = [self._reading(tuned, item, own[0]) for item, own in requests]
            items = [(prompt, tuned.reply(prompt, item.question.golds[0])) for prompt, (item, _) in zip(prompts, requests, strict=True)]
            values = tuned.log_likelihoods(items, READER) if items else []
            for (_, draft), value in zip(requests, values, strict=True):
                draft.append(value)
            return results

        path = context.work / f"round-{number}.jsonl"
        kept = once(path, chosen, fingerprint(identity, number), drawn, context.progress, f"drawing orders, round {number + 1}")
        bundles = [self._bundle(tuned, selecting, *pair) for pair in zip(chosen, kept, strict=True) if pair[1]]
        if not bundles:
            raise UserError(
                f"no order that the selector wrote in round {number + 1} names a passage",
                code="no-usable-order",
                where="warming",
                try_this="use more warm-up training steps, or a base that follows instructions",
            )
        return (bundles * math.ceil(count / len(bundles)))[:count]

    def _reading(self, tuned: SystemTuned, example: Example, order: Sequence[int]) -> tuple[int, ...]:
        prompt = tuned.reading(example.text, [example.passages[n] for n in order[: self.config.k]])
        assert prompt is not None  # the question alone fits, and passages are shortened
        return prompt

    def _bundle(self, tuned: SystemTuned, selecting: Selecting, example: Example, drawn: Sequence[Sequence[Any]]) -> Bundle:
        rows = []
        asking = selecting.prompt(example.text, example.passages) or ()
        for (order, _), weight in zip(drawn, weights([value for _, value in drawn]), strict=True):
            rows.append(Row(asking, tuned.reply(asking, order_text(order)), weight, SELECTOR))
            reading = self._reading(tuned, example, order)
            rows.append(Row(reading, tuned.reply(reading, example.question.golds[0]), weight, READER))
        return tuple(rows)


class Finished:
    """Placeholder for a stage that was trained together with the previous one."""

    def run(self) -> dict[str, float]:
        """Do nothing."""
        return {}

    def forget(self) -> None:
        """Do nothing, because there is nothing to delete."""


def _copied(source: Path, folder: Path) -> None:
    shutil.copytree(source, folder, dirs_exist_ok=True)
