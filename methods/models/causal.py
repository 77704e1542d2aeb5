"""Run local causal language models in batches: any folder or hub id that `transformers` loads.

Prompts are batched by length and padded on the left, with a mask and position ids that make padding invisible; the
common prefix of a batch's prompts is computed once. In float32, a text generated in a batch equals the text generated
alone, unless two tokens tie to the sixth digit.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.models import FrozenModel
from methods.models.likelihood import (
    UNBOUNDED,
    Item,
    ScoringConfig,
    TextEncoder,
    by_length,
    log_probabilities,
    logits_only_at,
    padded,
    rows_for,
)
from methods.models.thoughts import SPECIAL
from methods.models.weights import device_of, load_pretrained

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences, given by their positions, that share a prefix of `prefix` tokens."""

    prefix: int
    members: tuple[int, ...]


def shared_prefixes(sequences: Sequence[Sequence[int]], limits: Sequence[int], smallest: int = 1, members: int = 2) -> list[Group]:
    """Group sequences so that computing each group's common prefix once saves the most tokens.

    A group of m sequences with p common tokens saves (m − 1) · p. The sorted sequences form a prefix tree. At each node, either
    all sequences below share the node's prefix, or its children are grouped separately, whichever saves more; this is computed
    bottom-up in one pass.

    Args:
        sequences: Token ids.
        limits: Maximum prefix length of each sequence, which must keep its last tokens.
        smallest: Minimum prefix length.
        members: Minimum group size.

    Returns:
        Disjoint groups; sequences without a shared prefix are in none.
    """
    heads = [tuple(sequence[: max(0, limit)]) for sequence, limit in zip(sequences, limits, strict=True)]
    order = sorted((position for position in range(len(heads)) if heads[position]), key=heads.__getitem__)
    if len(order) < 2:
        return []
    # A node of the tree: its depth in tokens, its first sequence, and the best groups of its finished children.
    stack: list[_Node] = [_Node(0, 0)]
    for here in range(1, len(order)):
        common = _common(heads[order[here - 1]], heads[order[here]])
        start, children = here - 1, _Best(0, [])
        while stack[-1].depth > common:
            node = stack.pop()
            done = node.closed(here, smallest, members)
            start, children = node.start, done
            if stack[-1].depth >= common:
                stack[-1].take(done)
                children = _Best(0, [])
        if stack[-1].depth < common:
            stack.append(_Node(common, start))
            stack[-1].take(children)
    while len(stack) > 1:
        done = stack.pop().closed(len(order), smallest, members)
        stack[-1].take(done)
    return [Group(prefix, tuple(sorted(order[start:end]))) for prefix, start, end in sorted(stack[0].groups, key=_beginning)]


@dataclass(slots=True)
class _Best:
    saved: int
    groups: list[tuple[int, int, int]]  # prefix, first and after the last place in the sorted order


class _Node(_Best):
    """A subtree under construction."""

    def __init__(self, depth: int, start: int) -> None:
        super().__init__(0, [])
        self.depth = depth
        self.start = start

    def take(self, child: _Best) -> None:
        self.saved += child.saved
        # Small lists are merged into larger ones, so that a deep tree costs n · log n.
        if len(self.groups) < len(child.groups):
            self.groups, child.groups = child.groups, self.groups
        self.groups.extend(child.groups)

    def closed(self, end: int, smallest: int, members: int) -> _Best:
        """Return this subtree's best grouping: one group of all its sequences, or the groups of its children."""
        count = end - self.start
        saved = (count - 1) * self.depth
        if self.depth >= smallest and count >= members and saved > self.saved:
            return _Best(saved, [(self.depth, self.start, end)])
        return _Best(self.saved, self.groups)


def _beginning(group: tuple[int, int, int]) -> int:
    return group[1]


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """Return the length of the common prefix of two sequences."""
    end = min(len(first), len(second))
    if first[:end] == second[:end]:
        return end
    low, high = 0, end  # equal up to low, different somewhere before high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if first[low:middle] == second[low:middle] else (low, middle)
    return low


def rows_of(cache: Any, rows: Tensor) -> Any:
    """Copy the given rows of a `transformers` key–value cache, in order; rows may repeat.

    The copy can be extended without changing the original.

    Args:
        cache: A `DynamicCache`.
        rows: Row numbers, an integer tensor on the cache's device.
    """
    taken = copy.copy(cache)
    taken.layers = [copy.copy(layer) for layer in cache.layers]
    # Selecting makes new tensors and puts them into the copied layers.
    taken.batch_select_indices(rows)
    return taken


def common_prefix(sequences: Sequence[Sequence[int]]) -> int:
    """Return the length of the common prefix of all sequences."""
    ordered = sorted(map(tuple, sequences))
    return _common(ordered[0], ordered[-1])  # in sorted order the most different ones


def _layers(model: Any) -> tuple[set[str], bool]:
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    return kinds, getattr(config, "sliding_window", None) is not None


def supports(model: Any) -> bool:
    """Return whether a model's cache consists only of keys and values, so that rows can be selected (`rows_of`)."""
    return _layers(model)[0] <= {"full_attention", "sliding_attention"} and not getattr(model, "_is_stateful", False)


def windowed(model: Any) -> bool:
    """Return whether a layer uses sliding-window attention, or caches anything other than keys and values."""
    kinds, window = _layers(model)
    return window or kinds != {"full_attention"} or not supports(model)


# If prompts share a prefix, its keys and values are computed once and shared by every sequence of the group. A row
# is then laid out as `padding | prefix | rest | padding`: its tokens are neighbors, so sliding windows, which count
# columns, see what they would see without padding; positions are passed, so padding is invisible to the others too.


class CausalLogprobs:
    """Computes token log-probabilities under a causal model.

    Args:
        model: A causal language model of `transformers`, in evaluation mode.
        pad: Any id of the vocabulary; padding is masked.
        device: Device of the model.
        config: Options.
    """

    def __init__(self, model: Any, pad: int, device: str, config: ScoringConfig) -> None:
        self.model, self.pad, self.device, self.config = model, pad, device, config
        self.budget = config.tokens(device)
        self.vocabulary = int(model.get_output_embeddings().weight.shape[0])
        self._positions = "position_ids" in inspect.signature(model.forward).parameters
        self._shares = config.share_prefixes and supports(model)

    def __call__(self, items: Sequence[Item]) -> list[list[float]]:
        """Return the log-probability of each token of each target, given the prompt and the target's tokens before it.

        Raises:
            ValueError: A prompt or a target has no tokens.
        """
        for number, (prompt, target) in enumerate(items):
            if not prompt or not target:
                raise ValueError(f"pair {number} has an empty {'target' if prompt else 'prompt'}")
        # The last token of a target is never an input. Equal inputs are computed once, even if the last tokens differ.
        inputs: dict[tuple[int, ...], int] = {}
        wanted: list[list[int]] = []  # items of each input
        for number, (prompt, target) in enumerate(items):
            row = inputs.setdefault((*prompt, *target[:-1]), len(wanted))
            if row == len(wanted):
                wanted.append([])
            wanted[row].append(number)
        rows = list(inputs)
        # Logits are needed from the last token of the shortest prompt on; all before may be shared.
        firsts = [min(len(items[number][0]) for number in numbers) - 1 for numbers in wanted]
        scores = _Scores(items, rows, wanted)
        groups = shared_prefixes(rows, firsts, self.config.smallest_prefix) if self._shares else []
        import torch

        with torch.inference_mode():
            for positions in by_length([group.prefix for group in groups], self.budget):
                self._groups([groups[position] for position in positions], scores)
            grouped = {member for group in groups for member in group.members}
            self._alone([position for position in range(len(rows)) if position not in grouped], scores)
        return scores.lists()

    def _alone(self, positions: Sequence[int], scores: _Scores) -> None:
        """Score sequences without shared prefixes."""
        if not positions:
            return
        most = rows_for([scores.count(position) for position in positions], self.vocabulary, self.device)
        for batch in by_length([len(scores.rows[position]) for position in positions], self.budget, most):
            batch_places = [positions[number] for number in batch]
            ids, mask = self._tensors([scores.rows[position] for position in batch_places], self.config.padding)
            starts = (mask.argmax(dim=1)).tolist()
            # Causal attention ignores later tokens, so right padding needs no mask, and attention is faster without one.
            arguments = {"input_ids": ids} if self.config.padding == "right" else self._arguments(ids, mask, _positions(mask))
            self._forward(batch_places, starts, arguments, None, scores)

    def _groups(self, groups: Sequence[Group], scores: _Scores) -> None:
        """Score groups of sequences: prefixes first, then the rest of each."""
        import torch

        prefixes = [scores.rows[group.members[0]][: group.prefix] for group in groups]
        ids, mask = self._tensors(prefixes, "left")
        zero = torch.zeros(1, dtype=torch.long, device=self.device)
        with logits_only_at(self.model, zero, zero):
            shared = self.model(**self._arguments(ids, mask, _positions(mask)), use_cache=True).past_key_values
        indices = [(member, number) for number, group in enumerate(groups) for member in group.members]
        rests = [scores.rows[position][groups[number].prefix :] for position, number in indices]
        most = rows_for([scores.count(position) for position, _ in indices], self.vocabulary, self.device)
        for batch in by_length([len(rest) for rest in rests], self.budget, most, fixed=ids.shape[1]):
            owners = torch.tensor([indices[number][1] for number in batch], device=self.device)
            own_ids, own_mask = self._tensors([rests[number] for number in batch], "right")
            whole = torch.cat([mask[owners], own_mask], dim=1)
            positions = _positions(whole)[:, ids.shape[1] :]
            cache = rows_of(shared, owners)
            batch_places = [indices[number][0] for number in batch]
            starts = [-groups[indices[number][1]].prefix for number in batch]
            self._forward(batch_places, starts, self._arguments(own_ids, whole, positions), cache, scores)

    def _forward(self, indices: Sequence[int], starts: Sequence[int], arguments: dict[str, Tensor], cache: Any, scores: _Scores) -> None:
        """Run one pass over a batch; `starts` are the columns of the sequences' first tokens (negative: in the cache)."""
        import torch

        rows, columns, targets = scores.wanted(indices, starts)
        at = torch.tensor([rows, columns, targets], device=self.device)
        with logits_only_at(self.model, at[0], at[1]):
            logits = self.model(**arguments, past_key_values=cache, use_cache=cache is not None).logits
        scores.put(indices, log_probabilities(logits, at[2]).tolist())

    def _tensors(self, rows: Sequence[Sequence[int]], side: str) -> tuple[Tensor, Tensor]:
        import torch

        # Through NumPy: PyTorch takes several times as long to read a list.
        ids, masks = (torch.from_numpy(np.array(part, dtype=np.int64)).to(self.device) for part in padded(rows, self.pad, side))
        return ids, masks

    def _arguments(self, ids: Tensor, mask: Tensor, positions: Tensor) -> dict[str, Tensor]:
        arguments = {"input_ids": ids, "attention_mask": mask}
        if self._positions:
            arguments["position_ids"] = positions
        return arguments


def _positions(mask: Tensor) -> Tensor:
    """Return positions of tokens within their own sequence, counted from 0; padding before the first has position 0."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


class _Scores:
    """Requested log-probabilities per input row, with the results."""

    def __init__(self, items: Sequence[Item], rows: list[tuple[int, ...]], wanted: list[list[int]]) -> None:
        self.items, self.rows, self._wanted = items, rows, wanted
        self._found: list[list[float]] = [[] for _ in items]

    def count(self, position: int) -> int:
        """Return the number of log-probabilities requested of an input row."""
        return sum(len(self.items[number][1]) for number in self._wanted[position])

    def wanted(self, positions: Sequence[int], starts: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        """Return row and column in the batch of every requested log-probability, with its token id."""
        rows: list[int] = []
        columns: list[int] = []
        targets: list[int] = []
        for row, (position, start) in enumerate(zip(positions, starts, strict=True)):
            for number in self._wanted[position]:
                prompt, target = self.items[number]
                first = start + len(prompt) - 1
                rows.extend([row] * len(target))
                columns.extend(range(first, first + len(target)))
                targets.extend(target)
        return rows, columns, targets

    def put(self, positions: Sequence[int], values: list[float]) -> None:
        start = 0
        for position in positions:
            for number in self._wanted[position]:
                end = start + len(self.items[number][1])
                self._found[number] = values[start:end]
                start = end

    def lists(self) -> list[list[float]]:
        return self._found


# Adding Gumbel noise to log-probabilities and taking the maximum samples from the distribution. Each row's noise comes
# from a generator of its own on the CPU, so neighbors, batch size and device do not change what is drawn.


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling options.

    Attributes:
        temperature: Above 0; 1 is the model's own distribution.
        top_p: Share of probability to sample from; 1: all.
        top_k: Number of most likely tokens to sample from; None: all.
        seed: For prompts without their own seed, the seed is derived from this one and the prompt's text.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.temperature > 0 or not 0 < self.top_p <= 1 or (self.top_k is not None and self.top_k < 1):
            raise ValueError(f"temperature must be above 0, top_p in (0, 1], top_k at least 1: {self}")

    def seeds(self, prompts: Sequence[str | Sequence[int]]) -> list[int]:
        """Return a seed per prompt, which depends only on the prompt."""
        return [int.from_bytes(hashlib.blake2b(f"{self.seed}\0{prompt}".encode(), digest_size=7).digest(), "big") for prompt in prompts]


def sampler(sampling: Sampling, seeds: Sequence[int]) -> Any:
    """Return a logits processor that makes `generate(do_sample=False)` sample with per-row seeds.

    Args:
        sampling: Sampling options.
        seeds: One per row of the batch.
    """
    import torch
    from transformers import LogitsProcessor, LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    warpers: list[Any] = [TemperatureLogitsWarper(float(sampling.temperature))]
    if sampling.top_k is not None:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))

    class Gumbel(LogitsProcessor):
        def __init__(self) -> None:
            self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            scores = scores.float()
            for warper in warpers:
                scores = warper(input_ids, scores)
            noise = torch.empty(scores.shape, dtype=torch.float32)
            for row, generator in enumerate(self.generators):
                noise[row].exponential_(generator=generator)
            return scores - noise.log().to(scores.device)

    return LogitsProcessorList([Gumbel()])


Messages = Sequence[dict[str, str]]
FALLBACK_LENGTH = 2048
"""Assumed context length of a model that does not state one."""
SHARED = 32
"""Shortest common prefix of a batch that is worth a separate pass, in tokens."""


class CausalConfig(FrozenModel):
    """Options of a local language model."""

    model: str = Field(description="a folder or hub id of a causal language model")
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = Field(
        None, description="null: float32 on CPU, the checkpoint's own elsewhere"
    )
    max_new_tokens: int = Field(32, ge=1, description="longest answer")
    max_prompt_tokens: int | None = Field(None, ge=16, description="longest prompt; null: the model's own limit")
    batch_size: int = Field(8, ge=1, description="prompts generated at once")


@dataclass(frozen=True, slots=True)
class Generation:
    """Generated text of one prompt: text, cost, whether it is complete, and all tokens.

    The text has no special tokens except those that mark a thought.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    ended: bool = True
    tokens: tuple[int, ...] = ()


NO_THINKING: Mapping[str, Any] = {"enable_thinking": False, "thinking": False}
"""Template variables that disable thinking (Qwen3, GLM, SmolLM3; DeepSeek, Granite)."""


def template_variables(tokenizer: Any, wanted: Mapping[str, Any], where: str | None = None) -> dict[str, Any]:
    """Return those of the given variables that a model's chat template uses.

    Args:
        tokenizer: Tokenizer with the `chat_template`.
        wanted: Variables with their values.
        where: Name of the option with the variables; if given, the template must use each of them.

    Raises:
        UserError: The template lacks a variable of the option.
    """
    text = str(getattr(tokenizer, "chat_template", None) or "")
    known = {name: value for name, value in wanted.items() if re.search(rf"(?<![\w.'\"]){re.escape(name)}(?![\w'\"])", text)}
    if where is not None and (unknown := sorted(wanted.keys() - known.keys())):
        raise UserError(
            f"the model's chat template does not know the variable {unknown[0]!r}",
            code="unknown-template-variable",
            where=f"{where}.{unknown[0]}",
            try_this="leave it out",
        )
    return known


QUIET = {"enable_thinking": False}
"""Template variables that disable thinking; templates without them ignore them."""


def chat_text(tokenizer: Any, messages: Messages, variables: Mapping[str, Any] | None = None, joined: str = "\n\n") -> str:
    """Return the text of a conversation for a model to continue.

    If the template refuses or drops a first system message, the message is put before the first user message, with `joined`
    between them; an empty one is left out. Without a chat template, messages are written one after the other.
    """
    system = messages[0]["content"] if messages and messages[0]["role"] == "system" else ""
    turns = [dict(message) for message in messages if message["role"] != "system"]

    def template(some: Sequence[Mapping[str, Any]]) -> str:
        return str(tokenizer.apply_chat_template(list(some), tokenize=False, add_generation_prompt=True, **(variables or {})))

    if not getattr(tokenizer, "chat_template", None):
        return "\n\n".join([system, *(m["content"] for m in turns)] if system else [m["content"] for m in turns])
    from jinja2 import TemplateError

    if system:
        # Templates refuse unsupported messages by raising Jinja's error (Gemma, Mistral: no system role).
        with suppress(TemplateError):
            text = template([{"role": "system", "content": system}, *turns])
            if system.strip() in text and _shows(text, turns):
                return text
        turns[0] = {**turns[0], "content": f"{system}{joined}{turns[0]['content']}"}
    problem = "it leaves out the last message"
    try:
        text = template(turns)
        if not _shows(text, turns):  # templates of models that also see images take a list of parts
            text = template([{"role": turn["role"], "content": [{"type": "text", "text": turn["content"]}]} for turn in turns])
        if _shows(text, turns):
            return text
    except TemplateError as error:
        problem = str(error)
    raise UserError(
        f"the model's chat template cannot be used: {problem}",
        code="chat-template-failed",
        where=f"model {getattr(tokenizer, 'name_or_path', '')!r}",
        try_this="correct its chat_template.jinja, or name a model with another template",
    )


def _shows(text: str, turns: Messages) -> bool:
    """Return whether a text holds the last message, white space aside, which some templates change."""
    return "".join(turns[-1]["content"].split()) in "".join(text.split())


class CausalModel:
    """A loaded causal language model, for generation and log-probabilities (see `likelihood.py`).

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.
        share_prefixes: Whether `generate` computes the common prefix of a batch's prompts once.
        own: Whether to load separate weights that the caller may change; otherwise equal models share weights.

    Raises:
        UserError: The model cannot be loaded, or leaves no room for a prompt.
    """

    def __init__(self, config: CausalConfig, device: str | None = None, share_prefixes: bool = True, own: bool = False) -> None:
        self.config = config
        self.device = device_of(device)
        self.tokenizer, self.model = load_pretrained(
            "language model", "AutoModelForCausalLM", config.model, config.revision, config.dtype, self.device, own=own
        )
        self._ends = end_tokens(self.model, self.tokenizer)
        # Padding is masked, so any id works if a model names none.
        pad = self.tokenizer.pad_token_id
        self._pad: int = pad if pad is not None else (self._ends[0] if self._ends else 0)
        text_config = self.model.config.get_text_config()
        self.length = int(getattr(text_config, "max_position_embeddings", None) or FALLBACK_LENGTH)
        self.room = self._room()
        self.text_encoder = TextEncoder(self.tokenizer)
        self._text = Decoder(self.tokenizer)
        # With a shared prefix, padding is between tokens, which changes windows that count columns.
        self._shares = share_prefixes and not windowed(self.model)

    def _room(self) -> int:
        """Return the longest prompt in tokens."""
        length = self.length
        room = length - self.config.max_new_tokens
        if self.config.max_prompt_tokens is not None:
            room = min(room, self.config.max_prompt_tokens)
        if room < 1:
            raise UserError(
                f"max_new_tokens={self.config.max_new_tokens} leaves no room for a prompt: the model's limit is {length} tokens in total",
                code="max-new-tokens-too-large",
                where=f"model {self.config.model!r}",
                try_this="lower max_new_tokens",
            )
        return room

    def end_at(self, token: str) -> None:
        """Add a token at which generation stops.

        Raises:
            UserError: The vocabulary does not have the token.
        """
        number = self.tokenizer.convert_tokens_to_ids(token)
        if number is None or number == self.tokenizer.unk_token_id:
            raise UserError(
                f"the vocabulary has no token {token}",
                code="vocabulary-token-missing",
                where=f"model {self.config.model!r}",
                try_this="a model that was trained with that token",
            )
        if number not in self._ends:
            self._ends.append(number)

    @property
    def chats(self) -> bool:
        """Return whether the tokenizer has a chat template."""
        return bool(getattr(self.tokenizer, "chat_template", None))

    def render(self, system: str, user: str, variables: Mapping[str, Any] | None = None) -> str:
        """Return the text of a prompt: in the model's chat template if it has one, else the messages one after the other."""
        return self.render_chat([{"role": "system", "content": system}, {"role": "user", "content": user}], variables)

    def render_chat(self, messages: Messages, variables: Mapping[str, Any] | None = None) -> str:
        """Return the text of a conversation for the model to continue; see `chat_text`."""
        return chat_text(self.tokenizer, messages, variables)

    def encode(self, prompt: str) -> list[int]:
        """Return a prompt's token ids, with the tokenizer's initial special tokens unless a chat template wrote them."""
        return self.text_encoder.prompts([prompt])[0]

    def prompt_room(self, target: int) -> int:
        """Return the longest prompt in tokens before a scored target, whose last token is not an input."""
        return self.length - target + 1

    def logprobs(self, items: Sequence[Item], config: ScoringConfig) -> list[list[float]]:
        """Return the log-probability of each token of each target, given its prompt; see `LikelihoodScorer`."""
        return CausalLogprobs(self.model, self._pad, self.device, config)(items)

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        sampling: Sampling | None = None,
        seeds: Sequence[int] | None = None,
        stop: Sequence[str] = (),
    ) -> list[Generation]:
        """Generate continuations of prompts in batches.

        Args:
            prompts: Texts from `render`, or their token ids; each at most `room` tokens long.
            sampling: Sampling options; None: greedy.
            seeds: One per prompt; None: derived from `sampling.seed` and the prompt. Samples of a prompt do not depend
                on the other prompts.
            stop: Texts at which a continuation ends; they are not part of the returned text.

        Returns:
            One generation per prompt, in order.

        Raises:
            ValueError: A prompt is longer than `room`, or empty; seeds without sampling.
        """
        encoded = [self.encode(prompt) if isinstance(prompt, str) else list(prompt) for prompt in prompts]
        own = checked_seeds(encoded, self.room, prompts, sampling, seeds)
        # Batches of similar lengths save padding; the longest come first to show immediately if memory is too small.
        done: dict[int, Generation] = {}
        for positions in by_length([len(ids) for ids in encoded], UNBOUNDED, self.config.batch_size):
            draws = sampler(sampling, [own[position] for position in positions]) if sampling else None
            done.update(zip(positions, self._generate([encoded[position] for position in positions], draws, stop), strict=True))
        return [done[position] for position in range(len(encoded))]

    def _generate(self, batch: Sequence[list[int]], draws: Any, stop: Sequence[str]) -> list[Generation]:
        import torch

        started = time.perf_counter()
        width = max(len(ids) for ids in batch)
        common = common_prefix([ids[:-1] for ids in batch]) if self._shares and len(batch) > 1 else 0
        common = common if common >= SHARED else 0
        # The common prefix, padding, and the rest; without a common prefix, padding comes first.
        gaps = [width - len(row) for row in batch]
        rows = [row[:common] + [self._pad] * gap + row[common:] for row, gap in zip(batch, gaps, strict=True)]
        masks = [[1] * common + [0] * gap + [1] * (width - gap - common) for gap in gaps]
        ids = torch.tensor(rows, device=self.device)
        shared: dict[str, Any] = {}
        with torch.inference_mode():
            if common:
                first = torch.zeros(len(batch), dtype=torch.long, device=self.device)
                with logits_only_at(self.model, first[:1], first[:1]):
                    cache = self.model(input_ids=ids[:1, :common], use_cache=True).past_key_values
                shared["past_key_values"] = rows_of(cache, first)
            written = self.model.generate(
                input_ids=ids,
                attention_mask=torch.tensor(masks, device=self.device),
                **decoding(self.config.max_new_tokens, self._pad, self._ends),
                logits_processor=draws,
                stopping_criteria=stopping(self.tokenizer, stop, width) if stop else None,
                **shared,
            )[:, width:].tolist()
        seconds = (time.perf_counter() - started) / len(batch)
        return [self._generation(len(ids), row, seconds, stop) for ids, row in zip(batch, written, strict=True)]

    def _generation(self, prompt_tokens: int, written: list[int], seconds: float, stop: Sequence[str]) -> Generation:
        text, tokens, ended = self._text.read(written, self._ends, stop)
        return Generation(text, prompt_tokens, len(tokens), seconds, ended, tuple(tokens))


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Return the tokens that end a model's output."""
    ends = model.generation_config.eos_token_id
    ends = ends if ends is not None else tokenizer.eos_token_id
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


def decoding(max_new_tokens: int, pad: int, ends: Sequence[int]) -> dict[str, Any]:
    """Return `generate` options for greedy decoding that override a checkpoint's defaults."""
    alone = {"do_sample": False, "num_beams": 1, "temperature": None, "top_p": None, "top_k": None, "repetition_penalty": 1.0}
    return {**alone, "max_new_tokens": max_new_tokens, "pad_token_id": pad, "eos_token_id": list(ends) or None}


def checked_seeds(
    encoded: Sequence[Sequence[int]],
    room: int,
    prompts: Sequence[str | Sequence[int]],
    sampling: Sampling | None,
    seeds: Sequence[int] | None,
) -> list[int]:
    """Check the prompts' lengths and return the seed of each prompt; [] without sampling.

    Raises:
        ValueError: A prompt is longer than `room`, or empty; seeds without sampling.
    """
    for ids in encoded:
        if not 0 < len(ids) <= room:
            raise ValueError(f"a prompt has {len(ids)} tokens, but 1 to {room} fit")
    if seeds is not None and (sampling is None or len(seeds) != len(prompts)):
        raise ValueError("seeds belong to sampling, one per prompt")
    return list(seeds) if seeds is not None else sampling.seeds(prompts) if sampling else []


class Decoder:
    """Converts a model's output tokens to text.

    Args:
        tokenizer: The tokenizer; its special tokens are left out, except those that mark a thought.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        special = set(tokenizer.all_special_tokens)
        special |= {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
        marks = special & SPECIAL
        self._dropped = sorted(special - marks, key=len, reverse=True) if marks else None

    def __call__(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        if self._dropped is None:
            return str(self._tokenizer.decode(tokens, skip_special_tokens=True))
        text = str(self._tokenizer.decode(tokens, skip_special_tokens=False))
        for token in self._dropped:
            text = text.replace(token, "")
        return text

    def read(self, written: list[int], ends: Sequence[int], stop: Sequence[str]) -> tuple[str, list[int], bool]:
        """Decode a row of generated tokens; returns its text, its tokens, and whether it is complete.

        Args:
            written: The row, padded after its end while others continue.
            ends: Tokens that end it.
            stop: Texts that end it.
        """
        end = next((position for position, token in enumerate(written) if token in ends), None)
        kept = written if end is None else written[:end]
        text = self(kept)
        if any(mark in text for mark in stop):
            low, high = 0, len(kept)  # the fewest tokens whose text holds a mark
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if any(mark in self(kept[:middle]) for mark in stop) else (middle, high)
            return before(text, stop), kept[:high], True
        return text, written if end is None else written[: end + 1], end is not None


def before(text: str, stop: Sequence[str]) -> str:
    """Return a text up to the first of the stop texts."""
    return text[: min((place for mark in stop if (place := text.find(mark)) >= 0), default=len(text))]


def stopping(tokenizer: Any, stop: Sequence[str], width: int) -> Any:
    """Return stopping criteria for `generate` that end each row after a stop text.

    Args:
        tokenizer: Tokenizer that decodes the last tokens of a row.
        stop: The stop texts.
        width: Columns of the prompts, which are not searched.
    """
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList

    tail = max(len(mark.encode()) for mark in stop) + 4

    class Stops(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
            texts = tokenizer.batch_decode(input_ids[:, max(width, input_ids.shape[1] - tail) :])
            return torch.tensor([any(mark in text for mark in stop) for text in texts], device=input_ids.device)

    return StoppingCriteriaList([Stops()])
