"""Train GPR (`ragmeter train gpr`): two encoders, from a graph and questions about its triples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import file_sha256, fingerprint
from benchmarks.graphs import TripleCorpus
from benchmarks.read_questions import note
from benchmarks.registry import Benchmark, load, resolve
from benchmarks.schema import Question
from benchmarks.sources import data_path
from methods.gpr.config import PRESETS, STAGE, GprTrainingConfig
from methods.gpr.data import Material, Rows, Texts
from methods.gpr.loss import Cosines, cosines, row_losses
from methods.gpr.masked import QuestionGenerator
from methods.gpr.planning import needs, work_of
from methods.gpr.questions import FROM_FILE, QuestionSet, generator_of, questions_of
from methods.graphs.triples import PretrainingGraph, linearize, linearized, load_graph
from methods.models.checks import cut_texts
from methods.models.pretrained import device_of
from methods.models.towers import Vectors, sentence_transformer
from methods.retrieval.ranking import Rows as Numbers
from methods.retrieval.ranking import best_rows
from methods.training import TrainingContext, register_training
from methods.training.loop import Loop, LoopPlace, Validate, loop_options
from methods.training.model_card import PATH, ModelKind, seen_test_graphs, write_model_card
from methods.training.parts import MicroBatch, over_parts
from methods.training.ranks import backward, first
from methods.training.stages import OneStageTraining, PreparedRun, read_json, write_json

if TYPE_CHECKING:
    from torch import Tensor

TOWERS = ModelKind(
    "sentence-transformers",
    "sentence-similarity",
    ("sentence-transformers", "feature-extraction", "retrieval", "knowledge-graph"),
    f"""from sentence_transformers import SentenceTransformer

questions, triples = (SentenceTransformer(f"{PATH}/{{name}}") for name in ("question", "triple"))
scores = triples.similarity(questions.encode(["what does jamaican people speak?"]), triples.encode([EXAMPLE]))""",
)
EXAMPLE = ("Jamaica", "location.country.languages_spoken", "Jamaican English")


def write_card(folder: Path, config: GprTrainingConfig, generator: str, test: tuple[str, ...], figures: Mapping[str, float]) -> None:
    """Write the model card.

    Args:
        folder: Checkpoint folder.
        config: All options.
        generator: Identity of the question generator.
        test: References of test graphs in the training data.
        figures: Final metrics.
    """
    example = linearize(EXAMPLE, config.linearize.rel, config.linearize.underscores)
    write_model_card(
        folder,
        replace(TOWERS, usage=TOWERS.usage.replace("EXAMPLE", repr(example))),
        "Two towers pretrained on a graph with GPR",
        "GPR (graph pretrained retriever) asks a question about every triple of a graph, with one of its entities hidden. It learns that "
        "the triple is nearer to its question than triples that share an entity with it, and those nearer than triples that share none. "
        f"`{generator}` wrote the questions; no question of a dataset was read.{seen_test_graphs(test)}\n\nTriples are written as in the "
        f"example. Questions and triples are cut after {config.max_length} tokens. Similarity is the cosine.",
        base=[config.base],
        data=config.graph,
        seed=config.seed,
        facts={
            "margins": f"{config.loss.g1:g}, {config.loss.g2:g}",
            "rows per batch": config.train.batch_size,
            "pooling": config.pooling,
            **{f"without {name} (ablation)": "yes" for name in ("neighbors", "negatives") if not getattr(config.loss, name)},
            **figures,
        },
    )


QUESTION, TRIPLE = "question", "triple"
"""Subfolders of the two encoders."""


Side = Literal["question", "triple"]
VALIDATED = 200
"""Maximum questions per validation benchmark."""
ENCODED = 256
"""Batch size for encoding without gradient."""


class Towers:
    """The question encoder and the triple encoder.

    Args:
        question, triple: `SentenceTransformer`s, in float32.
        accelerator: `accelerate` process for mixed precision; None for the models' precision.
    """

    def __init__(self, question: Any, triple: Any, accelerator: Any = None) -> None:
        self.modules: Mapping[str, Any] = {"question": question, "triple": triple}
        self.accelerator = accelerator

    @classmethod
    def load(cls, config: GprTrainingConfig, device: str | None, accelerator: Any = None) -> Towers:
        """Load both encoders with their initial weights, as separate copies of the base.

        Raises:
            UserError: An encoder cannot be loaded.
        """
        chosen = device_of(device)
        encoder = config.encoder
        question, triple = (sentence_transformer(encoder, encoder.model, encoder.revision, chosen) for _ in range(2))
        return cls(question, triple, accelerator)

    def vectors(self, side: Side, texts: Sequence[str], seed: Sequence[str | int]) -> Tensor:
        """Encode texts with gradient: float32 tensor of shape (texts, dimension).

        Args:
            side: Which encoder.
            texts: Distinct texts.
            seed: Seed parts for dropout.
        """
        import torch

        model = self.modules[side]
        features = model.preprocess(list(texts))
        features = {name: value.to(model.device) if hasattr(value, "to") else value for name, value in features.items()}
        torch.manual_seed(int(fingerprint(side, *seed), 16) % 2**63)
        if self.accelerator is None:
            return model(features)["sentence_embedding"].float()
        with self.accelerator.autocast():
            return model(features)["sentence_embedding"].float()

    def encoded(self, side: Side, texts: Sequence[str]) -> Vectors:
        """Encode texts as unit vectors without gradient: shape (texts, dimension)."""
        results: NDArray[np.float32] = self.modules[side].encode(
            list(texts), batch_size=ENCODED, normalize_embeddings=True, show_progress_bar=False
        )
        return results

    def save(self, question: Path, triple: Path) -> None:
        """Write each tower as a `SentenceTransformer` folder."""
        for model, folder in zip(self.modules.values(), (question, triple), strict=True):
            model.prompts = {"query": "", "document": ""}
            model.save_pretrained(str(folder), create_model_card=False)


class GprTrainer:
    """Training loop of both encoders.

    Args:
        towers: The encoders with their initial weights.
        material: Training data.
        config: All options.
        place: Working folder and process of the loop.
    """

    def __init__(self, towers: Towers, material: Material, config: GprTrainingConfig, place: LoopPlace) -> None:
        self.towers, self.material, self.config = towers, material, config
        self._epoch = -(-len(material) // config.train.batch_size)
        self._micro = MicroBatch(config.train.micro_batch, "train.micro_batch")
        self.loop = Loop(towers.modules, loop_options(config.train, self._epoch), self._step, place, "gpr", self._micro)

    def _step(self, step: int) -> dict[str, float]:
        """Compute the gradient of one batch; each process handles its own parts."""
        epoch, position = divmod(step, self._epoch)
        size = self.config.train.batch_size
        batch = self.material.rows(epoch).take(slice(position * size, (position + 1) * size))

        sums = over_parts(batch.parts(self._micro.size), partial(self._part, step, len(batch)), self.towers.accelerator)
        return {name: value / len(batch) for name, value in sums.items()}

    def _part(self, step: int, rows: int, number: int, part: Rows) -> dict[str, float]:
        """Compute the gradient of a part, and return the summed loss and the number of ordered rows."""
        result = cosines_of(self.towers, self.material.texts(part), (self.config.seed, step, number))
        loss = row_losses(result, self.config.loss).sum()
        backward(loss / rows, self.towers.accelerator)
        return {"loss": float(loss.detach()), "ordered": float(result.ordered().sum())}


def cosines_of(towers: Towers, texts: Texts, seed: tuple[int, ...]) -> Cosines:
    """Compute the cosines of some rows with gradient; every distinct text is encoded once."""
    import torch

    query = towers.vectors("question", texts.questions, seed)
    triples = towers.vectors("triple", texts.triples, seed)

    def at(vectors: Tensor, positions: NDArray[np.int64]) -> Tensor:
        return vectors[torch.from_numpy(positions).to(vectors.device)]

    return cosines(at(query, texts.question), at(triples, texts.anchor), at(triples, texts.neighbor), at(triples, texts.negative))


def held_out(config: GprTrainingConfig) -> list[_Graphs]:
    """Load the validation graphs with their questions.

    Raises:
        UserError: No question has an answer in its graph.
    """
    graphs = [_Graphs(load(item, _options(item, config)), config) for item in config.validation]
    if graphs and not any(graph.questions for graph in graphs):
        raise UserError(
            "no validation question has an answer in its graph, so there is no recall",
            code="no-validation-answer",
            where="validation",
            try_this="data of graph QA with its graphs, or none",
        )
    return graphs


def validator(config: GprTrainingConfig, towers: Towers, material: Material, graphs: Sequence[_Graphs]) -> Validate | None:
    """Build the function that validates after each epoch; None without validation data."""
    rows = material.held_out()
    if not len(rows) and not graphs:
        return None

    def validate() -> Mapping[str, float]:
        figures = _of_rows(config, towers, material) if len(rows) else {}
        if graphs:
            recalls = [recall for graph in graphs for recall in graph.recalls(towers)]
            figures[f"validation_answer_recall@{config.validate_on.k}"] = float(np.mean(recalls))
        return figures

    return validate


def _options(reference: str, config: GprTrainingConfig) -> dict[str, Any]:
    return config.validation_options.get(resolve(reference)[0].name, {})


def _of_rows(config: GprTrainingConfig, towers: Towers, material: Material) -> dict[str, float]:
    """Return the loss of held-out rows, and the fraction with ordered cosines."""
    import torch

    texts = material.texts(material.held_out())
    query, triples = towers.encoded("question", texts.questions), towers.encoded("triple", texts.triples)
    columns = (texts.anchor, texts.neighbor, texts.negative)
    result = Cosines(*(torch.from_numpy((query[texts.question] * triples[column]).sum(1)) for column in columns))
    return {"validation_loss": float(row_losses(result, config.loss).mean()), "validation_ordered": float(result.ordered().float().mean())}


class _Graphs:
    """Questions with graphs that contain their answers.

    Raises:
        UserError: The benchmark has no graphs.
    """

    def __init__(self, benchmark: Benchmark, config: GprTrainingConfig) -> None:
        corpus = benchmark.corpus
        if not isinstance(corpus, TripleCorpus):
            raise UserError(
                f"{benchmark.reference} has no graphs",
                code="no-graphs",
                where="validation",
                try_this="data of graph QA with its graphs: webqsp, cwq (layout rog), worlds/graph",
            )
        self._corpus, self._k, self._linearize = corpus, config.validate_on.k, config.linearize
        self._names = [name.casefold() for name in corpus.triples.entities.to_pylist()]
        questions = benchmark.questions[:VALIDATED]
        results = [(question.text, rows := self._rows_of(question), self._answers(question, rows)) for question in questions]
        self.questions = [item for item in results if item[2]]
        self.without_answer = len(results) - len(self.questions)

    def _rows_of(self, question: Question) -> Numbers:
        if question.candidates is None:
            return np.arange(len(self._corpus))
        return self._corpus.rows_of(question.candidates).astype(np.int64)

    def _answers(self, question: Question, rows: Numbers) -> set[int]:
        """Return the entity numbers in the question's graph that are answers."""
        answers = {answer.casefold() for answer in question.answers}
        return {number for number in self._entities(rows) if self._names[number] in answers}

    def _entities(self, rows: Numbers) -> set[int]:
        part = self._corpus.triples.table[rows]
        return {*part["head"].tolist(), *part["tail"].tolist()}

    def recalls(self, towers: Towers) -> list[float]:
        """Compute per question the fraction of its graph's answers in the top triples."""
        if not self.questions:
            return []
        needed = np.unique(np.concatenate([rows for _, rows, _ in self.questions]))
        triples = towers.encoded("triple", linearized(self._corpus.triples, needed, self._linearize))
        questions = towers.encoded("question", [text for text, _, _ in self.questions])
        recalls = []
        for query, (_, rows, answers) in zip(questions, self.questions, strict=True):
            best = best_rows(_products(triples, query, np.searchsorted(needed, rows)), self._k)
            recalls.append(len(answers & self._entities(rows[best])) / len(answers))
        return recalls


def _products(triples: NDArray[np.float32], queries: NDArray[np.float32], rows: Numbers) -> NDArray[np.float32]:
    return triples[rows] @ queries


@register_training(
    "gpr",
    summary="two towers pretrained on a graph: triples near the questions about them, neighbors next, others far",
    stages=(STAGE,),
    paper="Wang et al. 2025, GPR: Empowering Generation with Graph-Pretrained Retriever",
    presets=PRESETS,
    work=work_of,
    needs=needs,
    version=2,
)
class GprTraining(OneStageTraining):
    """Pretraining of GPR.

    Args:
        config: Options.
        generator: Question generator that replaces the configured one.
    """

    stage = STAGE

    def __init__(self, config: GprTrainingConfig, generator: QuestionGenerator | None = None) -> None:
        super().__init__(config)
        self._generator = generator

    def load(self) -> tuple[PretrainingGraph, Sequence[str]]:
        graph = load_graph(self.config.graph, self.config.graph_options, allow_test=self.config.allow_test)
        return graph, graph.fingerprints

    def bases(self) -> Sequence[tuple[str, str | None]]:
        return [(self.config.encoder.model, self.config.revision)]

    def inputs(self, data: PretrainingGraph) -> Sequence[str]:
        questions = self.config.questions
        named = [questions.path if questions.generator in FROM_FILE else None, questions.prompt]
        return [file_sha256(data_path(item)) for item in named if item is not None]

    def begin(self, data: PretrainingGraph, context: TrainingContext, process: Any, identity: str) -> PreparedRun:
        config = self.config
        # The other processes read from its file what the main process generated.
        with first(process):
            questions = self._questions(data, context, identity)
        material = Material(data, questions, config)
        towers = Towers.load(config, str(process.device), process)
        same = fingerprint(identity, data.fingerprint, questions.texts, questions.triples.tolist())
        graphs = held_out(config)
        place = LoopPlace.of(context, same, process, validator(config, towers, material, graphs))
        trainer = GprTrainer(towers, material, config, place)

        def save(folder: Path, figures: Mapping[str, float]) -> None:
            towers.save(folder / QUESTION, folder / TRIPLE)
            write_card(folder, config, questions.generator, data.test, figures)

        figures = {"triples": len(data), "questions": len(questions), "rows": len(material), "questions_without_neighbor": material.dropped}
        left_out = {
            "triples_unnamed": questions.counts["unnamed"],
            "questions_left_out": questions.counts["left_out"],
            "questions_unmatched": questions.counts.get("unmatched", 0),
            "queries_cut": cut_texts(towers.modules["question"], questions.texts),
            "triples_cut": cut_texts(towers.modules["triple"], material.anchors()),
            "validation_without_answer": sum(graph.without_answer for graph in graphs),
        }
        figures |= {name: count for name, count in left_out.items() if count}
        return PreparedRun(trainer.loop, save, {name: float(count) for name, count in figures.items()})

    def _benchmarks(self) -> list[Benchmark]:
        """Load the benchmarks of the graph, with their questions."""
        return [load(item, self.config.graph_options.get(resolve(item)[0].name, {})) for item in self.config.graph]

    def _questions(self, graph: PretrainingGraph, context: TrainingContext, identity: str) -> QuestionSet:
        """Return the training's questions, shared by all processes and later runs.

        Failed questions are only retried while the training is being prepared, before its first step.
        """
        chosen, again = context.work / "questions.json", context.prepares and not (context.work / "train").exists()
        asks = again or not chosen.exists() or read_json(chosen) != identity
        result = questions_of(
            graph,
            self.config.questions,
            self._generator or generator_of(self.config.questions, context.services, self._benchmarks),
            context.work / "questions.jsonl",
            seed=self.config.seed,
            progress=context.progress,
            asks=asks,
        )
        if asks:
            write_json(chosen, identity)
        note(result.texts)
        return result
