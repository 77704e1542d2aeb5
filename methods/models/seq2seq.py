"""Run local encoder–decoder models (T5, Flan-T5, BART): batched generation and log-probabilities.

The encoder reads the prompt, with the tokenizer's special tokens; the decoder generates or scores the reply. A prompt with
several targets is encoded once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from benchmarks.core.errors import UserError
from methods.models.causal import FALLBACK_LENGTH, CausalConfig, Generation
from methods.models.decoding import Decoder, Sampling, checked_logprobs, checked_seeds, decoding, end_tokens, sampler, stopping
from methods.models.likelihood import (
    UNBOUNDED,
    Item,
    ScoringConfig,
    TextEncoder,
    batches,
    by_length,
    log_probabilities,
    logits_only_at,
    padded,
    rows_for,
)
from methods.models.pretrained import device_of, load_pretrained

if TYPE_CHECKING:
    from torch import Tensor


class Seq2SeqConfig(CausalConfig):
    """Options of a local encoder–decoder model."""

    model: str = Field(description="a folder or hub id of an encoder-decoder model")


class Seq2SeqModel:
    """A loaded encoder–decoder model.

    Args:
        config: Options; `max_prompt_tokens` null uses the checkpoint's own limit.
        device: "cpu", "cuda" …; None chooses.
        own: Whether to load separate weights that the caller may change; otherwise equal models share weights.

    Raises:
        UserError: The model cannot be loaded, or is not an encoder–decoder model with an output layer.
    """

    def __init__(self, config: Seq2SeqConfig, device: str | None = None, own: bool = False) -> None:
        self.config = config
        self.device = device_of(device)
        self.tokenizer, self.model = load_pretrained(
            "encoder-decoder model", "AutoModelForSeq2SeqLM", config.model, config.revision, config.dtype, self.device, own=own
        )
        start = self.model.generation_config.decoder_start_token_id
        start = start if start is not None else self.model.config.decoder_start_token_id
        if start is None:
            raise UserError(
                f"the model {config.model!r} does not name its decoder start token",
                code="missing-decoder-start",
                try_this="set decoder_start_token_id in its generation_config.json",
            )
        self._start = int(start)
        pad = self.tokenizer.pad_token_id
        self._pad: int = pad if pad is not None else self._start
        self._ends = end_tokens(self.model, self.tokenizer)
        self.text_encoder = TextEncoder(self.tokenizer, continues=False)
        self._text = Decoder(self.tokenizer)
        self.room = self._room()

    def _room(self) -> int:
        """Return the maximum prompt length in tokens."""
        return self.config.max_prompt_tokens or self._stated_length()

    def _stated_length(self) -> int:
        """Return the maximum prompt length in the checkpoint's configuration."""
        text_config = self.model.config
        lengths = (getattr(text_config, name, None) for name in ("max_position_embeddings", "n_positions"))
        length = next((int(value) for value in lengths if value), None)
        if length is None and self.tokenizer.model_max_length < 1 << 20:
            length = int(self.tokenizer.model_max_length)
        return length or FALLBACK_LENGTH

    def render(self, system: str, user: str, variables: Mapping[str, Any] | None = None) -> str:
        """Join system and user message, since these models have no roles."""
        return f"{system}\n\n{user}" if system else user

    def render_chat(self, messages: Sequence[Mapping[str, str]], variables: Mapping[str, Any] | None = None) -> str:
        """Join the messages of a conversation, since these models have no roles."""
        return "\n\n".join(message["content"] for message in messages if message["content"])

    def encode(self, prompt: str) -> list[int]:
        """Return a prompt's token ids for the encoder."""
        return self.text_encoder.prompts([prompt])[0]

    def prompt_room(self, target: int) -> int:
        """Return the maximum prompt length in tokens, which does not depend on the target."""
        return self.room

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        starts: Sequence[str] | None = None,
        sampling: Sampling | None = None,
        seeds: Sequence[int] | None = None,
        stop: Sequence[str] = (),
    ) -> list[Generation]:
        """Generate replies to prompts; see `CausalModel.generate`.

        Args:
            prompts: Texts from `render`, or token ids.
            starts: Forced beginnings of the replies; not part of the returned texts.
            sampling: Sampling options; None for greedy decoding.
            seeds: One per prompt; None derives them from `sampling.seed` and the prompt.
            stop: Stop texts; not part of the returned texts.

        Raises:
            ValueError: A prompt is longer than `room`, or empty; seeds without sampling.
        """
        encoded = [self.encode(prompt) if isinstance(prompt, str) else list(prompt) for prompt in prompts]
        own = checked_seeds(encoded, self.room, prompts, sampling, seeds)
        texts = [""] * len(prompts) if starts is None else list(starts)
        ids_of = {text: self.text_encoder.target(text) if text else [] for text in set(texts)}
        forced = [ids_of[text] for text, _ in zip(texts, prompts, strict=True)]
        done: dict[int, Generation] = {}
        # Decoders are not padded: starts of like length go together.
        for length in sorted({len(ids) for ids in forced}):
            chosen = [position for position in range(len(prompts)) if len(forced[position]) == length]
            for batch in by_length([len(encoded[position]) for position in chosen], UNBOUNDED, self.config.batch_size):
                positions = [chosen[number] for number in batch]
                draws = sampler(sampling, [own[position] for position in positions]) if sampling else ()
                rows = self._generate([encoded[p] for p in positions], [forced[p] for p in positions], draws, stop)
                done.update(zip(positions, rows, strict=True))
        return [done[position] for position in range(len(prompts))]

    def _generate(self, batch: Sequence[list[int]], forced: Sequence[list[int]], draws: Any, stop: Sequence[str]) -> list[Generation]:
        import torch

        started = time.perf_counter()
        ids, mask = padded(batch, self._pad)
        prepared = torch.tensor([[self._start, *start] for start in forced], device=self.device)
        with torch.inference_mode():
            written = self.model.generate(
                input_ids=torch.tensor(ids, device=self.device),
                attention_mask=torch.tensor(mask, device=self.device),
                decoder_input_ids=prepared,
                **decoding(self.model, self.config.max_new_tokens, self._pad, self._ends, draws),
                stopping_criteria=stopping(self.tokenizer, stop, prepared.shape[1]) if stop else None,
            )[:, prepared.shape[1] :].tolist()
        seconds = (time.perf_counter() - started) / len(batch)
        results = []
        for prompt, row in zip(batch, written, strict=True):
            text, tokens, ended = self._text.read(row, self._ends, stop)
            results.append(Generation(text, len(prompt), len(tokens), seconds, ended))
        return results

    def logprobs(self, items: Sequence[Item], config: ScoringConfig) -> list[list[float]]:
        """Return the log-probability of each token of each target, given its prompt; see `LikelihoodScorer`.

        Raises:
            ValueError: A prompt or a target has no tokens.
        """
        import torch

        for number, (prompt, target) in enumerate(items):
            if not prompt or not target:
                raise ValueError(f"pair {number} has an empty {'target' if prompt else 'prompt'}")
        wanted: dict[tuple[int, ...], list[int]] = {}
        for number, (prompt, _) in enumerate(items):
            # Without sharing, every pair is a separate prompt.
            wanted.setdefault(tuple(prompt) if config.share_prefixes else (*prompt, -1 - number), []).append(number)
        numbers_of = list(wanted.values())
        prompts = [list(items[numbers[0]][0]) for numbers in numbers_of]
        budget = config.tokens(self.device)
        results: list[list[float]] = [[] for _ in items]
        with torch.inference_mode():
            for batch, ids, mask in batches(prompts, budget, self.device, self._pad):
                memory = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
                rows = [(number, row) for row, position in enumerate(batch) for number in numbers_of[position]]
                self._decode(rows, items, memory, mask, budget, results)
        return checked_logprobs(results, self.model)

    def _decode(
        self, rows: Sequence[tuple[int, int]], items: Sequence[Item], memory: Tensor, mask: Tensor, budget: int, results: list[list[float]]
    ) -> None:
        """Run the decoder over pairs (index of an item, row of its prompt in `memory`)."""
        import torch
        from transformers.modeling_outputs import BaseModelOutput

        targets = [list(items[number][1]) for number, _ in rows]
        lengths = [len(target) for target in targets]
        vocabulary = int(self.model.get_output_embeddings().weight.shape[0])
        most = rows_for(lengths, vocabulary, self.device)
        # A row costs its target's length and a copy of its prompt's hidden states.
        for batch in by_length(lengths, budget, most, fixed=memory.shape[1]):
            ids, masks = padded([[self._start, *targets[number][:-1]] for number in batch], self._pad)
            owners = torch.tensor([rows[number][1] for number in batch], device=self.device)
            own = torch.tensor(masks, device=self.device)
            at = own.nonzero(as_tuple=True)
            wanted = torch.tensor([token for number in batch for token in targets[number]], device=self.device)
            with logits_only_at(self.model, *at):
                logits = self.model(
                    encoder_outputs=BaseModelOutput(last_hidden_state=memory[owners]),
                    attention_mask=mask[owners],
                    decoder_input_ids=torch.tensor(ids, device=self.device),
                    decoder_attention_mask=own,
                    use_cache=False,
                ).logits
            values = iter(log_probabilities(logits, wanted).tolist())
            for number in batch:
                results[rows[number][0]] = [next(values) for _ in targets[number]]
