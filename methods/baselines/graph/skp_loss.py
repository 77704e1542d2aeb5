"""The loss of SKP: a hidden word is predicted, and a text is told from others by its copy with the word hidden.

    L = L_mlm + w · L_cl
    L_mlm = mean over hidden tokens of −log p(token)
    L_cl = mean over texts i of −log( exp(s_ii / τ) / Σ_j exp(s_ij / τ) ),   s_ij = cos(text i, copy j)

Two points where the authors' code differs, by accident as it seems: its L_mlm averages over every position, filled-up
ones included, and the denominator of its L_cl lacks the first of the other copies.

Source: Dong et al. 2023, Bridging the KB-Text Gap: Leveraging Structured Knowledge-aware Pre-training for KBQA.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from benchmarks.fingerprint import fingerprint
from methods.baselines.graph.skp_masking import NOT_A_TARGET, Masked
from methods.models.scoring import logits_only_at
from methods.torch_loop import backward, own, summed

Vector = Literal["first", "flatten"]


def contrastive(texts: Any, copies: Any, temperature: float) -> Any:
    """L_cl of a batch, in float32.

    Args:
        texts: Shape (batch, dimension).
        copies: Of the same texts in the same order: shape (batch, dimension).
        temperature: τ.
    """
    import torch

    normalised = [torch.nn.functional.normalize(part.float(), dim=1) for part in (texts, copies)]
    scores = normalised[0] @ normalised[1].T / temperature
    return torch.nn.functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


class SkpObjective:
    """Adds the gradient of a batch's loss to the parameters of a masked language model.

    A batch that does not fit is gone through twice in parts: first without activations, for the gradient of each
    vector, then with them, to carry it on. So every text is told from all others of the batch, whatever fits.

    Args:
        model: A masked language model of `transformers`.
        vector: What of the last hidden state is compared: the first token, or all tokens, laid flat.
        weight: w.
        temperature: τ.
        part: Texts that fit.
        accelerator: Of `accelerate`; None: one process in the model's own precision.

    Source:
        Gao et al. 2021, Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup (GradCache).
    """

    def __init__(self, model: Any, vector: Vector, weight: float, temperature: float, part: int, accelerator: Any = None) -> None:
        self.model, self.vector, self.weight, self.temperature = model, vector, weight, temperature
        self.part, self.accelerator = part, accelerator

    def backward(self, batch: Masked, seed: Sequence[str | int]) -> Mapping[str, float]:
        """Add the gradient; each process adds that of its own parts.

        Args:
            batch: Texts and copies.
            seed: What dropout is drawn from: seed, step …

        Returns:
            The loss (`loss`) and its two terms (`masked`, `contrastive`), unweighted.
        """
        import torch

        starts = list(range(0, len(batch), self.part))
        ours = own(starts, self.accelerator)
        hold = len(starts) == 1
        kept: dict[int, tuple[Any, ...]] = {}
        width = batch.ids.shape[1]
        with torch.set_grad_enabled(hold):
            for start in ours:
                kept[start] = self._vectors(batch.rows(slice(start, start + self.part)), width, (*seed, start))
        dimension = int(self.model.config.hidden_size) * (width if self.vector == "flatten" else 1)
        leaves = self._leaves(kept, len(batch), dimension)
        apart = contrastive(leaves[0], leaves[1], self.temperature)
        (self.weight * apart).backward()
        hidden = 0.0
        for start in ours:
            rows = batch.rows(slice(start, start + self.part))
            parts = kept[start] if hold else self._vectors(rows, width, (*seed, start))
            texts, copies, negative = parts
            share = negative / max(1, batch.targets)
            hidden += float(share.detach())
            carried = sum(
                (vectors * leaf.grad[start : start + len(rows)]).sum() for vectors, leaf in zip((texts, copies), leaves, strict=True)
            )
            backward(share + carried, self.accelerator)
        hidden = summed(hidden, self.accelerator, self.model.device)
        told = float(apart.detach())
        return {"loss": hidden + self.weight * told, "masked": hidden, "contrastive": told}

    def _leaves(self, kept: Mapping[int, tuple[Any, ...]], count: int, dimension: int) -> list[Any]:
        """The vectors of texts and of copies, of all processes, as leaves of the graph."""
        import torch

        leaves = []
        for side in (0, 1):
            whole = torch.zeros(count, dimension, device=self.model.device)
            for start, parts in kept.items():
                whole[start : start + len(parts[side])] = parts[side].detach().float()
            if self.accelerator is not None and self.accelerator.num_processes > 1:
                whole = self.accelerator.reduce(whole, "sum")
            leaves.append(whole.requires_grad_())
        return leaves

    def _vectors(self, batch: Masked, width: int, seed: Sequence[str | int]) -> tuple[Any, Any, Any]:
        """Vectors of texts and copies, and the summed negative log-likelihood of what is hidden."""
        import torch

        device = self.model.device
        attention = torch.from_numpy(batch.attention).to(device)
        labels = torch.from_numpy(batch.labels).to(device)
        rows, columns = torch.nonzero(labels != NOT_A_TARGET, as_tuple=True)
        torch.manual_seed(int(fingerprint(*seed), 16) % 2**63)
        with self._autocast():
            texts = self.model.base_model(torch.from_numpy(batch.ids).to(device), attention_mask=attention)
            with logits_only_at(self.model, rows, columns):
                copies = self.model(torch.from_numpy(batch.copies).to(device), attention_mask=attention, output_hidden_states=True)
        negative = torch.nn.functional.cross_entropy(copies.logits[0].float(), labels[rows, columns], reduction="sum")
        states = (texts.last_hidden_state, copies.hidden_states[-1])
        first, second = (self._one(state, attention, width) for state in states)
        return first, second, negative

    def _one(self, states: Any, attention: Any, width: int) -> Any:
        """One vector for each text: shape (texts, dimension)."""
        import torch

        if self.vector == "first":
            return states[:, 0]
        states = states * attention.unsqueeze(-1)
        return torch.nn.functional.pad(states, (0, 0, 0, width - states.shape[1])).flatten(1)

    def _autocast(self) -> Any:
        from contextlib import nullcontext

        return nullcontext() if self.accelerator is None else self.accelerator.autocast()
