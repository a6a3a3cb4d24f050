"""What is tried when a method is tuned: ``conf/experiment/tuning/<strategy>.yaml`` read as a space of trials.

An axis is a list of values or a range ``{low, high}``, which is searched on a logarithmic scale. Lists alone make a full grid;
with a range among them, ``points`` points of a Sobol sequence (Sobol' 1967; unscrambled, without the point 0) are tried.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fedrage_flwr.errors import UserError
from fedrage_flwr.words import conf_dir

NAMED = ("dataset", "model", "ram", "strategy")
"""The groups whose words name a tuned cell."""
DIGITS = 4  # significant, of the values tried
EDGES = 8  # a range's outer eighths are its edges; one step beyond is a quarter of the range, both logarithmic

Point = dict[str, float]


@dataclass(frozen=True)
class Range:
    """From ``low`` to ``high``, both above 0, logarithmic."""

    low: float
    high: float

    def at(self, share: float) -> float:
        """The value ``share`` of the way from ``low`` to ``high``."""
        return float(self.low * (self.high / self.low) ** share)


@dataclass(frozen=True)
class Space:
    """Axes of a search, and the settings that follow from a point in them.

    Attributes:
        axes: by name, values in rising order or a range.
        settings: by dotted key, a number or an OmegaConf expression in the names of the axes.
        points: how many points of the Sobol sequence; None where every combination is tried.
    """

    axes: Mapping[str, tuple[float, ...] | Range]
    settings: Mapping[str, Any]
    points: int | None

    def trials(self) -> list[Point]:
        """All points that are tried, in their order."""
        if self.points is None:
            lists = [axis for axis in self.axes.values() if not isinstance(axis, Range)]
            return [dict(zip(self.axes, values, strict=True)) for values in itertools.product(*lists)]
        from scipy.stats import qmc  # type: ignore[import-untyped]

        sequence = qmc.Sobol(len(self.axes), scramble=False).fast_forward(1)  # its first point is 0
        return [
            {name: _pick(axis, float(u)) for (name, axis), u in zip(self.axes.items(), row, strict=True)}
            for row in sequence.random(self.points)
        ]

    def overrides(self, point: Point) -> tuple[str, ...]:
        """The settings of a point as words of the command line."""
        for name, function in (("ratio", lambda a, b: a / b), ("sum", lambda *terms: sum(terms))):
            OmegaConf.register_new_resolver(name, function, replace=True)
        node = OmegaConf.create({**point, "settings": dict(self.settings)})
        return tuple(f"{key}={_round(value, 6)!r}" for key, value in node.settings.items())

    def beyond(self, best: Point, tried: Sequence[Point]) -> list[Point]:
        """Points one step further out, one for each axis at an edge of which the best point lies.

        On a list the edges are the outermost values tried, and a step multiplies by the ratio of the outermost two. A range has
        outer eighths for edges, and a step is a quarter of it.
        """
        found = []
        for name, axis in self.axes.items():
            values = sorted({point[name] for point in tried})
            value, low, high = best[name], values[0], values[-1]
            if isinstance(axis, Range):
                step = (axis.high / axis.low) ** (2 / EDGES)
                margin = step**0.5
                down = up = step
                low, high = min(low, axis.low) * margin, max(high, axis.high) / margin
            elif len(values) > 1:
                down, up = values[1] / low, high / values[-2]
            else:
                continue
            steps = [value / down] if value <= low else [value * up] if value >= high else []
            found += [{**best, name: _round(further, DIGITS)} for further in steps]
        return [point for point in found if point not in tried]


def read_space(strategy: str) -> Space:
    """Read the space of a method.

    Raises:
        UserError: it has none.
    """
    folder = conf_dir() / "experiment" / "tuning"
    path = folder / f"{strategy}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(found.stem for found in folder.glob("[!_]*.yaml")))
        raise UserError(f"strategy={strategy}: conf/experiment/tuning has no file of this name; it has {known}")
    return parse_space(_plain(path), path)


def parse_space(content: Mapping[str, Any], path: Path) -> Space:
    """Make a space of a file's content; ``UserError`` names the file if it is none."""
    axes = {
        name: Range(**axis) if isinstance(axis, Mapping) else tuple(sorted(map(float, axis)))
        for name, axis in content["axes"].items()
    }
    ranges = any(isinstance(axis, Range) for axis in axes.values())
    if ranges != ("points" in content):
        raise UserError(f"{path}: ranges need points, and points need ranges")
    return Space(axes, content["settings"], content.get("points"))


@dataclass(frozen=True)
class Budget:
    """What a method may spend; see ``conf/experiment/tuning/_budget.yaml``."""

    first_share: float
    min_participations: float
    kept: int
    finalists: int
    seeds: list[int]
    extra_trials: int

    def first_rounds(self, num_rounds: int, rarest: float) -> int:
        """Length of the first rung; ``rarest`` is the smallest inclusion probability."""
        wanted = max(self.first_share * num_rounds, self.min_participations / rarest if rarest else num_rounds)
        return min(num_rounds, _ceil(wanted))


def read_budget() -> Budget:
    """Read the budget, the same for all methods."""
    return Budget(**_plain(conf_dir() / "experiment" / "tuning" / "_budget.yaml"))


def _plain(path: Path) -> dict[str, Any]:
    content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def _pick(axis: tuple[float, ...] | Range, share: float) -> float:
    return _round(axis.at(share), DIGITS) if isinstance(axis, Range) else axis[int(share * len(axis))]


def _round(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _ceil(value: float) -> int:
    return int(-(-round(value, 6) // 1))  # 15 / 0.005 is 3000.0000000000005 in some floats
