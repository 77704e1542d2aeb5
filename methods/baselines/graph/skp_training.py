"""`ragmeter train skp`: an encoder pretrained on the text of a graph, without a question.

SKP is what GPR is compared with: the same graph and the same run settings, another aim. Its result is one encoder,
which serves as both towers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.errors import UserError
from benchmarks.fingerprint import fingerprint
from benchmarks.registry import resolve
from methods.baselines.graph.skp_card import write_card
from methods.baselines.graph.skp_loss import SkpObjective, Vector
from methods.baselines.graph.skp_masking import hidden_words, masked, tokenised
from methods.baselines.graph.skp_text import Unit, unit_texts
from methods.baselines.graph.trained import without_load_report
from methods.knowledge.linearise import LineariseConfig
from methods.knowledge.pretraining import PretrainingGraph, load_graph
from methods.models.encoder import EncoderConfig, sentence_transformer
from methods.models.weights import loading, locate
from methods.one_stage import Begun, Figures, train_stage
from methods.torch_loop import Loop, LoopOptions, Schedule, accelerator
from methods.training import TrainedStage, TrainingConfig, Workshop, register_training

STAGE = "encoder"
LENGTHS: Mapping[Unit, int] = {"triple": 64, "subgraph": 200}


class SkpTrainingConfig(TrainingConfig):
    """Options of SKP's pretraining; the run's settings are those that GPR's paper gives all it trains."""

    graph: tuple[str, ...] = Field(
        ("webqsp:train+validation", "cwq:train+validation"),
        min_length=1,
        description="references whose triples are the graph; their questions are not read",
    )
    graph_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of the loaders, by dataset id")
    allow_test: bool = Field(False, description="take test graphs, too; the result is then not zero-shot")
    base: str = Field(
        "distilbert-base-uncased",
        description="folder or hub id of a masked language model; minilm (offline): its head begins at the word "
        "embeddings. SKP's own run: bert-base-uncased",
    )
    revision: str | None = Field(None, description="revision of a hub id")
    linearise: LineariseConfig = LineariseConfig.model_validate({})
    unit: Unit = Field("triple", description="what a text is: a triple, or all triples of a head (SKP's own run: subgraphs of 2 hops)")
    subgraph_triples: int = Field(16, ge=1, description="triples of a subgraph at most; a head with more has several")
    max_length: int | None = Field(
        None, ge=8, description="longest text in tokens; null: 64 for triples, 200 (SKP's own run) for subgraphs"
    )
    vector: Vector = Field("first", description="what texts are compared by: the first token; flatten: all tokens (SKP's own run)")
    contrastive_weight: float = Field(0.2, ge=0, description="of the contrastive loss; that of hidden words counts 1")
    temperature: float = Field(0.5, gt=0, description="of the contrastive loss")
    redraw: bool = Field(False, description="hide another word of a text in each epoch; SKP draws once, before training")
    epochs: int = Field(5, ge=1, description="SKP's own run: 10")
    batch_size: int = Field(512, ge=1, description="texts that are told from each other; SKP's own run: 8")
    part: int = Field(64, ge=1, description="texts encoded at once; bounds memory, changes nothing")
    learning_rate: float = Field(2e-5, gt=0, description="of AdamW, constant; SKP's own run: SGD at 5e-5")
    weight_decay: float = Field(0.01, ge=0, description="of matrices")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are scaled down to this norm")
    precision: Literal["no", "bf16", "fp16"] = Field("no", description="mixed precision")
    save_every: int = Field(50, ge=1, description="steps between two points to go on from")

    @property
    def length(self) -> int:
        """Longest text in tokens."""
        return self.max_length or LENGTHS[self.unit]

    def preflight(self) -> None:
        """Check references and the base."""
        for reference in self.graph:
            resolve(reference, where="graph")
        locate(self.base)


@register_training(
    "skp",
    summary="an encoder pretrained on a graph's text: a hidden word is predicted, a text told from others",
    stages=(STAGE,),
    config=SkpTrainingConfig,
    paper="Dong et al. 2023, Bridging the KB-Text Gap: Leveraging Structured Knowledge-aware Pre-training for KBQA",
    presets={"minilm": {"base": "minilm"}},
)
class SkpTraining:
    """The training.

    Args:
        config: Options.
    """

    def __init__(self, config: SkpTrainingConfig) -> None:
        self.config = config

    def run(self, workshop: Workshop) -> Iterator[TrainedStage]:
        """Train one encoder.

        Raises:
            UserError: The graph may not be trained on, or the folders hold other work.
        """
        config = self.config
        graph = load_graph(config.graph, config.graph_options, allow_test=config.allow_test)
        process = accelerator(config.precision, workshop.services.device)

        def begin(identity: str) -> Begun:
            return _Job(config, graph, workshop, process).begun(identity)

        base = (config.base, config.revision)
        yield from train_stage(STAGE, config, base, graph.fingerprints, workshop, process, begin)


class _Job:
    """One run of the training."""

    def __init__(self, config: SkpTrainingConfig, graph: PretrainingGraph, workshop: Workshop, process: Any) -> None:
        self.config, self.graph, self.workshop, self.process = config, graph, workshop, process
        self.encoder = self._encoder()
        self.model = masked_language_model(config, str(process.device))
        texts = unit_texts(graph, config.unit, config.linearise, config.subgraph_triples)
        self.texts = tokenised(texts, self.encoder.tokenizer, config.length)
        self.rows = np.flatnonzero(self.texts.counts)
        if not len(self.rows):
            raise UserError("no triple of the graph has a word that could be hidden", where="graph", try_this="other data")
        self.objective = SkpObjective(self.model, config.vector, config.contrastive_weight, config.temperature, config.part, process)
        self._hidden = lru_cache(1)(self._hidden_in)
        self._order = lru_cache(1)(self._order_of)

    def _encoder(self) -> Any:
        """What becomes the checkpoint: compared by the first token in training, so at inference."""
        import torch

        config = self.config
        # Masked language models come without BERT's pooler, which nothing here reads but which is saved, too.
        torch.manual_seed(config.seed)
        options = EncoderConfig.model_validate({"pooling": "cls", "max_length": config.length})
        with without_load_report():
            return sentence_transformer(options, config.base, config.revision, str(self.process.device))

    @property
    def _epoch(self) -> int:
        """Steps of an epoch."""
        return -(-len(self.rows) // self.config.batch_size)

    def begun(self, identity: str) -> Begun:
        """The loop, ready to run."""
        config = self.config
        options = LoopOptions(
            config.epochs * self._epoch,
            self._epoch,
            Schedule(config.learning_rate),
            config.weight_decay,
            max_grad_norm=config.max_grad_norm,
            save_every=config.save_every,
        )
        loop = Loop(
            {"model": self.model}, options, self._step, self.workshop.work / "train", identity, self.workshop.progress, "skp", self.process
        )
        figures = {
            "triples": float(len(self.graph)),
            "texts": float(len(self.rows)),
            "texts_left_out": float(len(self.texts) - len(self.rows)),
        }
        return Begun(loop, self._save, figures)

    def _step(self, step: int) -> Figures:
        epoch, place = divmod(step, self._epoch)
        size = self.config.batch_size
        rows = self._order(epoch)[place * size : (place + 1) * size]
        # Of like length together, where a batch is gone through in parts.
        rows = rows[np.argsort(np.diff(self.texts.offsets)[rows], kind="stable")]
        batch = masked(self.texts, rows, self._hidden(epoch if self.config.redraw else 0))
        return self.objective.backward(batch, (self.config.seed, "skp", step))

    def _order_of(self, epoch: int) -> NDArray[np.int64]:
        seed = int(fingerprint("skp-order", self.config.seed, epoch), 16)
        return self.rows[np.argsort(np.random.default_rng(seed).random(len(self.rows)), kind="stable")]

    def _hidden_in(self, epoch: int) -> NDArray[np.int64]:
        return hidden_words(self.texts, self.config.seed, epoch)

    def _save(self, folder: Path, figures: Figures) -> None:
        """Write the encoder as a `SentenceTransformer` of the first token."""
        found = self.encoder[0].auto_model.load_state_dict(self.model.base_model.state_dict(), strict=False)
        assert not found.unexpected_keys
        self.encoder.prompts = {"query": "", "document": ""}
        self.encoder.save_pretrained(str(folder), create_model_card=False)
        config = self.config
        facts = {
            "text": config.unit,
            "vector": config.vector,
            "texts per batch": config.batch_size,
            "weight of the contrastive loss": config.contrastive_weight,
            "temperature": config.temperature,
        }
        write_card(folder, config.base, config.seed, self.graph.references, self.graph.test, {**facts, **figures})


def masked_language_model(config: SkpTrainingConfig, device: str) -> Any:
    """The base with a head that predicts tokens; a base without one gets one whose output layer is its embeddings.

    Raises:
        UserError: It cannot be loaded, or holds no encoder's weights.
    """
    with loading("masked language model", config.base), without_load_report():
        import torch
        from transformers import AutoModelForMaskedLM

        # The layer before the output is drawn where the base has none.
        torch.manual_seed(config.seed)
        source = {"pretrained_model_name_or_path": locate(config.base)}
        source |= {"revision": config.revision} if config.revision else {}
        model, report = AutoModelForMaskedLM.from_pretrained(**source, dtype=torch.float32, output_loading_info=True)
        prefix = f"{model.base_model_prefix}."
        missing = sorted(key for key in report["missing_keys"] if key.startswith(prefix))
        if missing:
            raise ValueError(f"its encoder is incomplete ({missing[0]} is missing)")
    return model.to(device)
