"""Language models with beacon memory: a long text is read window by window, and only the keys and values of beacon tokens are
kept.

After every `ratio` tokens, a beacon token is inserted, with its own embedding and projections. When a window is full, the keys
and values of its beacons join the memory, and those of its text are dropped. Later tokens attend to the memory, whose beacons
have the first positions, and to the current window. Memory use is thus one window plus the beacons.

Source: Qian et al. 2024 (arXiv:2409.05591), whose training code gives the layout (`TommyChien/memorag-*`, of the classes Qwen2
and Mistral); Zhang et al. 2024, Activation Beacon (arXiv:2401.03462).
"""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.models import FrozenModel
from methods.models.causal import Generation, chat_text
from methods.models.complete import without_load_report
from methods.models.decoding import Decoder, end_tokens
from methods.models.loaded import KEPT
from methods.models.pretrained import device_of, load_pretrained, load_tokenizer
from methods.models.weights import files_of, weights_hash
from methods.prompts import Messages, encoded
from methods.training.released import released

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("qwen2", "mistral")
LAYOUT = {"beacon_pos": "interleave", "beacon_attn": "full-coverage", "beacon_sink_size": 0, "beacon_parallel_window": 1}
"""Supported checkpoint settings and their only supported values."""
AROUND = 1024
"""Tokens reserved for the text around a document: question, instructions and reply."""


class BeaconConfig(FrozenModel):
    """Options of a memory model."""

    batch_size: ClassVar[int] = 1

    model: str = Field("TommyChien/memorag-mistral-7b-inst", description="a folder or hub id of a language model with beacons")
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = Field(
        None, description="null: float32 on CPU, the checkpoint's own elsewhere"
    )
    ratio: int = Field(4, ge=1, description="tokens of the text per beacon; published 4")
    max_new_tokens: int = Field(128, ge=1, description="longest clue or draft; published 128")


def check_beacons(config: BeaconConfig) -> None:
    """Check the settings of a locally available checkpoint.

    Raises:
        UserError: The checkpoint is not a memory model, or has an unsupported layout.
    """
    folder = files_of(config.model, config.revision)
    if folder is not None and (folder / "config.json").is_file():
        checked_layout(json.loads((folder / "config.json").read_text("utf-8")), config.model)


def checked_layout(settings: Mapping[str, Any], where: str) -> None:
    """Check the settings of a checkpoint.

    Raises:
        UserError: The checkpoint is not a memory model, or has an unsupported layout.
    """
    read = ", ".join(f"{name}={value!r}" for name, value in LAYOUT.items())
    fault = None
    if "beacon_window" not in settings:
        fault = "config.json does not state beacon_window"
    elif settings.get("model_type") not in KINDS:
        fault = f"model_type={settings.get('model_type')!r}"
    elif settings.get("beacon_stride") != settings["beacon_window"]:
        fault = f"beacon_stride={settings.get('beacon_stride')!r} with beacon_window={settings['beacon_window']!r}"
    else:
        fault = next((f"{name}={settings[name]!r}" for name, value in LAYOUT.items() if settings.get(name, value) != value), None)
    if fault is not None:
        raise UserError(
            f"the memory model has an unsupported layout: {fault}",
            code="bad-beacon-layout",
            where=where,
            try_this=f"a checkpoint laid out as TommyChien/memorag-mistral-7b-inst: {', '.join(KINDS)}; {read}",
        )


@dataclass(frozen=True)
class BeaconMemory:
    """Memory of the tokens read so far; immutable, since reading further returns a new one.

    Attributes:
        keys, values: Keys and values of beacons in full windows by layer, [heads, beacons, size]; keys include positions.
        open_keys, open_values: Keys and values of the current window, including beacons; keys without positions.
        beacons: Whether each position of the current window is a beacon.
        since: Number of tokens since the last beacon.
        tokens: Total number of tokens read.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    open_keys: tuple[Tensor, ...]
    open_values: tuple[Tensor, ...]
    beacons: tuple[bool, ...] = ()
    since: int = 0
    tokens: int = 0

    @property
    def size(self) -> int:
        """Return the number of positions that later tokens attend to."""
        return int(self.keys[0].shape[1]) + len(self.beacons)

    @property
    def bytes(self) -> int:
        """Return the memory use in bytes."""
        tensors = (*self.keys, *self.values, *self.open_keys, *self.open_values)
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def to(self, device: str) -> BeaconMemory:
        """Return a copy on a device."""
        keys, values, open_keys, open_values = (
            tuple(tensor.to(device) for tensor in tensors) for tensors in (self.keys, self.values, self.open_keys, self.open_values)
        )
        return BeaconMemory(keys, values, open_keys, open_values, self.beacons, self.since, self.tokens)


_models: weakref.WeakValueDictionary[tuple[Any, ...], BeaconModel] = weakref.WeakValueDictionary()


class BeaconModel:
    """A loaded beacon model: reads texts into memory and continues conversations from it.

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.

    Raises:
        UserError: The checkpoint cannot be loaded, or lacks tensors that its configuration names.
    """

    def __init__(self, config: BeaconConfig, device: str | None = None) -> None:
        self.config = config
        self.device = device_of(device)
        check_beacons(config)
        loaded: list[Any] = []

        def load() -> Any:
            with without_load_report():  # the beacons' tensors, which are read below
                pair = load_pretrained(
                    "memory model", "AutoModelForCausalLM", config.model, config.revision, config.dtype, self.device, own=True
                )
            loaded.extend(pair)
            return with_beacons(loaded[1], config)

        key = "beacons", weights_hash(config.model, config.revision), config.dtype, self.device
        self.model = KEPT.get(key, self.device, load)
        self.tokenizer = loaded[0] if loaded else load_tokenizer(config.model, config.revision)
        settings = self.model.config
        self.window = int(settings.beacon_window)
        self.ends = end_tokens(self.model, self.tokenizer)
        self._text = Decoder(self.tokenizer)
        positions = int(settings.max_position_embeddings)
        self.room = (positions - self.window - self.window // config.ratio) * config.ratio - AROUND
        """Tokens of a text that can be read before positions run out."""

    def encode(self, messages: Messages) -> list[int]:
        """Return the token ids of a conversation, with the special tokens of its chat template."""
        return encoded(self.tokenizer, [chat_text(self.tokenizer, messages)])[0]

    def shortened(self, text: str, most: int) -> tuple[str, int]:
        """Remove the middle of a text if it is too long, and return the number of removed tokens.

        Args:
            text: The text.
            most: Maximum tokens; also limited by the model's context.
        """
        spans = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        most = min(most, self.room)
        if len(spans) <= most:
            return text, 0
        head, tail = spans[(most + 1) // 2 - 1][1], spans[len(spans) - most // 2][0]
        return f"{text[:head]}\n…\n{text[tail:]}", len(spans) - most

    def read(self, ids: Sequence[int], memory: BeaconMemory | None = None) -> BeaconMemory:
        """Read tokens into memory, after the given memory."""
        return self._read(ids, memory)[0]

    def write(self, memory: BeaconMemory, conversations: Sequence[Messages]) -> list[Generation]:
        """Continue conversations greedily, each after the memory, which is unchanged."""
        here = memory.to(self.device)
        return [self._written(here, messages) for messages in conversations]

    def _written(self, memory: BeaconMemory, messages: Messages) -> Generation:
        import torch

        started = time.perf_counter()
        ids = self.encode(messages)
        memory, state = self._read(ids, memory)
        written: list[int] = []
        while len(written) < self.config.max_new_tokens and (not written or written[-1] not in self.ends):
            if written:
                memory, state = self._read(written[-1:], memory)
            with torch.inference_mode():
                written.append(int(self.model.get_output_embeddings()(state).argmax()))
        text, tokens, ended = self._text.read(written, self.ends, ())
        return Generation(text, len(ids), len(tokens), time.perf_counter() - started, ended, tuple(tokens))

    def nothing(self) -> BeaconMemory:
        """Return an empty memory."""
        first = self.model.model.layers[0].self_attn
        heads, size = self.model.config.num_key_value_heads, first.head_dim
        empty = tuple(first.k_proj.weight.new_zeros(heads, 0, size) for _ in self.model.model.layers)
        return BeaconMemory(empty, empty, empty, empty)

    def states(self, ids: Sequence[int], memory: BeaconMemory | None = None) -> tuple[BeaconMemory, Tensor]:
        """Read tokens, and return the memory and the last layer's state of each token (without beacons): [tokens, hidden]."""
        import torch

        memory, states = memory or self.nothing(), []
        with torch.inference_mode():
            for start, end in self._spans(len(ids), memory):
                memory, state = self._step(ids[start:end], memory)
                states.append(state)
        return memory, torch.cat(states)

    def _spans(self, count: int, memory: BeaconMemory) -> list[tuple[int, int]]:
        """Split tokens at window boundaries."""
        first = self.window - sum(not beacon for beacon in memory.beacons)
        ends = [*range(first, count, self.window), count]
        return list(zip([0, *ends], ends, strict=False))

    def _read(self, ids: Sequence[int], memory: BeaconMemory | None) -> tuple[BeaconMemory, Tensor]:
        """Read tokens, and return the memory and the last token's state."""
        import torch

        memory = memory or self.nothing()
        with torch.inference_mode():
            for start, end in self._spans(len(ids), memory):
                memory, state = self._step(ids[start:end], memory)
        return memory, state[-1]

    def _step(self, ids: Sequence[int], memory: BeaconMemory) -> tuple[BeaconMemory, Tensor]:
        """Read tokens within one window."""
        import torch

        marks: list[bool] = []
        since = memory.since
        for _ in ids:
            since += 1
            marks.append(False)
            if since == self.config.ratio:
                since = 0
                marks.append(True)
        new = torch.tensor(marks, device=self.device)
        decoder = self.model.model
        states = decoder.beacon_embed_tokens.weight.expand(len(marks), -1).clone()
        states[~new] = decoder.embed_tokens(torch.tensor(list(ids), device=self.device))
        kept, open_ = int(memory.keys[0].shape[1]), len(memory.beacons)
        turns = self._turns(states, kept, open_ + len(marks))
        seen = torch.ones(len(marks), kept + open_ + len(marks), dtype=torch.bool, device=self.device).tril(kept + open_)
        open_keys, open_values = [], []
        for number, layer in enumerate(decoder.layers):
            query, key, value = projected(layer.self_attn, layer.input_layernorm(states), new)
            open_keys.append(torch.cat([memory.open_keys[number], key], 1))
            open_values.append(torch.cat([memory.open_values[number], value], 1))
            keys = torch.cat([memory.keys[number], turned(open_keys[-1], turns)], 1)
            values = torch.cat([memory.values[number], open_values[-1]], 1)
            query = turned(query, (turns[0][-len(marks) :], turns[1][-len(marks) :]))
            groups = len(query) // len(keys)
            attended = torch.nn.functional.scaled_dot_product_attention(
                query[None], keys.repeat_interleave(groups, 0)[None], values.repeat_interleave(groups, 0)[None], attn_mask=seen
            )[0]
            output = attended.transpose(0, 1).reshape(len(marks), -1)
            states = states + chosen(layer.self_attn, "o", output, new)
            states = states + layer.mlp(layer.post_attention_layernorm(states))
        beacons = (*memory.beacons, *marks)
        memory = replace(
            memory,
            open_keys=tuple(open_keys),
            open_values=tuple(open_values),
            beacons=beacons,
            since=since,
            tokens=memory.tokens + len(ids),
        )
        full = sum(not beacon for beacon in beacons) == self.window
        return self._closed(memory) if full else memory, decoder.norm(states)[~new]

    def _closed(self, memory: BeaconMemory) -> BeaconMemory:
        """Move the window's beacons to the memory, and drop its text."""
        import torch

        which = torch.tensor(memory.beacons, device=self.device)
        turns = self._turns(memory.keys[0], memory.keys[0].shape[1], int(which.sum()))
        return replace(
            memory,
            keys=tuple(torch.cat([old, turned(new[:, which], turns)], 1) for old, new in zip(memory.keys, memory.open_keys, strict=True)),
            values=tuple(torch.cat([old, new[:, which]], 1) for old, new in zip(memory.values, memory.open_values, strict=True)),
            open_keys=tuple(new[:, :0] for new in memory.open_keys),
            open_values=tuple(new[:, :0] for new in memory.open_values),
            beacons=(),
        )

    def _turns(self, like: Tensor, start: int, count: int) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines of positions: [count, size]."""
        import torch

        cosines, sines = self.model.model.rotary_emb(like, torch.arange(start, start + count, device=self.device)[None])
        return cosines[0], sines[0]


def open_beacons(config: BeaconConfig, device: str | None = None) -> BeaconModel:
    """Load a beacon model; equal options share one."""
    key = config.model_dump_json(), device_of(device)
    model = _models[key] = _models.get(key) or BeaconModel(config, device)
    return model


def with_beacons(model: Any, config: BeaconConfig) -> Any:
    """Add the beacon embedding and projections of a checkpoint to a language model.

    Raises:
        UserError: The checkpoint lacks a tensor that its configuration names, or has one of another shape.
    """
    from torch import nn

    tensors = released(config.model, config.revision).tensors(lambda name: "beacon" in name)
    decoder = model.model

    def linear(like: nn.Linear, name: str) -> nn.Linear:
        made = nn.Linear(like.in_features, like.out_features, bias=like.bias is not None).to(like.weight)
        put(made.weight, f"{name}.weight")
        if made.bias is not None:
            put(made.bias, f"{name}.bias")
        return made

    def put(target: Tensor, name: str) -> None:
        value = tensors.get(name)
        if value is None or value.shape != target.shape:
            raise UserError(
                f"the memory model lacks the tensor {name} of shape {tuple(target.shape)}",
                code="bad-beacon-layout",
                where=config.model,
                try_this="the checkpoint as its authors publish it",
            )
        target.data.copy_(value)

    decoder.beacon_embed_tokens = nn.Embedding(1, decoder.embed_tokens.embedding_dim).to(decoder.embed_tokens.weight)
    put(decoder.beacon_embed_tokens.weight, "model.beacon_embed_tokens.weight")
    for number, layer in enumerate(decoder.layers):
        for letter in model.config.beacon_param:
            like = getattr(layer.self_attn, f"{letter}_proj")
            setattr(layer.self_attn, name := f"beacon_{letter}_proj", linear(like, f"model.layers.{number}.self_attn.{name}"))
    return model.eval()


def chosen(attention: Any, letter: str, states: Tensor, beacons: Tensor) -> Tensor:
    """Project states, with the beacons' own weights at beacon positions if there are any."""
    own = getattr(attention, f"beacon_{letter}_proj", None)
    result: Tensor = getattr(attention, f"{letter}_proj")(states)
    if own is not None and beacons.any():
        result[beacons] = own(states[beacons])
    return result


def projected(attention: Any, states: Tensor, beacons: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute queries, keys and values: [heads, tokens, size]."""
    query, key, value = (
        chosen(attention, letter, states, beacons).view(len(states), -1, attention.head_dim).transpose(0, 1) for letter in "qkv"
    )
    return query, key, value


def turned(vectors: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Apply rotary position embedding to queries or keys."""
    import torch

    first, second = vectors.chunk(2, dim=-1)
    return vectors * turns[0] + torch.cat([-second, first], -1) * turns[1]
