"""GPR in a pipeline: triples ranked by two towers that `ragmeter train gpr` pretrained."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from methods.api import Services
from methods.gpr.train import QUESTION, TRIPLE
from methods.graphs.triples import LinearizeConfig
from methods.models.encoder import Encoder, EncoderConfig
from methods.models.weights import files_of
from methods.registry import register
from methods.retrieval.triples import TripleRetriever, TripleSearchConfig, linearize_of, require_checkpoint, triples_work


class GprConfig(TripleSearchConfig):
    """Options of GPR; pooling and length are those that the checkpoint was saved with."""

    model: str = Field(description="folder of a checkpoint that `ragmeter train gpr` made")
    linearize: LinearizeConfig | None = Field(None, description="how triples are written; null: as they were in pretraining")

    @property
    def encoder(self) -> EncoderConfig:
        """The two towers as one encoder: questions are its queries, triples its passages."""
        # A checkpoint that is still to be trained is planned by its folder.
        folder = files_of(self.model, None) or Path(self.model)
        options = {
            "model": str(folder / TRIPLE),
            "query_model": str(folder / QUESTION),
            "query_prompt": "",
            "passage_prompt": "",
            "normalize": self.similarity == "cosine",
            "batch_size": self.batch_size,
            "dtype": self.dtype,
        }
        return EncoderConfig.model_validate(options)

    def preflight(self) -> None:
        """Check that the model is a checkpoint of GPR."""
        require_checkpoint(self.model, "gpr", where="gpr, option model")


@register(
    "gpr",
    kind="retriever",
    summary="two towers pretrained on a graph: a question's triple before its neighbors, and those before the rest",
    config=GprConfig,
    paper="Wang et al. 2025, GPR: Empowering Generation with Graph-Pretrained Retriever",
    work=triples_work,
)
class Gpr(TripleRetriever):
    """Retriever of a pretrained checkpoint.

    Args:
        config: The checkpoint, and how to search.
        services: Provides the device, and a folder where vectors are kept.
    """

    def __init__(self, config: GprConfig, services: Services) -> None:
        encoder = Encoder(config.encoder, services.device, services.folder("embeddings"))
        super().__init__(encoder, config.linearize or linearize_of(config.model), config.scope)
