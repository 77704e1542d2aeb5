"""The models and retrievers that the options of parts name.

Parts are known by their options: whoever brings an encoder's, a cross-encoder's or a language model's is seen without
another word, plug-ins included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from methods.baselines.graph.towers import TripleSearchConfig
from methods.baselines.hybrid import Part
from methods.baselines.hyde import HydeConfig
from methods.models.encoder import EncoderConfig
from methods.models.late_interaction import LateInteractionConfig
from methods.models.sparse_multivector import M3Config
from methods.registry import Component, MethodConfig


def retrievers_in(config: MethodConfig) -> Iterator[Component]:
    """The retrievers that options name."""
    if isinstance(config, HydeConfig):
        yield config.retriever
        return
    for name in type(config).model_fields:
        value = getattr(config, name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Part):
                yield one.component


def encoder_of(config: MethodConfig) -> EncoderConfig | M3Config | LateInteractionConfig:
    """The encoder that options describe."""
    if isinstance(config, EncoderConfig | M3Config | LateInteractionConfig):
        return config
    found = getattr(config, "encoder", None)
    assert isinstance(found, EncoderConfig)
    return found


def models_in(components: Sequence[Component]) -> Iterator[tuple[str, str | None]]:
    """The local models that parts name, with their revisions."""
    for component in components:
        config = component.config
        yield from models_in(list(retrievers_in(config)))
        if isinstance(config, TripleSearchConfig):
            yield encoder_of(config).model, getattr(encoder_of(config), "revision", None)
        elif not hasattr(config, "base_url") and isinstance(getattr(config, "model", None), str):
            yield str(getattr(config, "model", "")), getattr(config, "revision", None)
        if isinstance(query := getattr(config, "query_model", None), str):
            yield query, getattr(config, "query_revision", None)
