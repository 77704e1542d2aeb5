"""SKP over triples: retrieval with one encoder that `ragmeter train skp` pretrains on a graph's text, and that pretraining."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from methods.api import Services
from methods.baselines.graph.two_towers import POOLINGS, Pooling
from methods.graphs.triples import LinearizeConfig, PretrainingGraph, check_graphs, linearized, load_graph, without_questions
from methods.models.complete import without_load_report
from methods.models.encoder_config import EncoderConfig
from methods.models.likelihood import logits_only_at
from methods.models.pretrained import loading
from methods.models.towers import sentence_transformer
from methods.models.weights import locate
from methods.registry import register
from methods.retrieval.triples import PretrainedTowersConfig, TripleRetriever, open_towers, triples_work
from methods.training import LengthsOf, TrainingConfig, TrainingContext, register_training
from methods.training.loop import LoopPlace, Schedule, loop_over_rows
from methods.training.model_card import RETRIEVER, seen_test_graphs, write_model_card
from methods.training.ranks import backward, own, summed
from methods.training.stages import Figures, OneStageTraining, PreparedRun
from methods.work import Checkpoint, Needs, StageWork, learn, steps, whole_stage

if TYPE_CHECKING:
    from torch import Tensor


class SkpConfig(PretrainedTowersConfig):
    """Options of SKP; the maximum length is that saved with the checkpoint."""

    trained_by = "skp"
    model: str = Field(description="folder of a checkpoint that `ragmeter train skp` made")
    pooling: Pooling | None = Field(
        None, description="vector of a text: its first token's, or the tokens' mean; null: as saved, else the first"
    )

    @property
    def encoder(self) -> EncoderConfig:
        return self.towers(model=self.model, pooling=POOLINGS[self.pooling] if self.pooling else None)


@register(
    "skp",
    kind="retriever",
    summary="triples ranked by one encoder that was pretrained on a graph's text with masked words and contrastive copies",
    paper="Dong et al. 2023, Bridging the KB-Text Gap: Leveraging Structured Knowledge-aware Pre-training for KBQA",
    work=triples_work,
)
class Skp(TripleRetriever):
    """Retriever role: ranks triples with an SKP checkpoint.

    Args:
        config: Options with the checkpoint and search settings.
        services: Services; device and embedding cache are used.
    """

    def __init__(self, config: SkpConfig, services: Services) -> None:
        super().__init__(*open_towers(config, services), "skp")


def write_card(
    folder: Path, config: SkpTrainingConfig, graph: tuple[str, ...], test: tuple[str, ...], figures: Mapping[str, float]
) -> None:
    """Write the model card.

    Args:
        folder: Checkpoint folder.
        config: All options.
        graph: References of the graph.
        test: References among them that are test graphs.
        figures: Final metrics.
    """
    write_model_card(
        folder,
        RETRIEVER,
        "An encoder of triples pretrained as SKP does",
        "SKP (structured knowledge-aware pre-training) predicts a hidden word of a text, and tells a text from others by its copy with the "
        f"word hidden. No question was read. One encoder serves questions and triples.{seen_test_graphs(test)}",
        base=[config.base],
        data=graph,
        seed=config.seed,
        facts={
            "text": config.unit,
            "vector": config.vector,
            "texts per batch": config.batch_size,
            "weight of the contrastive loss": config.contrastive_weight,
            "temperature": config.temperature,
            **figures,
        },
    )


# A word is what stands between white space; all of its word pieces are hidden together, so that none gives away another.


SEPARATOR = "|"
"""Separator between the triples of a subgraph, a separate word that is never masked."""
NOT_A_TARGET = -100
"""Label of positions without a loss (`ignore_index` of torch)."""
_NO_WORD = -1
_AT_ONCE = 4096


@dataclass(frozen=True)
class Tokenized:
    """Tokenized texts in flat arrays.

    Attributes:
        ids: Token ids of all texts: shape (tokens,).
        words: Word index of each token within its text; -1 for tokens that are never masked: shape (tokens,).
        offsets: Start of each text, followed by the end of the last: shape (texts + 1,).
        counts: Number of maskable words per text: shape (texts,).
        mask: Id of the mask token.
        pad: Id of the padding token.
    """

    ids: NDArray[np.int32]
    words: NDArray[np.int32]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]
    mask: int
    pad: int

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(frozen=True)
class Masked:
    """A batch of texts and copies with one masked word, all of shape (texts, longest).

    Attributes:
        ids: Original token ids.
        copies: Token ids with the masked word.
        attention: Attention mask: 1 for tokens, 0 for padding.
        labels: Masked tokens at their positions, `NOT_A_TARGET` elsewhere.
    """

    ids: NDArray[np.int64]
    copies: NDArray[np.int64]
    attention: NDArray[np.int64]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def targets(self) -> int:
        """Return the number of masked tokens."""
        return int((self.labels != NOT_A_TARGET).sum())

    def take_rows(self, positions: slice) -> Masked:
        """Return some of the texts, with padding trimmed."""
        longest = int(self.attention[positions].sum(axis=1).max(initial=0))
        parts = (part[positions, :longest] for part in (self.ids, self.copies, self.attention, self.labels))
        return Masked(*parts)


def tokenized(texts: Sequence[str], tokenizer: Any, max_length: int) -> Tokenized:
    """Tokenize texts and determine the word of each token.

    Args:
        texts: Texts to tokenize.
        tokenizer: A fast tokenizer of `transformers` with a mask token.
        max_length: Maximum tokens per text; longer texts are truncated.
    """
    ids, words, lengths = [], [], []
    for start in range(0, len(texts), _AT_ONCE):
        part = list(texts[start : start + _AT_ONCE])
        encoded = tokenizer(part, truncation=True, max_length=max_length, return_offsets_mapping=True)
        lengths += [len(row) for row in encoded["input_ids"]]
        ids.append(np.concatenate([np.array(row, dtype=np.int32) for row in encoded["input_ids"]]))
        words.append(_number_words(part, encoded["offset_mapping"]))
    offsets = np.concatenate([[0], np.cumsum(np.array(lengths, dtype=np.int64))]).astype(np.int64)
    every = np.concatenate(words) if words else np.empty(0, dtype=np.int32)
    numbered, counts = _renumbered(every, offsets)
    flat = np.concatenate(ids) if ids else np.empty(0, dtype=np.int32)
    return Tokenized(flat, numbered, offsets, counts, int(tokenizer.mask_token_id), int(tokenizer.pad_token_id))


def _number_words(texts: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]]) -> NDArray[np.int32]:
    """Return the word index of each token over all texts; -1 for special tokens and separators."""
    bases = np.concatenate([[0], np.cumsum([len(text) + 1 for text in texts])])[:-1]
    results = [(match.start(), match.group() == SEPARATOR) for match in re.finditer(r"\S+", "\n".join(texts))]
    starts = np.array([start for start, _ in results], dtype=np.int64)
    separators = np.array([separates for _, separates in results], dtype=bool)
    lengths = [len(row) for row in spans]
    flat = np.array([span for row in spans for span in row], dtype=np.int64).reshape(-1, 2)
    # A token's last character decides: its first may be the space before the word.
    words = np.searchsorted(starts, flat[:, 1] - 1 + np.repeat(bases, lengths), side="right") - 1
    nothing = flat[:, 0] == flat[:, 1]
    if len(starts):
        nothing |= separators[words]
    return np.where(nothing, _NO_WORD, words).astype(np.int32)


def _renumbered(words: NDArray[np.int32], offsets: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Renumber words from 0 within each text, and return the number of words per text."""
    lengths = np.diff(offsets)
    texts = np.repeat(np.arange(len(lengths)), lengths)
    there = np.flatnonzero(words != _NO_WORD)
    first = np.ones(len(there), dtype=bool)
    first[1:] = (words[there[1:]] != words[there[:-1]]) | (texts[there[1:]] != texts[there[:-1]])
    counts = np.bincount(texts[there][first], minlength=len(lengths)).astype(np.int64)
    before = np.concatenate([[0], np.cumsum(counts)])[:-1]
    numbered = np.full(len(words), _NO_WORD, dtype=np.int32)
    numbered[there] = np.cumsum(first) - 1 - before[texts[there]] if len(there) else 0
    return numbered, counts


def hidden_words(texts: Tokenized, *key: str | int) -> NDArray[np.int64]:
    """Draw the word to mask in each text, uniformly; -1 for texts without words.

    Args:
        texts: The texts.
        key: Random seed parts.
    """
    seed = int(fingerprint("skp-mask", *key), 16)
    drawn = np.random.default_rng(seed).random(len(texts))
    return np.where(texts.counts > 0, (drawn * texts.counts).astype(np.int64), _NO_WORD)


def masked(texts: Tokenized, positions: NDArray[np.int64], hidden: NDArray[np.int64]) -> Masked:
    """Build a batch of texts and masked copies.

    Args:
        texts: All texts.
        positions: Positions of the batch's texts: shape (batch,).
        hidden: Masked word of each text (`hidden_words`).
    """
    starts, lengths = texts.offsets[positions], np.diff(texts.offsets)[positions]
    columns = np.arange(int(lengths.max(initial=0)))
    there = columns < lengths[:, None]
    at = np.where(there, starts[:, None] + columns, 0)
    ids = np.where(there, texts.ids[at], texts.pad).astype(np.int64)
    chosen = hidden[positions][:, None]
    gone = there & (chosen != _NO_WORD) & (texts.words[at] == chosen)
    return Masked(ids, np.where(gone, texts.mask, ids), there.astype(np.int64), np.where(gone, ids, NOT_A_TARGET))


# L = L_mlm + w · L_cl
# L_mlm = mean over hidden tokens of −log p(token)
# L_cl = mean over texts i of −log( exp(s_ii / τ) / Σ_j exp(s_ij / τ) ),   s_ij = cos(text i, copy j)
#
# Two points where the authors' code differs, by accident as it seems: its L_mlm averages over every position, filled-up
# ones included, and the denominator of its L_cl lacks the first of the other copies.
#
# Source: Dong et al. 2023, Bridging the KB-Text Gap: Leveraging Structured Knowledge-aware Pre-training for KBQA.


Vector = Literal["first", "flatten"]


def contrastive(texts: Tensor, copies: Tensor, temperature: float) -> Tensor:
    """Compute the contrastive loss L_cl between texts and their masked copies, in float32.

    Args:
        texts: Shape (batch, dimension).
        copies: Vectors of the masked copies, in the same order: shape (batch, dimension).
        temperature: τ.
    """
    import torch

    normalized = [torch.nn.functional.normalize(part.float(), dim=1) for part in (texts, copies)]
    scores = normalized[0] @ normalized[1].T / temperature
    return torch.nn.functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


class SkpObjective:
    """Training objective of SKP: masked language modeling plus a contrastive loss.

    A batch that does not fit is processed twice in parts (gradient caching): first without activations, for the gradient of
    each vector, then with them for backpropagation. Every text is thus contrasted with the whole batch.

    Args:
        model: A masked language model of `transformers`.
        vector: Compared vector of the last hidden state: the first token, or all tokens flattened.
        weight: w.
        temperature: τ.
        part: Maximum texts per forward pass.
        accelerator: `accelerate` process; None for a single process in the model's precision.

    Source:
        Gao et al. 2021, Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup (GradCache).
    """

    def __init__(self, model: Any, vector: Vector, weight: float, temperature: float, part: int, accelerator: Any = None) -> None:
        self.model, self.vector, self.weight, self.temperature = model, vector, weight, temperature
        self.part, self.accelerator = part, accelerator

    def backward(self, batch: Masked, seed: Sequence[str | int]) -> Mapping[str, float]:
        """Compute the gradient of a batch's loss and add it to the parameters; each process handles its own parts.

        Args:
            batch: Texts and masked copies.
            seed: Seed parts for dropout: seed, step …

        Returns:
            The loss (`loss`) and its two terms (`masked`, `contrastive`), unweighted.
        """
        import torch

        starts = list(range(0, len(batch), self.part))
        ours = own(starts, self.accelerator)
        hold = len(starts) == 1
        kept: dict[int, tuple[Tensor, ...]] = {}
        width = batch.ids.shape[1]
        with torch.set_grad_enabled(hold):
            for start in ours:
                kept[start] = self._vectors(batch.take_rows(slice(start, start + self.part)), width, (*seed, start))
        dimension = int(self.model.config.hidden_size) * (width if self.vector == "flatten" else 1)
        leaves = self._leaves(kept, len(batch), dimension)
        apart = contrastive(leaves[0], leaves[1], self.temperature)
        (self.weight * apart).backward()
        hidden = 0.0
        for start in ours:
            rows = batch.take_rows(slice(start, start + self.part))
            parts = kept[start] if hold else self._vectors(rows, width, (*seed, start))
            texts, copies, negative = parts
            share = negative / max(1, batch.targets)
            hidden += float(share.detach())
            carried = sum(
                (vectors * leaf.grad[start : start + len(rows)]).sum() for vectors, leaf in zip((texts, copies), leaves, strict=True)
            )
            backward(share + carried, self.accelerator)
        hidden = summed(hidden, self.accelerator, self.model.device)
        contrast = float(apart.detach())
        return {"loss": hidden + self.weight * contrast, "masked": hidden, "contrastive": contrast}

    def _leaves(self, kept: Mapping[int, tuple[Tensor, ...]], count: int, dimension: int) -> list[Tensor]:
        """Return the vectors of texts and copies from all processes as leaf tensors."""
        import torch

        leaves = []
        for side in (0, 1):
            whole = torch.zeros(count, dimension, device=self.model.device)
            for start, parts in kept.items():
                whole[start : start + len(parts[side])] = parts[side].detach().float()
            if self.accelerator is not None and self.accelerator.num_processes > 1:
                whole = self.accelerator.reduce(whole, "sum")
            leaves.append(whole.requires_grad_())
        return leaves

    def _vectors(self, batch: Masked, width: int, seed: Sequence[str | int]) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the vectors of texts and copies, and the summed negative log-likelihood of masked tokens."""
        import torch

        device = self.model.device
        attention = torch.from_numpy(batch.attention).to(device)
        labels = torch.from_numpy(batch.labels).to(device)
        rows, columns = torch.nonzero(labels != NOT_A_TARGET, as_tuple=True)
        torch.manual_seed(int(fingerprint(*seed), 16) % 2**63)
        with self._autocast():
            texts = self.model.base_model(torch.from_numpy(batch.ids).to(device), attention_mask=attention)
            with logits_only_at(self.model, rows, columns):
                copies = self.model(torch.from_numpy(batch.copies).to(device), attention_mask=attention, output_hidden_states=True)
        negative = torch.nn.functional.cross_entropy(copies.logits[0].float(), labels[rows, columns], reduction="sum")
        states = (texts.last_hidden_state, copies.hidden_states[-1])
        first, second = (self._one(state, attention, width) for state in states)
        return first, second, negative

    def _one(self, states: Tensor, attention: Tensor, width: int) -> Tensor:
        """Compute one vector per text: shape (texts, dimension)."""
        import torch

        if self.vector == "first":
            return states[:, 0]
        states = states * attention.unsqueeze(-1)
        return torch.nn.functional.pad(states, (0, 0, 0, width - states.shape[1])).flatten(1)

    def _autocast(self) -> Any:
        from contextlib import nullcontext

        return nullcontext() if self.accelerator is None else self.accelerator.autocast()


Unit = Literal["triple", "subgraph"]


def unit_texts(graph: PretrainingGraph, unit: Unit, linearize: LinearizeConfig, most: int) -> list[str]:
    """Return the distinct training texts of a graph, in the order of its triples.

    Args:
        graph: The triples.
        unit: `triple`: one text per triple; `subgraph`: all triples with the same head, separated.
        linearize: Text format of a triple.
        most: Maximum triples per subgraph; a head with more has several texts.
    """
    texts = linearized(graph.triples, config=linearize)
    if unit == "subgraph":
        order = np.argsort(graph.heads, kind="stable")
        heads = graph.heads[order]
        # Where a head begins, and then every `most` triples.
        begins = np.flatnonzero(np.diff(heads, prepend=-1))
        within = np.arange(len(heads)) - np.repeat(begins, np.diff(begins, append=len(heads)))
        starts = np.flatnonzero(within % most == 0)
        ends = [*starts[1:].tolist(), len(heads)]
        rows = order.tolist()
        between = f" {SEPARATOR} "
        groups = sorted((rows[start:end] for start, end in zip(starts.tolist(), ends, strict=True)), key=lambda item: item[0])
        texts = [between.join(texts[row] for row in group) for group in groups]
    # Triples whose relations share their last part may read alike: a text must not be its own contrast.
    return list(dict.fromkeys(texts))


# SKP is what GPR is compared with: the same graph and the same run settings, another aim. Its result is one encoder,
# which serves as both towers.


SUBGRAPH_TRIPLES = 16
"""Maximum triples per subgraph; a head with more has several texts."""
STAGE = "encoder"
LENGTHS: Mapping[Unit, int] = {"triple": 64, "subgraph": 200}


class SkpTrainingConfig(TrainingConfig):
    """Options of SKP's pretraining; optimization settings are those of GPR's paper."""

    graph: tuple[str, ...] = Field(
        ("webqsp:train+validation", "cwq:train+validation"),
        min_length=1,
        description="references whose triples are the graph; their questions are not read",
    )
    graph_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of the loaders, by dataset id")
    allow_test: bool = Field(False, description="include test graphs; the result is then not zero-shot")
    base: str = Field(
        "distilbert-base-uncased",
        description="folder or hub id of a masked language model; minilm (offline): its output layer starts as the word "
        "embeddings. SKP's own run: bert-base-uncased",
    )
    revision: str | None = Field(None, description="revision of a hub id")
    linearize: LinearizeConfig = LinearizeConfig.model_validate({})
    unit: Unit = Field("triple", description="unit of text: a triple, or all triples of a head (SKP's own run: subgraphs of 2 hops)")
    max_length: int | None = Field(
        None, ge=8, description="longest text in tokens; null: 64 for triples, 200 (SKP's own run) for subgraphs"
    )
    vector: Vector = Field(
        "first", description="vector that texts are compared by: the first token's; flatten: those of all tokens (SKP's own run)"
    )
    contrastive_weight: float = Field(0.2, ge=0, description="weight of the contrastive loss; the loss of masked words has weight 1")
    temperature: float = Field(0.5, gt=0, description="temperature of the contrastive loss")
    redraw: bool = Field(False, description="mask other words of a text in each epoch; SKP chooses once, before training")
    epochs: int = Field(5, ge=1, description="SKP's own run: 10")
    batch_size: int = Field(512, ge=1, description="texts that are contrasted with each other; SKP's own run: 8")
    part: int = Field(64, ge=1, description="texts encoded at once; limits memory and does not change results")
    learning_rate: float = Field(2e-5, gt=0, description="learning rate of AdamW, constant; SKP's own run: SGD at 5e-5")
    weight_decay: float = Field(0.01, ge=0, description="weight decay of AdamW on matrices; biases and norms have none")
    max_grad_norm: float = Field(1.0, gt=0, description="maximum norm of gradients; larger ones are scaled down")
    precision: Literal["no", "bf16", "fp16"] = Field("no", description="mixed precision")
    save_every: int = Field(50, ge=1, description="steps between two saved states from which an interrupted training resumes")

    @property
    def length(self) -> int:
        """Return the maximum text length in tokens."""
        return self.max_length or LENGTHS[self.unit]

    def preflight(self) -> None:
        """Check the data references and the base model."""
        check_graphs(self.graph, allowed=self.allow_test)
        locate(self.base)


def _work(config: SkpTrainingConfig, of: LengthsOf) -> list[StageWork]:
    """Estimate the work: every text and its copy per epoch; a large batch is processed once more in parts."""
    options = without_questions(config.graph, config.graph_options)
    graphs = [of(item, options) for item in config.graph]
    triples = sum(graph.corpus for graph in graphs)
    length = sum(graph.corpus * graph.passage for graph in graphs) / triples if triples else 0.0
    if config.unit == "subgraph":
        # A head with a single triple is a subgraph, too, so there are at most as many subgraphs as triples.
        length *= SUBGRAPH_TRIPLES
    base, size = Checkpoint(config.base, config.revision), graphs[0].size(config.base, config.revision)
    read = learn(base, 2 * config.epochs * triples, min(length, config.length), config.precision)
    work = read * (4 / 3 if config.batch_size > config.part else 1.0)
    return [whole_stage(STAGE, work, size, config.base, rows=triples, taken=steps(triples, config.batch_size, config.epochs))]


@register_training(
    "skp",
    summary="an encoder pretrained on a graph's text: it predicts masked words and tells a text from others",
    stages=(STAGE,),
    config=SkpTrainingConfig,
    paper="Dong et al. 2023, Bridging the KB-Text Gap: Leveraging Structured Knowledge-aware Pre-training for KBQA",
    presets={"minilm": {"base": "minilm"}},
    work=_work,
    needs=lambda config: Needs((Checkpoint(config.base, config.revision),)),
)
class SkpTraining(OneStageTraining):
    """Pretraining of SKP."""

    stage = STAGE

    def load(self) -> tuple[PretrainingGraph, Sequence[str]]:
        graph = load_graph(self.config.graph, self.config.graph_options, allow_test=self.config.allow_test)
        return graph, graph.fingerprints

    def begin(self, data: PretrainingGraph, context: TrainingContext, process: Any, identity: str) -> PreparedRun:
        return SkpRun(self.config, data, context, process).prepared(identity)


class SkpRun:
    """One run of SKP's pretraining."""

    def __init__(self, config: SkpTrainingConfig, graph: PretrainingGraph, context: TrainingContext, process: Any) -> None:
        self.config, self.graph, self.context, self.process = config, graph, context, process
        self.encoder = self._encoder()
        self.model = masked_language_model(config, str(process.device))
        texts = unit_texts(graph, config.unit, config.linearize, SUBGRAPH_TRIPLES)
        self.texts = tokenized(texts, self.encoder.tokenizer, config.length)
        self.rows = np.flatnonzero(self.texts.counts)
        if not len(self.rows):
            raise UserError(
                "no triple of the graph has a word that could be masked", code="no-word-to-hide", where="graph", try_this="other data"
            )
        self.objective = SkpObjective(self.model, config.vector, config.contrastive_weight, config.temperature, config.part, process)
        self._hidden = lru_cache(1)(self._hidden_in)

    def _encoder(self) -> Any:
        """Return the encoder for the checkpoint, with the first token's state as vector."""
        import torch

        config = self.config
        # Masked language models come without BERT's pooler, which nothing here reads but which is saved, too.
        torch.manual_seed(config.seed)
        options = EncoderConfig.model_validate({"pooling": "cls", "max_length": config.length})
        with loading("masked language model", config.base), without_load_report():
            encoder = sentence_transformer(options, config.base, config.revision, str(self.process.device))
            if encoder.tokenizer.mask_token_id is None:
                raise ValueError("its tokenizer has no mask token")
        return encoder

    def prepared(self, identity: str) -> PreparedRun:
        """Build the training loop, ready to run."""
        config = self.config
        place, schedule = LoopPlace.of(self.context, identity, self.process), Schedule(config.learning_rate)
        rows = self._order_of, len(self.rows)
        loop = loop_over_rows("skp", {"model": self.model}, config, *rows, self._step, place, schedule=schedule)
        figures = {
            "triples": float(len(self.graph)),
            "texts": float(len(self.rows)),
            "texts_left_out": float(len(self.texts) - len(self.rows)),
        }
        return PreparedRun(loop, self._save, figures)

    def _step(self, rows: NDArray[np.int64], epoch: int, number: int) -> Figures:
        # Sort by length, because a batch may be computed in parts, and each part is padded to its longest text.
        rows = rows[np.argsort(np.diff(self.texts.offsets)[rows], kind="stable")]
        batch = masked(self.texts, rows, self._hidden(epoch if self.config.redraw else 0))
        return self.objective.backward(batch, (self.config.seed, "skp", number))

    def _order_of(self, epoch: int) -> NDArray[np.int64]:
        seed = int(fingerprint("skp-order", self.config.seed, epoch), 16)
        return self.rows[np.argsort(np.random.default_rng(seed).random(len(self.rows)), kind="stable")]

    def _hidden_in(self, epoch: int) -> NDArray[np.int64]:
        return hidden_words(self.texts, self.config.seed, epoch)

    def _save(self, folder: Path, figures: Figures) -> None:
        """Write the encoder as a `SentenceTransformer` with first-token pooling."""
        result = self.encoder[0].auto_model.load_state_dict(self.model.base_model.state_dict(), strict=False)
        assert not result.unexpected_keys
        self.encoder.prompts = {"query": "", "document": ""}
        self.encoder.save_pretrained(str(folder), create_model_card=False)
        write_card(folder, self.config, self.graph.references, self.graph.test, figures)


def masked_language_model(config: SkpTrainingConfig, device: str) -> Any:
    """Load the base as a masked language model; a missing output layer is initialized from its embeddings.

    Raises:
        UserError: The base cannot be loaded, or has no encoder weights.
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
