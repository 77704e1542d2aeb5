"""Register GPR's retriever: triples ranked by two encoders that `ragmeter train gpr` pretrained."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from methods.api import Services
from methods.gpr.train import QUESTION, TRIPLE
from methods.models.encoder_config import EncoderConfig
from methods.models.weights import files_of
from methods.registry import register
from methods.retrieval.triples import PretrainedTowersConfig, TripleRetriever, open_towers, triples_work


class GprConfig(PretrainedTowersConfig):
    """Options of GPR; pooling and length are those saved with the checkpoint."""

    trained_by = "gpr"
    model: str = Field(description="folder of a checkpoint that `ragmeter train gpr` made")

    @property
    def encoder(self) -> EncoderConfig:
        # A checkpoint that is still to be trained is planned by its folder.
        folder = files_of(self.model, None) or Path(self.model)
        return self.towers(model=str(folder / TRIPLE), query_model=str(folder / QUESTION))


@register(
    "gpr",
    kind="retriever",
    summary="two towers pretrained on a graph: rank a question's triple before its neighbors, and those before the rest",
    paper="Wang et al. 2025, GPR: Empowering Generation with Graph-Pretrained Retriever",
    work=triples_work,
)
class Gpr(TripleRetriever):
    """Retriever role: ranks triples with a GPR checkpoint.

    Args:
        config: Options with the checkpoint and search settings.
        services: Services; device and embedding cache are used.
    """

    def __init__(self, config: GprConfig, services: Services) -> None:
        super().__init__(*open_towers(config, services))
