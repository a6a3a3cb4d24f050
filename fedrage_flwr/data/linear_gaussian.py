"""``dataset=linear_gaussian``: agents with linear models of their own (FOCUS paper, Section 4.1).

    y = μ_e·x + ε,   x ~ N(0, δ²I),   ε ~ N(0, σ_e²)

Under the squared error without ½ the loss of w at agent e is δ²‖w − μ_e‖² + σ_e², its excess risk δ²‖w − μ_e‖².

| code | paper |
| --- | --- |
| ``weights`` | μ_e, one row per agent |
| ``distance`` | between the centres of any two groups |
| ``spread`` | r, distance of each μ_e from its group's centre |
| ``outlier`` | R, distance of one more agent from the mean of the others |
| ``noise`` | σ_e |
| ``delta`` | δ |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import torch

from fedrage_flwr.data.dataset import Dataset, DatasetSettings, Split
from fedrage_flwr.data.owners import Indices, group_of_agents
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.settings import Ge, Gt

Floats = npt.NDArray[np.float64]

TRAIN, TEST, WEIGHTS = 0, 1, 2  # keys of the draws


class LinearGaussian:
    """Drawn anew by every process from ``dataset.seed``; nothing is stored."""

    @dataclass(frozen=True)
    class Settings(DatasetSettings):
        """See ``conf/dataset/linear_gaussian.yaml``."""

        name: Literal["linear_gaussian"]
        groups: list[Annotated[int, Ge(1)]]
        dimension: Annotated[int, Ge(1)]
        distance: Annotated[float, Ge(0)]
        spread: Annotated[float, Ge(0)]
        outlier: Annotated[float, Ge(0)] | None
        noise: Annotated[float, Ge(0)] | list[Annotated[float, Ge(0)]]
        delta: Annotated[float, Gt(0)]
        examples: Annotated[int, Ge(1)]
        test_examples: Annotated[int, Ge(1)]
        loss: Literal["squared_error", "absolute_error"]
        seed: Annotated[int, Ge(0)]

        def __post_init__(self) -> None:
            if not 1 <= len(self.groups) <= self.dimension:
                raise ValueError(
                    f"dataset.groups={list(self.groups)}: {len(self.groups)} centres at equal distances need as many"
                    f" dimensions; give 1 to dataset.dimension={self.dimension} groups"
                )
            agents = sum(self.groups) + (self.outlier is not None)
            if isinstance(self.noise, list) and len(self.noise) != agents:
                raise ValueError(
                    f"dataset.noise={list(self.noise)}: give one number, or one for each of the {agents} agents"
                )

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def prepare(self) -> None:
        """Nothing to do."""

    def load(self) -> Dataset:
        """Return the data set: inputs float32 (n, d), targets float32 (n,)."""
        s = self.settings
        weights, groups = agents(s.groups, s.dimension, s.distance, s.spread, s.outlier, s.seed)
        return draw(weights, groups, s.noise, s.delta, s.examples, s.test_examples, s.loss, s.seed)


def agents(
    sizes: Sequence[int], dimension: int, distance: float, spread: float, outlier: float | None, seed: int
) -> tuple[Floats, Indices]:
    """Return every agent's μ_e, (E, d), and group, (E,).

    Centres are multiples of unit vectors: any two are exactly ``distance`` apart. Each μ_e lies exactly ``spread`` from its
    centre, the outlier (a group of its own, the last agent) exactly ``outlier`` from the mean of all others, in random
    directions.
    """
    rng = generator(seed, Stream.DATASET, WEIGHTS)
    groups = group_of_agents(sizes)
    centres = distance / sqrt(2) * np.eye(len(sizes), dimension)
    weights = centres[groups] + spread * _directions(rng, len(groups), dimension)
    if outlier is not None:
        far = weights.mean(axis=0) + outlier * _directions(rng, 1, dimension)
        weights, groups = np.concatenate([weights, far]), np.append(groups, len(sizes))
    return weights, groups


def draw(
    weights: Floats,
    groups: Indices,
    noise: float | Sequence[float],
    delta: float,
    examples: int,
    test_examples: int,
    loss: str,
    seed: int,
) -> Dataset:
    """Draw every agent's examples.

    Args:
        weights: μ_e, (E, d).
        groups: true group of each agent, (E,).
        noise: σ_e, one for all or one each.
        delta: δ.
        examples, test_examples: of each agent.
        loss: ``squared_error`` or ``absolute_error``.
        seed: of all draws.
    """
    deviations = np.broadcast_to(np.asarray(noise, dtype=np.float64), len(weights))

    def split(kind: int, count: int) -> Split:
        inputs, targets = [], []
        for agent, (weight, deviation) in enumerate(zip(weights, deviations, strict=True)):
            rng = generator(seed, Stream.DATASET, kind, agent)
            x = delta * rng.standard_normal((count, len(weight)))
            inputs.append(x)
            targets.append(x @ weight + deviation * rng.standard_normal(count))
        return Split(*(torch.from_numpy(np.concatenate(part).astype(np.float32)) for part in (inputs, targets)))

    return Dataset(
        name="linear_gaussian",
        train=split(TRAIN, examples),
        test=split(TEST, test_examples),
        num_classes=1,
        mean=(0.0,),
        std=(1.0,),
        scale=1.0,
        loss=loss,
        train_owner=np.repeat(np.arange(len(weights)), examples),
        test_owner=np.repeat(np.arange(len(weights)), test_examples),
        groups=groups,
    )


def _directions(rng: np.random.Generator, count: int, dimension: int) -> Floats:
    """Unit vectors, (count, dimension), uniform on the sphere."""
    vectors = rng.standard_normal((count, dimension))
    unit: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit
