"""Train DPA-RAG (`ragmeter train dpa_rag`): a reranker that learns which passages help the reader, and a reader fine-tuned in
two stages.

A passage is *aligned* if the reader is wrong without it and correct with it, *unaligned* if it is correct without it and wrong
with it, and *neutral* otherwise. The reranker (an encoder with a two-label linear layer on the first token) is trained on three
losses, weighted by the minimum-norm point of their gradients (`methods/training/balance.py`):

    labels     cross-entropy of aligned and not aligned
    pairs      mean over the six pairs of four passages, the better first, of −log σ( s_i − s_j )
    contrast   supervised contrastive loss of the states of two aligned passages and two others, at temperature τ

The reader is then trained to name the aligned passages before answering, and afterwards to answer from the reranker's top
passages.

Source: Dong et al. 2025, DPA-RAG (arXiv:2406.18676), and its code. The authors also rewrite training questions with a language
model, which is omitted here. If a question has too few unaligned passages, neutral ones are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.schema import Passage
from methods.baselines.rerank.dpa_rag import ENCODER, HEAD, WEIGHTS_FILE, DpaRagConfig, JoinedModel
from methods.baselines.tuned import PRESETS, Example, StageCost, SystemTuned, TunedTraining, made_of, once, tuned_needs, tuned_work
from methods.models.pretrained import load_pretrained
from methods.models.weights import locate
from methods.training import TrainingContext, register_training
from methods.training.balance import minimum_norm_weights
from methods.training.loop import Figures, LoopPlace, loop_over_rows
from methods.training.stages import PreparedRun
from methods.training.tuning import TUNED, Row, StepOptions, TuningConfig, tuning
from methods.work import Checkpoint

if TYPE_CHECKING:
    from torch import Tensor

RERANKER, PREALIGNED, READER = "reranker", "prealigned", "reader"
UNALIGNED, NEUTRAL, ALIGNED = -1, 0, 1
LISTED, EACH = 4, 2
"""Passages in the pairwise list, and on each side of the contrast."""
TEMPERATURE = 0.07
"""Temperature τ of the contrastive loss, as in the published code."""


class RerankerOptions(StepOptions):
    """Optimization options of the reranker."""

    learning_rate: float = Field(1e-5, gt=0, description="learning rate of AdamW; released 1e-5")
    batch_size: int = Field(4, ge=1, description="questions per step; released 4")
    epochs: int = Field(10, ge=1, description="number of times that each question is used; released 10")


class DpaRagTrainingConfig(TuningConfig):
    """Options of DPA-RAG's training."""

    encoder: str = Field("BAAI/bge-reranker-large", description="folder or hub id of the reranker's encoder")
    encoder_revision: str | None = Field(None, description="revision of a hub id")
    k: int = Field(3, ge=1, description="passages given to the reader; paper: 3")
    max_length: int = Field(512, ge=32, description="maximum tokens of a question with a passage")
    reranking: RerankerOptions = RerankerOptions.model_validate({})
    prealigning: StepOptions = StepOptions.model_validate({"epochs": 3, "batch_size": 16, "learning_rate": 7e-6})
    answering: StepOptions = StepOptions.model_validate({"epochs": 3, "batch_size": 16, "learning_rate": 7e-6})

    def preflight(self) -> None:
        """Check data references, base model, retriever and encoder."""
        super().preflight()
        locate(self.encoder)


def label(without: float | None, alone: float | None) -> int:
    """Return a passage's label from the rewards of the answers without passages and with only this one; neutral if one is
    unknown.
    """
    if without is None or alone is None:
        return NEUTRAL
    right = without > 0.5, alone > 0.5
    return ALIGNED if right == (False, True) else UNALIGNED if right == (True, False) else NEUTRAL


def pair_loss(scores: Tensor) -> Tensor:
    """Compute the mean of −log σ(s_i − s_j) over pairs i < j of lists [lists, passages], best first."""
    import torch
    from torch.nn.functional import logsigmoid

    first, second = torch.triu_indices(scores.shape[1], scores.shape[1], offset=1)
    return -logsigmoid(scores[:, first] - scores[:, second]).mean()


def contrast_loss(states: Tensor, labels: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Compute the supervised contrastive loss of the states of one question's passages.

    Args:
        states: States [n, h]; normalized here.
        labels: Group of each state, [n].
        temperature: τ.

    Returns:
        Mean over states of the mean over others with the same label of −log( exp(cos / τ) / Σ over all others exp(cos / τ) ).
    """
    import torch

    unit = torch.nn.functional.normalize(states, dim=-1)
    itself = torch.eye(len(states), dtype=torch.bool, device=states.device)
    shares = (unit @ unit.T / temperature).masked_fill(itself, -torch.inf).log_softmax(-1).masked_fill(itself, 0.0)
    same = (labels.unsqueeze(0) == labels.unsqueeze(1)) & ~itself
    return -((shares * same).sum(-1) / same.sum(-1)).mean()


@dataclass(frozen=True, slots=True)
class Preference:
    """Training row of the reranker: a labeled passage, four passages best first, two aligned ones and two others."""

    question: str
    passage: str
    aligned: bool
    ranked: tuple[str, ...]
    positives: tuple[str, ...]
    negatives: tuple[str, ...]


def preference(example: Example, labels: Sequence[int], draws: Draws) -> Preference | None:
    """Build a reranker's training row; None if no passage is aligned, or all are."""
    order = sorted(range(len(labels)), key=lambda n: (-labels[n], n))
    right = [n for n in order if labels[n] == ALIGNED]
    wrong = sorted((n for n in order if labels[n] != ALIGNED), key=lambda n: labels[n])
    if not right or not wrong:
        return None
    texts = [passage.full_text for passage in example.passages]

    def some(of: Sequence[int], count: int) -> list[int]:
        return (draws.sample(of, min(count, len(of))) * count)[:count]

    aligned = draws.chance(0.5)
    chosen = draws.pick(right if aligned else wrong)
    kept = some(right, 1) + some(wrong, LISTED - 1)
    ranked = sorted(kept, key=lambda n: (-labels[n], n))
    shown = (tuple(texts[n] for n in numbers) for numbers in (ranked, some(right, EACH), some(wrong, EACH)))
    return Preference(example.text, texts[chosen], aligned, *shown)


def judgment(labels: Sequence[int], answer: str) -> str:
    """Build the reader's target reply in the first stage: which shown passages help, and the answer."""
    helping = " ".join(f"[{number}]" for number, value in enumerate(labels, 1) if value == ALIGNED)
    return f"{helping or 'none'} helps. Answer: {answer}"


class Joined:
    """The reranker in training: encoder with a two-label linear layer on the first token's state.

    Args:
        config: Options.
        device: Device.
    """

    def __init__(self, config: DpaRagTrainingConfig, device: str) -> None:
        import torch

        torch.manual_seed(config.seed)
        source = ("encoder", "AutoModel", config.encoder, config.encoder_revision, "float32", device)
        self.tokenizer, encoder = load_pretrained(*source, own=True)
        head = torch.nn.Linear(encoder.config.hidden_size, 2, device=device)
        self.module = torch.nn.ModuleDict({ENCODER.rstrip("."): encoder, HEAD.rstrip("."): head})
        self.encoder, self.head, self._length = encoder, head, config.max_length
        # A pooler is not part of the published layout, and no loss reaches it.
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None

    def states(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Compute the first token's state of each (question, passage) pair: [N, h]."""
        questions, texts = map(list, zip(*pairs, strict=True))
        options = {"truncation": "only_second", "max_length": self._length, "padding": True, "return_tensors": "pt"}
        result: Tensor = self.encoder(**self.tokenizer(questions, texts, **options).to(self.encoder.device)).last_hidden_state[:, 0]
        return result

    def losses(self, rows: Sequence[Preference]) -> list[Tensor]:
        """Compute the three losses of some rows."""
        import torch
        from torch.nn.functional import cross_entropy

        device = self.encoder.device
        labels = torch.tensor([int(row.aligned) for row in rows], device=device)
        single = self.head(self.states([(row.question, row.passage) for row in rows]))
        listed = self.head(self.states([(row.question, text) for row in rows for text in row.ranked]))[:, 1]
        sides = self.states([(row.question, text) for row in rows for text in (*row.positives, *row.negatives)])
        groups = torch.tensor([1] * EACH + [0] * EACH, device=device)
        contrast = torch.stack([contrast_loss(part, groups) for part in sides.split(2 * EACH)]).mean()
        return [cross_entropy(single, labels), pair_loss(listed.reshape(len(rows), LISTED)), contrast]

    def backward(self, rows: Sequence[Preference], share: float) -> Figures:
        """Add the gradient of the balanced losses, multiplied by `share`, to the parameters."""
        import torch

        parameters = [item for item in self.module.parameters() if item.requires_grad]
        encoded = {id(item) for item in self.encoder.parameters()}
        losses = self.losses(rows)
        gradients = [torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True) for loss in losses]

        def product(one: Sequence[Tensor | None], other: Sequence[Tensor | None]) -> float:
            pairs = zip(parameters, one, other, strict=True)
            parts = [(a.double() * b.double()).sum() for item, a, b in pairs if id(item) in encoded and a is not None and b is not None]
            return float(torch.stack(parts).sum()) if parts else 0.0

        weights = minimum_norm_weights(np.array([[product(one, other) for other in gradients] for one in gradients])).tolist()
        for number, item in enumerate(parameters):
            parts = [weight * own[number] for weight, own in zip(weights, gradients, strict=True) if own[number] is not None]
            if parts:
                total = torch.stack(parts).sum(0) * share
                item.grad = total if item.grad is None else item.grad + total
        values = [float(loss.detach()) for loss in losses]
        names = ("labels", "pairs", "contrast")
        figures = {f"weight_{name}": weight for name, weight in zip(names, weights, strict=True)}
        return {"loss": sum(weight * value for weight, value in zip(weights, values, strict=True)), **figures}


def _costs(config: DpaRagTrainingConfig) -> list[StageCost]:
    """Return the stages' costs; a row of the reranker is one passage, a list, and both sides of a contrast."""
    encoder = Checkpoint(config.encoder, config.encoder_revision)
    pairs = 1 + LISTED + 2 * EACH
    return [
        StageCost(RERANKER, config.reranking, 1, reads=pairs, calls=config.retrieved + 1, shown=1, encoder=encoder),
        StageCost(PREALIGNED, config.prealigning, config.k),
        StageCost(READER, config.answering, config.k),
    ]


@register_training(
    "dpa_rag",
    summary="DPA-RAG: a reranker trained on which passages make the reader right, and the reader tuned twice",
    stages=(RERANKER, PREALIGNED, READER),
    config=DpaRagTrainingConfig,
    paper="Dong et al. 2025, DPA-RAG (arXiv:2406.18676)",
    presets={"worlds": PRESETS["dpa_rag"], "paper": PRESETS["dpa_rag-paper"]},
    work=tuned_work(_costs),
    needs=lambda config: tuned_needs(config, (config.encoder, config.encoder_revision)),
)
class DpaRagTraining(TunedTraining):
    """Training of DPA-RAG: the reranker, then the reader in two stages."""

    stages = (RERANKER, PREALIGNED, READER)

    def begin(self, stage: str, data: Sequence[Example], before: Mapping[str, Path], where: tuple[Any, Any, str]) -> PreparedRun:
        config, context = self.config, where[0]
        tuned = SystemTuned(config, context)
        labels = self._labels(tuned, data, context)
        if stage == RERANKER:
            return self._reranker(data, labels, where)
        tuned.train(TUNED)
        if stage == PREALIGNED:
            rows = self._judged(tuned, data, labels)
            train = config.prealigning
        else:
            tuned.load(TUNED, before[PREALIGNED])
            rows = self._answered(tuned, data, before[RERANKER])
            train = config.answering
        title = f"A reader ({stage}) trained as DPA-RAG's is"
        return tuning(tuned, stage, train, rows, len(rows), *where, title=title)

    def _labels(self, tuned: SystemTuned, data: Sequence[Example], context: TrainingContext) -> list[list[int]]:
        def labeled(some: Sequence[Example]) -> list[list[int]]:
            requests = [(item, shown) for item in some for shown in ((), *((passage,) for passage in item.passages))]
            answers = tuned.answers([(item.text, shown) for item, shown in requests], None)
            rewards = iter(tuned.rewards([(item.question, text) for (item, _), text in zip(requests, answers, strict=True)]))
            results = []
            for item in some:
                without = next(rewards)
                results.append([label(without, next(rewards)) for _ in item.passages])
            return results

        path = context.work / "labels.jsonl"
        return once(path, data, made_of(self.config), labeled, context.progress, "answering with and without each passage")

    def _reranker(self, data: Sequence[Example], labels: Sequence[Sequence[int]], where: tuple[Any, Any, str]) -> PreparedRun:
        config, (context, process, identity) = self.config, where
        draws = [Draws("dpa_rag", config.seed, example.question.id) for example in data]
        made = (preference(example, own, draw) for example, own, draw in zip(data, labels, draws, strict=True))
        rows = [row for row in made if row is not None]
        if not rows:
            raise UserError(
                "the reader answers no question better with a passage than without it",
                code="no-preference",
                where="data",
                try_this="a base that reads passages, or more data",
            )
        joined = Joined(config, str(process.device))

        def step(some: Sequence[Preference], epoch: int, number: int) -> Figures:
            import torch

            torch.manual_seed(int(fingerprint("dpa_rag", config.seed, number), 16) % 2**63)
            return joined.backward(some, 1 / process.num_processes)

        def order(epoch: int) -> list[Preference]:
            return Draws("dpa_rag order", config.seed, epoch).sample(rows, len(rows))

        place = LoopPlace.of(replace(context, work=context.work / RERANKER), fingerprint(identity, RERANKER), process)
        more: dict[str, Any] = {"weight_decay": config.weight_decay, "max_grad_norm": config.max_grad_norm}
        loop = loop_over_rows(RERANKER, {"model": joined.module}, config.reranking, order, len(rows), step, place, **more)

        def save(folder: Path, figures: Figures) -> None:
            import torch

            torch.save({name: item.detach().cpu() for name, item in joined.module.state_dict().items()}, folder / WEIGHTS_FILE)

        counts = {f"{name}": float(sum(value == wanted for own in labels for value in own)) for name, wanted in _COUNTED}
        return PreparedRun(loop, save, {"rows": float(len(rows)), **counts})

    def _judged(self, tuned: SystemTuned, data: Sequence[Example], labels: Sequence[Sequence[int]]) -> list[Row]:
        rows = []
        for example, own in zip(data, labels, strict=True):
            # The aligned ones must be among those that are shown, and anywhere.
            order = sorted(range(len(own)), key=lambda n: (-own[n], n))[: self.config.k]
            Draws("dpa_rag shown", self.config.seed, example.question.id).shuffle(order)
            prompt = tuned.reading(example.text, [example.passages[n] for n in order])
            if prompt is not None:
                rows.append(Row(prompt, tuned.reply(prompt, judgment([own[n] for n in order], example.question.golds[0]))))
        return rows

    def _answered(self, tuned: SystemTuned, data: Sequence[Example], reranker: Path) -> list[Row]:
        config, rows = self.config, []
        options = {"model": config.encoder, "revision": config.encoder_revision, "weights": str(reranker), "max_length": config.max_length}
        model = JoinedModel(DpaRagConfig.model_validate(options), tuned.services.device, (2,))
        scores = model.many([(item.text, [passage.full_text for passage in item.passages]) for item in data])
        for example, own in zip(data, scores, strict=True):
            first: list[Passage] = [example.passages[n] for n in np.argsort(-own, kind="stable")[: config.k]]
            prompt = tuned.reading(example.text, first)
            if prompt is not None:
                rows.append(Row(prompt, tuned.reply(prompt, example.question.golds[0])))
        return rows


_COUNTED = (("aligned", ALIGNED), ("neutral", NEUTRAL), ("unaligned", UNALIGNED))
