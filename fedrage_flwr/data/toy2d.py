"""``dataset=toy2d``: points in the plane, one cluster and one class for each client (FedeRage paper, Fig. 1).

    x ~ N(c_k, noise² I),   c_k = radius · (cos φ_k, sin φ_k),   φ_k = 90° + k · 360°/clusters

Neighbouring centres are 2 · radius · sin(180°/clusters) apart. The paper shows its clusters and does not say where they lie:
the polygon is our choice, every class being as hard as any other.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import torch

from fedrage_flwr.data.dataset import Dataset, DatasetSettings, Split
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.settings import Ge, Gt

TRAIN, TEST = 0, 1  # keys of the draws


class Toy2d:
    """Drawn anew by every process from ``dataset.seed``; nothing is stored."""

    @dataclass(frozen=True)
    class Settings(DatasetSettings):
        """See ``conf/dataset/toy2d.yaml``."""

        name: Literal["toy2d"]
        clusters: Annotated[int, Ge(2)]
        radius: Annotated[float, Gt(0)]
        noise: Annotated[float, Ge(0)]
        examples: Annotated[int, Ge(1)]
        test_examples: Annotated[int, Ge(1)]
        seed: Annotated[int, Ge(0)]

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def prepare(self) -> None:
        """Nothing to do."""

    def load(self) -> Dataset:
        """Return the data set: inputs float32 (n, 2), label and owner of each the number of its cluster."""
        s = self.settings
        return Dataset(
            name="toy2d",
            train=self._split(TRAIN, s.examples),
            test=self._split(TEST, s.test_examples),
            num_classes=s.clusters,
            mean=(0.0,),
            std=(1.0,),
            scale=1.0,
            train_owner=np.repeat(np.arange(s.clusters), s.examples),
            test_owner=np.repeat(np.arange(s.clusters), s.test_examples),
        )

    def _split(self, kind: int, count: int) -> Split:
        s = self.settings
        points = [
            centre + s.noise * generator(s.seed, Stream.DATASET, kind, k).standard_normal((count, 2))
            for k, centre in enumerate(centres(s.clusters, s.radius))
        ]
        labels = torch.arange(s.clusters).repeat_interleave(count)
        return Split(torch.from_numpy(np.concatenate(points).astype(np.float32)), labels)


def centres(clusters: int, radius: float) -> npt.NDArray[np.float64]:
    """Return c_k, (clusters, 2): a regular polygon, the first corner on top, counter-clockwise."""
    angles = np.pi / 2 + 2 * np.pi * np.arange(clusters) / clusters
    corners: npt.NDArray[np.float64] = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return corners
