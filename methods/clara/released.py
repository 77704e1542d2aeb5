"""Use CLaRa's published checkpoints in an experiment: `trainings: [{id: clara_released, config: {source: …}}]`."""

from __future__ import annotations

from methods.clara.config import ClaraConfig
from methods.training import register_training
from methods.training.importing import STAGE, Conversion, ReleasedConfig, needs, work

HUB = "apple/CLaRa-7B-"


class ClaraReleasedConfig(ReleasedConfig):
    """Options that select a published checkpoint."""

    @property
    def kind(self) -> str:
        return "clara"

    @property
    def model(self) -> ClaraConfig:
        """Return the model options for planning; before the download, these are the configured options over the defaults."""
        return ClaraConfig.model_validate({**({"base": self.base} if self.base else {}), **self.options})


@register_training(
    "clara_released",
    summary="CLaRa as its authors published it, converted",
    stages=(STAGE,),
    paper="He et al. 2025, CLaRa: Bridging Retrieval and Generation with Continuous Latent Reasoning (arXiv 2511.18659)",
    presets={
        f"{name}-{rate}x": {
            "source": f"{HUB}{name.title() if name != 'e2e' else 'E2E'}",
            "subfolder": f"compression-{rate}",
            "base": "mistralai/Mistral-7B-Instruct-v0.2",
        }
        for name in ("base", "instruct", "e2e")
        for rate in (16, 128)
    },
    work=work,
    needs=needs,
)
def clara_released(config: ClaraReleasedConfig) -> Conversion:
    """Build the "training" that downloads and converts a published checkpoint."""
    return Conversion(config)
