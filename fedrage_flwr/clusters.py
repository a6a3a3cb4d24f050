"""Several models of one architecture in one record: array ``name`` of model m is ``cluster{m}.{name}``."""

from collections.abc import Iterable, Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]


def prefixed(cluster: int, name: str) -> str:
    """Return the name that array ``name`` of one model has among those of all."""
    return f"cluster{cluster}.{name}"


def join(models: Iterable[tuple[int, Arrays]]) -> dict[str, np.ndarray]:
    """Put the arrays of numbered models side by side; ``split`` undoes it for models 0..G-1."""
    return {prefixed(m, name): array for m, arrays in models for name, array in arrays.items()}


def split(arrays: Arrays) -> list[dict[str, np.ndarray]]:
    """Return the G models of a record made by ``join``.

    Raises:
        KeyError: the numbers are not 0..G-1.
        ValueError: a name without a number.
    """
    models: dict[int, dict[str, np.ndarray]] = {}
    for full_name, array in arrays.items():
        cluster, _, name = full_name.partition(".")
        models.setdefault(int(cluster.removeprefix("cluster")), {})[name] = array
    return [models[m] for m in range(len(models))]


def count(names: Iterable[str]) -> int:
    """Return G, how many models these names belong to."""
    return len({name.partition(".")[0] for name in names})
