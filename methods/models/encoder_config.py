"""Options of an encoder."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.models import FrozenModel
from methods.models.checks import own_prompts
from methods.models.encoder_presets import PRESETS
from methods.models.plain_encoder import passage_prompt
from methods.models.weights import MINILM, loaded_folder, locate, weights_hash

Side = Literal["query", "passage"]
OPTIMUM = {"onnx": "optimum.onnxruntime", "openvino": "optimum.intel"}
"""The module that each backend of `sentence-transformers` other than torch needs."""
_SUPPORT = {
    "onnx": (
        "optimum-onnx, up to its newest release 0.1.0, needs transformers below 4.58",
        "backend: torch with dtype: bfloat16, or backend: openvino",
    ),
    "openvino": (
        "Optimum supports transformers up to 5.5",
        'pip install "sentence-transformers[openvino]" "transformers>=5,<5.6" in an environment of its own, or '
        "backend: torch with dtype: bfloat16",
    ),
}
"""Reasons and remedies for backends that are not installed."""


def _found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class EncoderConfig(FrozenModel):
    """Options of an encoder."""

    model: str = Field(default=MINILM, description="a folder or hub id of a SentenceTransformer; minilm: all-MiniLM-L6-v2")
    revision: str | None = Field(default=None, description="revision of a hub id")
    query_model: str | None = Field(default=None, description="separate model for queries")
    query_revision: str | None = Field(default=None, description="commit, tag or branch of query_model on the hub")
    architecture: Literal["sentence-transformer", "dpr"] = Field(
        default="sentence-transformer", description="dpr: the two encoders of DPR, which reads title and text as two segments"
    )
    query_prompt: str | None = Field(default=None, description="prefix of each query; null: the model's own, if it has one")
    passage_prompt: str | None = Field(default=None, description="prefix of each passage; null: the model's own")
    instruction: str | None = Field(default=None, description="text that replaces {instruction} in the prompts")
    query_task: str | None = Field(
        default=None, description='adapter for queries, for models that have several; "": explicitly none of them'
    )
    passage_task: str | None = Field(
        default=None, description='adapter for passages, for models that have several; "": explicitly none of them'
    )
    pooling: Literal["cls", "mean", "lasttoken"] | None = Field(
        default=None, description="pooling of token vectors: the first, their mean, the last; null: the model's own"
    )
    end_token: str | None = Field(default=None, description="token that every input must end with; checked when loading")
    normalize: bool = Field(default=True, description="scale vectors to length 1, so that scores are cosines")
    dimension: int | None = Field(
        default=None, ge=1, description="keep only the first components of the vectors, for models trained for it; null: all"
    )
    max_length: int | None = Field(default=None, ge=8, description="longest text in the model's tokens; null: the model's own")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(default="float32", description="dtype of the weights")
    backend: Literal["torch", "onnx", "openvino", "static"] = Field(
        default="torch",
        description="backend; openvino needs transformers before 5.6, onnx before 5; static: a vector per token, "
        "distilled from the model once",
    )
    batch_size: int = Field(default=32, ge=1, description="texts encoded at once; at most 32 for queries")
    model_options: dict[str, Any] = Field(default_factory=dict, description="values that replace those of the model's config.json")
    trust_remote_code: bool = Field(default=False, description="run code contained in the model's repository")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.backend in OPTIMUM and self.dtype != "float32":
            raise ValueError(f"backend {self.backend} takes no dtype: the exported model has float32 weights")
        if self.backend != "torch" and self.architecture == "dpr":
            raise ValueError("architecture dpr has the backend torch only")
        if self.architecture == "dpr":
            if self.query_model is None:
                raise ValueError("architecture dpr needs query_model: its two encoders are two models")
            if self.pooling or self.query_task or self.passage_task or self.end_token or self.model_options:
                raise ValueError("architecture dpr takes no pooling, tasks, end_token or model_options")
        for prompt in (self.query_prompt, self.passage_prompt):
            if prompt and "{instruction}" in prompt and self.instruction is None:
                raise ValueError("a prompt holds {instruction}: set instruction")
        return self

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """Return the options of a published encoder.

        Args:
            name: A key of `encoder_presets.PRESETS`.
            changes: Options that override it.

        Raises:
            UserError: The preset does not exist.
        """
        if name not in PRESETS:
            raise unknown_name("encoder preset", name, PRESETS)
        return cls.model_validate({**PRESETS[name], **changes})

    def prompt(self, side: Side) -> str | None:
        """Return the prompt of queries or passages; None for the model's own."""
        prompt = self.query_prompt if side == "query" else self.passage_prompt
        return prompt if prompt is None or self.instruction is None else prompt.replace("{instruction}", self.instruction)

    def check_backend(self) -> None:
        """Check that the backend is installed.

        Raises:
            UserError: It is not installed.
        """
        if self.backend in OPTIMUM and not _found(OPTIMUM[self.backend]):
            reason, remedy = _SUPPORT[self.backend]
            raise UserError(
                f"backend {self.backend} needs {OPTIMUM[self.backend]}, which cannot be imported; {reason}",
                code="backend-not-installed",
                where="backend",
                try_this=remedy,
            )

    def late_prompt(self) -> str:
        """Return the model's own prompt of passages if earlier versions, like `encode_document`, did not find it; else ""."""
        prompts = own_prompts(loaded_folder(self.model, self.revision))
        return "" if prompts.get("document") or self.passage_prompt is not None else passage_prompt(prompts)

    def checkpoint_hash(self) -> str:
        """Return a hash of the weights that these options name; it has a suffix for models that may have such a prompt."""
        passages = weights_hash(self.model, self.revision)
        if self.passage_prompt is None and (not Path(locate(self.model)).is_dir() or self.late_prompt()):
            passages += "-p"
        if self.query_model is None:
            return passages
        return fingerprint(passages, weights_hash(self.query_model, self.query_revision))
