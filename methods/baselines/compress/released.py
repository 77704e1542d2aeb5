"""Use published soft compressors in an experiment: `trainings: [{id: compressor_released, config: {preset: pisco}}]`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from methods.baselines.compress.soft import MISTRAL, System, system_of
from methods.training import register_training
from methods.training.importing import STAGE, Conversion, ReleasedConfig, needs, work

PRESETS = {
    "autocompressor": {"layout": "autocompressor", "source": "princeton-nlp/AutoCompressor-Llama-2-7b-6k"},
    "xrag": {"layout": "xrag", "source": "Hannibal046/xrag-7b", "base": MISTRAL},
    "cocom": {"layout": "cocom", "source": "naver/cocom-v1-16-mistral-7b", "base": MISTRAL},
    "pcc": {"layout": "pcc", "source": "BroAlanTaps/Stage2-PCC-Lite-16x"},
    "pisco": {"layout": "pisco", "source": "naver/pisco-mistral", "base": MISTRAL},
    "oscar": {"layout": "oscar", "source": "naver/oscar-mistral-7B", "base": MISTRAL},
}


class CompressorReleasedConfig(ReleasedConfig):
    """Options that select a published checkpoint."""

    whole: ClassVar[frozenset[str]] = frozenset({"autocompressor", "oscar", "pcc"})

    layout: Literal["autocompressor", "xrag", "cocom", "pcc", "pisco", "oscar"] = Field(description="system that the checkpoint belongs to")

    @property
    def kind(self) -> str:
        return self.layout

    @property
    def system(self) -> System:
        """Return the system for planning; before the download, it has the configured options over the defaults."""
        return system_of(self.layout, {**({"base": self.base} if self.base else {}), **self.options})


@register_training(
    "compressor_released",
    summary="a compressor into vectors as its authors published it, converted",
    stages=(STAGE,),
    presets=PRESETS,
    work=work,
    needs=needs,
)
def compressor_released(config: CompressorReleasedConfig) -> Conversion:
    """Build the "training" that downloads and converts a published checkpoint."""
    return Conversion(config)
