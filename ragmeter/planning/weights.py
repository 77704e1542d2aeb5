"""Which model a name or a checkpoint stands for; checkpoints still to be trained are as large as their bases."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.errors import UserError
from methods.ark.config import ArkTrainingConfig
from methods.baselines.graph.cross_encoder_training import GraphCrossEncoderTrainingConfig
from methods.baselines.graph.skp_training import SkpTrainingConfig
from methods.clara.checkpoint import read_config, require_checkpoint
from methods.clara.config import ClaraConfig
from methods.clara.training_config import ClaraTrainingConfig
from methods.gpr.config import GprTrainingConfig
from methods.sark.config import SarkTrainingConfig
from methods.training import TrainingConfig
from ragmeter.sizing.sizes import ModelSize, size_of
from ragmeter.trainings import TrainingPlan


class Weights:
    """Sizes of models, those of an experiment's trainings among them.

    Args:
        trainings: Of the experiment.
        store: Folder in which their checkpoints lie.
    """

    def __init__(self, trainings: Iterable[TrainingPlan], store: Path) -> None:
        self._homes = {plan.folder(store).absolute(): plan for plan in trainings}
        self._trainings: dict[str, TrainingPlan | None] = {}
        self._sizes: dict[tuple[str, str | None], ModelSize] = {}

    def training(self, model: str) -> TrainingPlan | None:
        """The training whose checkpoint a folder is, or will be; None: of none."""
        if model not in self._trainings:
            path = Path(model).expanduser().absolute()
            # A stage's folder, or a tower's in it.
            homes = (self._homes.get(one) for one in (path, *path.parents[:2]))
            self._trainings[model] = next(filter(None, homes), None)
        return self._trainings[model]

    def size(self, model: str, revision: str | None = None) -> ModelSize:
        """The size of a model: of a checkpoint that of its base."""
        key = (model, revision)
        if key not in self._sizes:
            self._sizes[key] = self._size(model, revision)
        return self._sizes[key]

    def _size(self, model: str, revision: str | None) -> ModelSize:
        plan = self.training(model)
        if plan is not None:
            base = self.base(plan.config)
            return ModelSize(model) if base is None else self.size(*base)
        clara = self._read(model)
        if clara is not None:
            return size_of(clara.base, clara.revision)
        # GPR's towers lie one beside the other.
        question = Path(model).expanduser() / "question"
        return size_of(str(question) if question.is_dir() else model, revision)

    def clara(self, model: str) -> ClaraConfig | None:
        """The options of a checkpoint of CLaRa; None where it is none of this experiment and not here."""
        plan = self.training(model)
        if plan is None or not isinstance(plan.config, ClaraTrainingConfig):
            return self._read(model)
        return self.clara_model(plan.config)

    def clara_model(self, config: ClaraTrainingConfig) -> ClaraConfig:
        """The model that a training of CLaRa is of: that of the checkpoint that it begins from, if it does not say."""
        if config.start is None or "model" in config.model_fields_set:
            return config.model
        return self.clara(config.start) or config.model

    def base(self, config: TrainingConfig) -> tuple[str, str | None] | None:
        """What a training begins from, and its revision; None where it is not known."""
        match config:
            case ArkTrainingConfig():
                return config.encoder.model, config.encoder.revision
            case GprTrainingConfig():
                return config.question_encoder.model, config.revision
            case ClaraTrainingConfig():
                model = self.clara_model(config)
                return model.base, model.revision
            case SarkTrainingConfig() | SkpTrainingConfig() | GraphCrossEncoderTrainingConfig():
                return config.base, config.revision
        return None

    def _read(self, model: str) -> ClaraConfig | None:
        try:
            return read_config(require_checkpoint(model, where="model"))[0]
        except UserError:
            return None
