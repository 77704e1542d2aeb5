"""Train the text compressors RECOMP and LLMLingua-2 (`ragmeter train recomp_extractive`, `recomp_abstractive`, `llmlingua2`).

Labels come from a reader's likelihoods: the best sentence has the highest log p(answer | sentence, question), and a sentence
helps if this is above log p(answer | question).

    recomp_extractive    −log( exp(q·s⁺) / Σ over the sentences of all rows of a step exp(q·s) )
    recomp_abstractive   cross-entropy of the best sentence, or of the empty text if none helps (the authors distill GPT-3.5)
    llmlingua2           cross-entropy of each token: kept if its sentence helps any question (the authors: GPT-4)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, TypeAdapter, create_model, model_validator

from benchmarks.core.errors import UserError
from benchmarks.core.random import Draws
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage
from benchmarks.text import sentences
from methods.api import Services
from methods.baselines.compress.rows import CompressionRow, answer_rows, kept_lines
from methods.baselines.compress.soft import MISTRAL, cut
from methods.models.chat_config import ChatConfig
from methods.models.likelihood import UNBOUNDED, by_length
from methods.models.pretrained import load_pretrained
from methods.models.weights import locate
from methods.presets import laid_over, read_presets
from methods.served import ScorerConfig, scoring_work
from methods.training import LengthsOf, TrainingContext, register_training
from methods.training.contrast import DataConfig
from methods.training.loop import Figures, LoopPlace, loop_over_rows
from methods.training.material import load_data
from methods.training.parts import MicroBatch, in_parts
from methods.training.ranks import first
from methods.training.stages import OneStageTraining, PreparedRun
from methods.training.tuning import StepOptions
from methods.work import Checkpoint, Needs, StageWork, Work, all_needs, learn, steps

if TYPE_CHECKING:
    from torch import Tensor

STAGE = "compressor"


class TextTrainingConfig(DataConfig):
    """Options of the trainings of text compressors."""

    base: str = Field(description="model to tune")
    reader: str = Field(MISTRAL, description="model whose likelihood of the answers labels sentences; or `pocket`")
    endpoint: ChatConfig | None = Field(
        None,
        description="an endpoint that serves the reader and returns log-probabilities (vLLM); then only its tokenizer is loaded. "
        "null: load the reader locally",
        exclude_if=lambda value: value is None,
    )
    documents: int = Field(5, ge=1, description="passages per question: its evidence, then other candidates, in random order")
    max_length: int = Field(512, ge=16, description="maximum tokens per text")
    train: StepOptions = StepOptions.model_validate({"learning_rate": 2e-5, "batch_size": 64})
    weight_decay: float = Field(0.01, ge=0, description="weight decay of AdamW on matrices; biases and norms have none")

    def preflight(self) -> None:
        """Check the data references and models."""
        super().preflight()
        locate(self.base)
        self.scorer.preflight()

    def reach(self, cache: Path | None) -> None:
        """Check that the reader's endpoint returns log-probabilities of given tokens."""
        super().reach(cache)
        self.scorer.reach(cache)

    @property
    def scorer(self) -> ScorerConfig:
        """Return the options of the model whose likelihoods label sentences."""
        return ScorerConfig.of(self.reader, self.endpoint)

    @model_validator(mode="after")
    def _serves_a_scorer(self) -> Self:
        _ = self.scorer  # checks the options of the endpoint
        return self


def _tuning(base: str, what: str) -> type[TextTrainingConfig]:
    """Build the option class of a training for a kind of model, with its default model."""
    field = Field(base, description=f"{what}: a folder or hub id")
    return create_model("TextTrainingConfig", __base__=TextTrainingConfig, base=(str, field))


@dataclass(frozen=True, slots=True)
class Labeled:
    """A question with its passages' sentences in order, and the index of the most helpful one (None if none helps)."""

    question: str
    sentences: tuple[tuple[str, ...], ...]
    best: tuple[int, int] | None

    @property
    def text(self) -> str | None:
        """Return the most helpful sentence, or None."""
        return None if self.best is None else self.sentences[self.best[0]][self.best[1]]


def labeled(rows: Sequence[CompressionRow], likelihoods: Any) -> list[Labeled]:
    """Label each row with the sentence that maximizes the answer's likelihood.

    Args:
        rows: Rows with questions.
        likelihoods: Function from (question, passages, answer) triples to the answers' log-likelihoods.
    """
    parts: list[tuple[tuple[str, ...], ...]] = []
    asking: list[tuple[str, tuple[Passage, ...], str]] = []
    for row in rows:
        texts = [(title if line else "", body or text) for text in row.documents for title, line, body in [text.partition("\n")]]
        parts.append(tuple(tuple(sentences(body)) for _, body in texts))
        shown = [(Passage("", title, item),) for (title, _), some in zip(texts, parts[-1], strict=True) for item in some]
        asking += [(row.question, passages, row.target) for passages in ((), *shown)]
    values = iter(likelihoods(asking))
    results = []
    for row, own in zip(rows, parts, strict=True):
        without = next(values)
        scored = [(next(values), (at, n)) for at, some in enumerate(own) for n in range(len(some))]
        best = max(scored, key=lambda pair: pair[0], default=(without, None))
        results.append(Labeled(row.question, own, best[1] if best[0] > without else None))
    return results


class TextTraining(OneStageTraining):
    """Base class of the trainings of text compressors; `loss` is a mean over rows."""

    kind = noun = ""
    options: Mapping[str, Any] = {}
    module: Any
    tokenizer: Any

    stage = STAGE

    def open(self, device: str) -> None:
        """Load the model to train (of the class `kind`, called `noun` in errors)."""
        from methods.models.complete import without_load_report

        loads = self.noun, self.kind, self.config.base, None, "float32", device
        with without_load_report():  # it would say that a new head is a random one
            self.tokenizer, self.module = load_pretrained(*loads, model_options=self.options, own=True)

    @abstractmethod
    def examples(self, rows: Sequence[Labeled]) -> list[Any]:
        """Convert labeled questions to training examples."""

    @abstractmethod
    def loss(self, rows: Sequence[Any]) -> Tensor:
        """Compute the mean loss of some examples."""

    def save(self, folder: Path) -> None:
        """Write the checkpoint."""
        self.module.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def batch(self, texts: Sequence[str]) -> Any:
        """Tokenize texts as a batch for the model."""
        options = {"truncation": True, "max_length": self.config.max_length, "padding": True, "return_tensors": "pt"}
        return self.tokenizer(list(texts), **options).to(self.module.device)

    def load(self) -> tuple[list[Benchmark], Sequence[str]]:
        benchmarks = load_data(self.config.data, self.config.data_options)
        return benchmarks, [benchmark.fingerprint for benchmark in benchmarks]

    def bases(self) -> Sequence[tuple[str, str | None]]:
        return [(self.config.base, None), *([(self.config.reader, None)] if self.config.endpoint is None else [])]

    def begin(self, data: list[Benchmark], context: TrainingContext, process: Any, identity: str) -> PreparedRun:
        import torch

        config, train, device = self.config, self.config.train, str(process.device)
        with first(process):
            services = replace(context.services, device=device)
            marked = self._labels(answer_rows(data, config.documents, context), context.work / "labels.jsonl", services)
        torch.manual_seed(config.seed)
        self.open(device)
        examples = self.examples(marked)
        if not examples:
            raise UserError(
                "no sentence increases the probability of an answer",
                code="no-useful-sentence",
                where="data",
                try_this="other data, or another reader",
            )

        def order(turn: int) -> list[Any]:
            return Draws("compress text", config.seed, turn).sample(examples, len(examples))

        def backward(some: Sequence[Any], epoch: int, step: int) -> Figures:
            parts, key = cut(some, micro.size), ("compress text", config.seed, step)
            return {"loss": in_parts(parts, lambda part: self.loss(part) * (len(part) / len(some)), key, process, process.device)}

        place, micro = LoopPlace.of(context, identity, process), MicroBatch(train.micro_batch, "train.micro_batch")
        more = {"micro": micro, "weight_decay": config.weight_decay}
        loop = loop_over_rows(STAGE, {"model": self.module}, train, order, len(examples), backward, place, **more)
        helped = sum(row.best is not None for row in marked) / len(marked)
        return PreparedRun(loop, lambda folder, figures: self.save(folder), {"rows": float(len(examples)), "helped": helped})

    def _labels(self, rows: Sequence[CompressionRow], path: Path, services: Services) -> list[Labeled]:
        scorer = self.config.scorer

        def made() -> Iterable[Mapping[str, Any]]:
            return map(asdict, labeled(rows, lambda asking: likelihoods(scorer, services, asking)))

        name = scorer.model if scorer.endpoint is None else scorer.identity
        kept = kept_lines(path, made, [(row.question, row.target, row.documents) for row in rows], name)
        return [TypeAdapter(Labeled).validate_python(row) for row in kept]


def likelihoods(scorer: ScorerConfig, services: Services, asking: Sequence[tuple[str, tuple[Passage, ...], str]]) -> list[float]:
    """Compute the log-likelihoods of answers in (question, passages, answer) triples with a language model."""
    from methods.models.formats import own_format
    from methods.models.likelihood import LikelihoodScorer, ScoredText
    from methods.readers.prompts import PROMPTS, numbered

    model, own = scorer.open(services, "labels"), own_format(scorer.model)

    def prompt(question: str, passages: tuple[Passage, ...]) -> str:
        if own is not None:
            return own.answer_prompt(question, passages)
        template = PROMPTS["passages" if passages else "closed_book"].load()
        return str(model.render(*template.pair(question=question, passages=numbered(passages))))

    texts = [ScoredText(prompt(question, passages), f" {answer}") for question, passages, answer in asking]
    return [item.total for item in LikelihoodScorer(model).score(texts)]


def _work(config: TextTrainingConfig, of: LengthsOf) -> list[StageWork]:
    """Estimate the work: the reader scores every sentence with its question, then training on rows."""
    data = [of(item, config.data_options) for item in config.data]
    base, work = Checkpoint(config.base), Work()
    for lengths in data:
        passages = lengths.questions * config.documents
        work += scoring_work(config.scorer, passages * 3, lengths.passage + lengths.question)
        work += learn(base, config.train.epochs * passages, lengths.passage, config.precision)
    rows = sum(lengths.questions for lengths in data)
    return [StageWork(STAGE, work, rows, steps(rows, config.train.batch_size, config.train.epochs))]


_TEXT = read_presets(Path(__file__).with_name("presets.yaml"))
_MINILM = {"worlds": {**_TEXT["text"], "base": "minilm"}, "worlds-long": {**_TEXT["text-long"], "base": "minilm"}}
_SHARED: dict[str, Any] = {
    "stages": (STAGE,),
    "work": _work,
    "needs": lambda config: all_needs((Needs((Checkpoint(config.base),)), config.scorer.needed_models())),
}


@register_training(
    "recomp_extractive",
    summary="RECOMP: an encoder trained with a softmax over sentences, with the sentence that makes the answer most likely as the positive",
    config=_tuning("facebook/contriever", "an encoder, or `minilm`"),
    # A step reads every sentence of its questions' passages: seven hundred where passages are long.
    presets={**_MINILM, "worlds-long": laid_over(_MINILM["worlds-long"], {"data_options": {"worlds": {"questions": 640}}})},
    version=2,
    paper="Xu et al. 2024, RECOMP (arXiv:2310.04408)",
    **_SHARED,
)
class ExtractiveTraining(TextTraining):
    """Training of RECOMP's sentence encoder."""

    def open(self, device: str) -> None:
        from methods.models.encoder_config import EncoderConfig
        from methods.models.towers import sentence_transformer

        options = EncoderConfig.model_validate({"model": self.config.base, "pooling": "mean"})
        self.module = sentence_transformer(options, self.config.base, None, device)

    def examples(self, rows: Sequence[Labeled]) -> list[Any]:
        return [row for row in rows if row.best is not None]

    def loss(self, rows: Sequence[Any]) -> Tensor:
        from torch.nn.functional import cross_entropy

        texts = list(dict.fromkeys(text for row in rows for own_parts in row.sentences for text in own_parts))
        right = [texts.index(row.text) for row in rows]
        questions, vectors = self._vectors([row.question for row in rows]), self._vectors(texts)
        return cross_entropy(questions @ vectors.T, questions.new_tensor(right).long())

    def _vectors(self, texts: Sequence[str]) -> Tensor:
        import torch
        from sentence_transformers.util import batch_to_device

        # Those of like length together: one long sentence would pad all of a step.
        parts = by_length([len(text) for text in texts], UNBOUNDED, 64)
        inputs = (self.module.preprocess([texts[at] for at in part]) for part in parts)
        vectors = [self.module(batch_to_device(item, self.module.device))["sentence_embedding"] for item in inputs]
        return torch.cat(vectors)[torch.tensor([at for part in parts for at in part]).argsort()]

    def save(self, folder: Path) -> None:
        self.module.save_pretrained(str(folder), create_model_card=False)


@register_training(
    "recomp_abstractive",
    summary="RECOMP: a T5 that writes the sentence that makes the answer most likely, or nothing",
    config=_tuning("google-t5/t5-large", "an encoder-decoder model"),
    paper="Xu et al. 2024, RECOMP (arXiv:2310.04408)",
    **_SHARED,
)
class AbstractiveTraining(TextTraining):
    """Training of RECOMP's summarizer."""

    kind, noun = "AutoModelForSeq2SeqLM", "encoder-decoder model"

    def examples(self, rows: Sequence[Labeled]) -> list[Any]:
        documents = [" ".join(text for own in row.sentences for text in own) for row in rows]
        prompts = [f"Question: {row.question}\n Document: {text}\n Summary: " for row, text in zip(rows, documents, strict=True)]
        return list(zip(prompts, [row.text or "" for row in rows], strict=True))

    def loss(self, rows: Sequence[Any]) -> Tensor:
        inputs, targets = self.batch([prompt for prompt, _ in rows]), self.batch([target for _, target in rows])
        labels = targets["input_ids"].masked_fill(targets["attention_mask"] == 0, -100)
        inputs.pop("token_type_ids", None)
        loss: Tensor = self.module(**inputs, labels=labels).loss
        return loss


@register_training(
    "llmlingua2",
    summary="LLMLingua-2: a token classifier trained on which tokens help a reader with at least one question",
    config=_tuning("FacebookAI/xlm-roberta-large", "an encoder that gets a class for each token"),
    presets=_MINILM,
    paper="Pan et al. 2024, LLMLingua-2 (arXiv:2403.12968)",
    **_SHARED,
)
class TokensTraining(TextTraining):
    """Training of LLMLingua-2's token classifier."""

    kind, noun, options = "AutoModelForTokenClassification", "token classifier", {"num_labels": 2}

    def examples(self, rows: Sequence[Labeled]) -> list[Any]:
        kept: dict[tuple[str, ...], set[int]] = {}
        for row in rows:
            if row.best is not None:
                kept.setdefault(row.sentences[row.best[0]], set()).add(row.best[1])
        return list(kept.items())

    def loss(self, rows: Sequence[Any]) -> Tensor:
        import torch
        from torch.nn.functional import cross_entropy

        inputs = self.batch([" ".join(parts) for parts, _ in rows])
        labels = torch.full(inputs["input_ids"].shape, -100)
        for row, (parts, stays) in enumerate(rows):
            # Where each sentence ends in the joined text decides which a token is of.
            ends = [sum(map(len, parts[: n + 1])) + n for n in range(len(parts))]
            for at in range(labels.shape[1]):
                start, end = inputs.encodings[row].offsets[at]
                if end > start:
                    labels[row, at] = int(next(n for n, limit in enumerate(ends) if end <= limit) in stays)
        logits = self.module(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        return cross_entropy(logits.float().flatten(0, 1), labels.to(logits.device).flatten())
