"""Log-probabilities of targets under a causal language model, batched, with shared prefixes computed once.

Where prompts share a beginning, its keys and values are computed once and lent to every sequence of the group. A row
is then laid out as `padding | prefix | rest | padding`: its tokens are neighbours, so sliding windows, which count
columns, see what they would see without padding; positions are passed, so padding is invisible to the others too.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from methods.models.batching import by_length
from methods.models.prefix_cache import Group, rows_of, shared_prefixes, supports
from methods.models.scoring import Item, ScoringConfig, log_probabilities, logits_only_at, padded, rows_for


class CausalLogprobs:
    """Scores token sequences.

    Args:
        model: A causal language model of `transformers`, in evaluation mode.
        pad: Any id of the vocabulary; what it fills is masked.
        device: Where the model is.
        config: Options.
    """

    def __init__(self, model: Any, pad: int, device: str, config: ScoringConfig) -> None:
        self.model, self.pad, self.device, self.config = model, pad, device, config
        self.budget = config.tokens(device)
        self.vocabulary = int(model.get_output_embeddings().weight.shape[0])
        self._positions = "position_ids" in inspect.signature(model.forward).parameters
        self._shares = config.share_prefixes and supports(model)

    def __call__(self, items: Sequence[Item]) -> list[list[float]]:
        """Log-probability of each token of each target, given the prompt and the target's tokens before it.

        Raises:
            ValueError: A prompt or a target has no tokens.
        """
        for number, (prompt, target) in enumerate(items):
            if not prompt or not target:
                raise ValueError(f"pair {number} has an empty {'target' if prompt else 'prompt'}")
        # The last token of a target is never an input. Equal inputs are computed once, whatever comes last.
        inputs: dict[tuple[int, ...], int] = {}
        wanted: list[list[int]] = []  # items of each input
        for number, (prompt, target) in enumerate(items):
            row = inputs.setdefault((*prompt, *target[:-1]), len(wanted))
            if row == len(wanted):
                wanted.append([])
            wanted[row].append(number)
        rows = list(inputs)
        # Logits are needed from the last token of the shortest prompt on; all before may be lent.
        firsts = [min(len(items[number][0]) for number in numbers) - 1 for numbers in wanted]
        scores = _Scores(items, rows, wanted)
        groups = shared_prefixes(rows, firsts, self.config.smallest_prefix) if self._shares else []
        import torch

        with torch.inference_mode():
            for places in by_length([group.prefix for group in groups], self.budget):
                self._groups([groups[place] for place in places], scores)
            grouped = {member for group in groups for member in group.members}
            self._alone([place for place in range(len(rows)) if place not in grouped], scores)
        return scores.lists()

    def _alone(self, places: Sequence[int], scores: _Scores) -> None:
        """Sequences that share nothing."""
        if not places:
            return
        most = rows_for([scores.count(place) for place in places], self.vocabulary, self.device)
        for batch in by_length([len(scores.rows[place]) for place in places], self.budget, most):
            batch_places = [places[number] for number in batch]
            ids, mask = self._tensors([scores.rows[place] for place in batch_places], self.config.padding)
            starts = (mask.argmax(dim=1)).tolist()
            self._forward(batch_places, starts, ids, mask, _positions(mask), None, scores)

    def _groups(self, groups: Sequence[Group], scores: _Scores) -> None:
        """Groups of sequences: prefixes first, then what each sequence has of its own."""
        import torch

        prefixes = [scores.rows[group.members[0]][: group.prefix] for group in groups]
        ids, mask = self._tensors(prefixes, "left")
        zero = torch.zeros(1, dtype=torch.long, device=self.device)
        with logits_only_at(self.model, zero, zero):
            lent = self.model(**self._arguments(ids, mask, _positions(mask)), use_cache=True).past_key_values
        places = [(place, number) for number, group in enumerate(groups) for place in group.members]
        rests = [scores.rows[place][groups[number].prefix :] for place, number in places]
        most = rows_for([scores.count(place) for place, _ in places], self.vocabulary, self.device)
        for batch in by_length([len(rest) for rest in rests], self.budget, most, fixed=ids.shape[1]):
            owners = torch.tensor([places[number][1] for number in batch], device=self.device)
            own_ids, own_mask = self._tensors([rests[number] for number in batch], "right")
            whole = torch.cat([mask[owners], own_mask], dim=1)
            positions = _positions(whole)[:, ids.shape[1] :]
            cache = rows_of(lent, owners)
            batch_places = [places[number][0] for number in batch]
            starts = [-groups[places[number][1]].prefix for number in batch]
            self._forward(batch_places, starts, own_ids, whole, positions, cache, scores)

    def _forward(
        self, places: Sequence[int], starts: Sequence[int], ids: Any, mask: Any, positions: Any, cache: Any, scores: _Scores
    ) -> None:
        """One pass over a batch; `starts` are the columns of the sequences' first tokens (negative: in the cache)."""
        import torch

        rows, columns, targets = scores.wanted(places, starts)
        at = torch.tensor([rows, columns, targets], device=self.device)
        with logits_only_at(self.model, at[0], at[1]):
            arguments = self._arguments(ids, mask, positions)
            logits = self.model(**arguments, past_key_values=cache, use_cache=cache is not None).logits
        scores.put(places, log_probabilities(logits, at[2]).tolist())

    def _tensors(self, rows: Sequence[Sequence[int]], side: str) -> tuple[Any, Any]:
        import torch

        ids, masks = padded(rows, self.pad, side)
        return torch.tensor(ids, device=self.device), torch.tensor(masks, device=self.device)

    def _arguments(self, ids: Any, mask: Any, positions: Any) -> dict[str, Any]:
        arguments = {"input_ids": ids, "attention_mask": mask}
        if self._positions:
            arguments["position_ids"] = positions
        return arguments


def _positions(mask: Any) -> Any:
    """Places of tokens within their own sequence, counted from 0; padding before the first counts as 0."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


class _Scores:
    """Which log-probabilities are wanted of which input rows, and those found."""

    def __init__(self, items: Sequence[Item], rows: list[tuple[int, ...]], wanted: list[list[int]]) -> None:
        self.items, self.rows, self._wanted = items, rows, wanted
        self._found: list[list[float]] = [[] for _ in items]

    def count(self, place: int) -> int:
        """Log-probabilities wanted of an input row."""
        return sum(len(self.items[number][1]) for number in self._wanted[place])

    def wanted(self, places: Sequence[int], starts: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        """Row and column in the batch of every wanted log-probability, and the id whose it is."""
        rows: list[int] = []
        columns: list[int] = []
        targets: list[int] = []
        for row, (place, start) in enumerate(zip(places, starts, strict=True)):
            for number in self._wanted[place]:
                prompt, target = self.items[number]
                first = start + len(prompt) - 1
                rows.extend([row] * len(target))
                columns.extend(range(first, first + len(target)))
                targets.extend(target)
        return rows, columns, targets

    def put(self, places: Sequence[int], values: list[float]) -> None:
        start = 0
        for place in places:
            for number in self._wanted[place]:
                end = start + len(self.items[number][1])
                self._found[number] = values[start:end]
                start = end

    def lists(self) -> list[list[float]]:
        return self._found
