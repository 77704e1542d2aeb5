"""Where states of documents and of their memory lie (figure 8): both means of each document on a plane, as an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.errors import MissingPackage

Projection = Literal["pca", "tsne"]
SIZE, MARGIN, LEGEND = 640, 20, 44
_STYLE = (
    "text{font:13px sans-serif;fill:#222}circle{fill-opacity:.55}.document{fill:#2171b5}.memory{fill:#d94801}.frame{fill:none;stroke:#bbb}"
)


@dataclass(frozen=True, slots=True)
class States:
    """Mean states of documents.

    Attributes:
        documents: Means over each document's own tokens, shape (n, h).
        memory: Means over its memory, shape (n, h).
    """

    documents: NDArray[np.float64]
    memory: NDArray[np.float64]

    @property
    def distance(self) -> float:
        """Mean squared distance of the two, over the width: what the alignment loss makes small (eq 2.2)."""
        return float(((self.documents - self.memory) ** 2).mean()) if len(self.documents) else 0.0


def states(clara: Any, texts: Sequence[str]) -> States:
    """Encode documents and take both means."""
    import torch

    with torch.inference_mode():
        found = clara.encode(texts)
    return States(*(one.cpu().double().numpy() for one in (found.document_mean, found.memory_mean)))


def projected(points: NDArray[np.float64], projection: Projection, seed: int = 0) -> NDArray[np.float64]:
    """Points on a plane.

    Args:
        points: Shape (n, h).
        projection: pca: the two directions of most variance; tsne: neighbours stay neighbours (scikit-learn).
        seed: Of t-SNE.

    Returns:
        Shape (n, 2).

    Raises:
        MissingPackage: scikit-learn is not installed.
    """
    centred = points - points.mean(axis=0)
    if projection == "tsne" and len(points) > 2:
        try:
            from sklearn.manifold import TSNE
        except ImportError as error:
            raise MissingPackage("scikit-learn", "models", "t-SNE") from error
        # Half of the points are of one kind: the default of 30 neighbours needs more than 30 points.
        neighbours = min(30.0, (len(points) - 1) / 3)
        return np.asarray(TSNE(2, perplexity=neighbours, init="pca", random_state=seed).fit_transform(centred), float)
    left, scale, _ = np.linalg.svd(centred, full_matrices=False)
    plane = np.zeros((len(points), 2))
    shown = min(2, len(scale))
    plane[:, :shown] = left[:, :shown] * scale[:shown]
    # The sign of a direction means nothing: the largest coordinate is made positive, so that pictures are alike.
    largest = np.abs(plane).argmax(axis=0)
    return plane * np.where(plane[largest, range(2)] < 0, -1, 1)


def svg(found: States, projection: Projection = "tsne", seed: int = 0) -> str:
    """Draw the states; the same ones always look the same."""
    count = len(found.documents)
    plane = projected(np.concatenate([found.documents, found.memory]), projection, seed) if count else np.zeros((0, 2))
    low, high = (plane.min(axis=0), plane.max(axis=0)) if count else (np.zeros(2), np.ones(2))
    spread = np.where(high > low, high - low, 1.0)
    places = MARGIN + (plane - low) / spread * (SIZE - 2 * MARGIN)
    dots = "".join(
        f'<circle class="{"document" if row < count else "memory"}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>'
        for row, (x, y) in enumerate(places)
    )
    name = {"pca": "principal components", "tsne": "t-SNE"}[projection]
    legend = "".join(
        f'<circle class="{kind}" cx="{x}" cy="{SIZE + 20}" r="5"/><text x="{x + 12}" y="{SIZE + 25}">{label}</text>'
        for x, kind, label in ((MARGIN, "document", "documents"), (MARGIN + 130, "memory", "their memory"))
    )
    told = f"{count:,} documents, {name}, mean squared distance {found.distance:.3g}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE + LEGEND}" width="{SIZE}" '
        f'height="{SIZE + LEGEND}"><style>{_STYLE}</style><rect class="frame" x="1" y="1" width="{SIZE - 2}" '
        f'height="{SIZE - 2}"/>{dots}{legend}<text x="{MARGIN + 260}" y="{SIZE + 25}">{told}</text></svg>\n'
    )
