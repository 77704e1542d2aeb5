"""`ragmeter train gpr`: from a graph to two towers, by questions about its triples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.fingerprint import file_sha256, fingerprint
from methods.gpr.card import write_card
from methods.gpr.checkpoint import QUESTION, TRIPLE
from methods.gpr.config import PRESETS, GprTrainingConfig
from methods.gpr.masked import QuestionGenerator
from methods.gpr.questions import QuestionSet, generator_of, questions_of
from methods.gpr.rows import Material
from methods.gpr.towers import Towers
from methods.gpr.trainer import GprTrainer
from methods.gpr.validation import validator
from methods.knowledge.pretraining import PretrainingGraph, load_graph
from methods.one_stage import Begun, train_stage
from methods.torch_loop import accelerator
from methods.training import TrainedStage, Workshop, register_training

STAGE = "towers"


@register_training(
    "gpr",
    summary="two towers pretrained on a graph: triples near the questions about them, neighbours next, others far",
    stages=(STAGE,),
    config=GprTrainingConfig,
    paper="Wang et al. 2025, GPR: Empowering Generation with Graph-Pretrained Retriever",
    presets=PRESETS,
)
class GprTraining:
    """The pretraining.

    Args:
        config: Options.
        generator: Who writes questions, in place of the one that the options name.
    """

    def __init__(self, config: GprTrainingConfig, generator: QuestionGenerator | None = None) -> None:
        self.config, self._generator = config, generator

    def run(self, workshop: Workshop) -> Iterator[TrainedStage]:
        """Write questions and train.

        Raises:
            UserError: The graph may not be trained on, or the folders hold other work.
            Broke: The model that writes questions cannot be used.
        """
        config = self.config
        graph = load_graph(config.graph, config.graph_options, allow_test=config.allow_test)
        process = accelerator(config.train.precision, workshop.services.device)
        models = [(one.model, one.revision) for one in (config.question_encoder, config.triple_encoder)]
        yield from train_stage(
            STAGE,
            config,
            models[0],
            graph.fingerprints,
            workshop,
            process,
            lambda identity: self._begun(graph, workshop, process, identity),
            others=models[1:] if config.triple_base is not None else (),
            inputs=_files(config),
        )

    def _begun(self, graph: PretrainingGraph, workshop: Workshop, process: Any, identity: str) -> Begun:
        config = self.config
        # The others find in its file what the main process was told.
        with process.main_process_first():
            questions = self._questions(graph, workshop)
        material = Material(graph, questions, config)
        towers = Towers.load(config, str(process.device), process)
        same = fingerprint(identity, graph.fingerprint, questions.texts, questions.triples.tolist())
        trainer = GprTrainer(
            towers, material, config, workshop.work / "train", same, workshop.progress, validator(config, towers, material)
        )

        def save(folder: Path, figures: Mapping[str, float]) -> None:
            towers.save(folder / QUESTION, folder / TRIPLE)
            write_card(folder, config, questions.generator, graph.test, figures)

        figures = {
            "triples": float(len(graph)),
            "questions": float(len(questions)),
            "rows": float(len(material)),
            "questions_without_neighbour": float(material.dropped),
        }
        return Begun(trainer.loop, save, figures)

    def _questions(self, graph: PretrainingGraph, workshop: Workshop) -> QuestionSet:
        generator = self._generator or generator_of(self.config.questions, workshop.services)
        return questions_of(
            graph, self.config.questions, generator, workshop.work / "questions.jsonl", seed=self.config.seed, progress=workshop.progress
        )


def _files(config: GprTrainingConfig) -> list[str]:
    """Hashes of the files that options name."""
    questions = config.questions
    named = [questions.path if questions.generator == "cache" else None, questions.prompt]
    return [file_sha256(Path(one).expanduser()) for one in named if one is not None]
