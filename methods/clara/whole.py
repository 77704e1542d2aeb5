"""CLaRa whole: a question's memory finds documents, and the same model answers from theirs."""

from __future__ import annotations

from pydantic import Field

from methods.api import Services
from methods.clara.checkpoint import read_config, require_checkpoint
from methods.clara.compressing import ClaraCompressor, ClaraCompressorConfig
from methods.clara.documents import DocumentOptions
from methods.clara.reader import ClaraReader, ClaraReaderConfig, WritingOptions
from methods.clara.retriever import ClaraRetriever, ClaraRetrieverConfig
from methods.clara.use import PAPER, CheckpointOptions
from methods.models.weights import weights_hash
from methods.pipeline import DEPTH, Pipeline
from methods.registry import register


class ClaraMethodConfig(ClaraRetrieverConfig, WritingOptions):
    """Options of the whole."""

    k: int | None = Field(None, ge=1, description="documents answered from; null: as the checkpoint was trained, 5")
    depth: int = Field(DEPTH, ge=1, description="length of the ranking that is kept and scored")


@register(
    "clara",
    kind="method",
    summary="finds and reads compressed documents with one model: from the whole corpus, or among candidates",
    config=ClaraMethodConfig,
    paper=PAPER,
    extra="models",
    checkpoint_hash=lambda config: weights_hash(config.model),
)
def clara(config: ClaraMethodConfig, services: Services) -> Pipeline:
    """The three parts on one model.

    Args:
        config: The checkpoint, and how much is read.
        services: Lends the device, and the folder of stores.
    """
    given = config.model_dump()

    def part(kind: type[CheckpointOptions]) -> dict[str, object]:
        return {name: value for name, value in given.items() if name in kind.model_fields}

    k = config.k or read_config(require_checkpoint(config.model, where="clara, option model"))[0].k
    return Pipeline(
        ClaraRetriever(ClaraRetrieverConfig.model_validate(part(ClaraRetrieverConfig)), services),
        ClaraReader(ClaraReaderConfig.model_validate(part(ClaraReaderConfig)), services),
        compressor=ClaraCompressor(ClaraCompressorConfig.model_validate(part(DocumentOptions)), services),
        k=k,
        depth=config.depth,
    )
