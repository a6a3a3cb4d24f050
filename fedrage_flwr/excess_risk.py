"""What each client could attain on its own: min_w L_e(w), from which excess risks and FAA are reckoned.

FOCUS paper, Definition 3.1: ℰ_e(θ) = L_e(θ) − min_w L_e(w). The minimum is estimated by training the run's own model on that
client's data alone (or on all data of its true group, whose distribution it shares) and measuring it on the client's test
part. Each step size of a grid is tried, falling to zero over the training; the one whose model is best on the owner's
validation part is taken. (Choosing a moment of each training as well would fit the few validation examples: on the linear
model it cost 7 % of the noise variance.)

An estimate is kept on disk under a hash of everything it depends on. It is an estimate: a federated model may do better on
a client's test part than the client alone, and its excess risk is then below zero.
"""

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedrage_flwr.cache import cache_folder, replace_file
from fedrage_flwr.data import Dataset, Partition
from fedrage_flwr.data.partition.sharing import Indices
from fedrage_flwr.errors import UserError
from fedrage_flwr.losses import LOSSES
from fedrage_flwr.models import ModelSettings, build_model
from fedrage_flwr.progress import counting
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.training import LocalModel, Tensors, draw_batches, local_sgd

if TYPE_CHECKING:  # the processes that train need none of what it imports
    from fedrage_flwr.config import Config

log = logging.getLogger(__name__)

VERSION = 1  # of the procedure: a change of it makes old estimates void
STAIRS = 100  # equal falls of the step size, the last of them to zero
FEW = 3  # up to so many trainings are done here: starting processes takes longer


@dataclass(frozen=True)
class Recipe:
    """What all trainings have in common.

    Attributes:
        model: settings of the model; its start depends on ``seed``.
        input_shape, num_classes: of the data set.
        loss: a name in ``LOSSES``.
        steps, batch_size: of one training.
        lrs: the grid of step sizes, each that of the first steps.
        device: where the arithmetic runs.
        threads: torch threads.
    """

    model: ModelSettings
    input_shape: tuple[int, ...]
    num_classes: int
    loss: str
    steps: int
    batch_size: int
    lrs: tuple[float, ...]
    seed: int
    device: str
    threads: int


@dataclass(frozen=True, eq=False)
class Examples:
    """Model inputs, float32 (n, …), and targets (n,)."""

    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True, eq=False)
class Owner:
    """A client, or all clients of a group: data to train on, and one test part for each of the ``clients``."""

    clients: tuple[int, ...]
    train: Examples
    validation: Examples
    tests: tuple[Examples, ...]


@dataclass(frozen=True)
class Attained:
    """The result of one owner: test loss of each of its clients, and the step size chosen (0: the start is best)."""

    losses: tuple[float, ...]
    lr: float


def check(config: "Config", partition: Partition, on_demand: bool = False) -> None:
    """Raise ``UserError`` where ``evaluate.faa`` cannot be had, as with clients made on demand."""
    if not config.evaluate.faa:
        return
    if on_demand:
        raise UserError(f"evaluate.faa=true: dataset={config.dataset.name} keeps no client's data; give false")
    if config.evaluate.faa_by == "group" and partition.groups is None:
        raise UserError(
            f"evaluate.faa_by=group: dataset={config.dataset.name} with partition={config.partition.name} has no true groups;"
            " give evaluate.faa_by=client"
        )
    if not any(len(client.validation) for client in partition.clients):
        raise UserError(
            "evaluate.faa=true: no client has validation examples to choose a step size on; raise partition.validation_fraction"
        )


def attainable_losses(config: "Config", dataset: Dataset, partition: Partition, device: torch.device) -> np.ndarray:
    """Return the estimate of min_w L_e(w) for every client, shape (clients,); NaN where there is no data to judge by."""
    found = np.full(len(partition.clients), np.nan)
    recipe = Recipe(
        config.model,
        dataset.input_shape,
        dataset.num_classes,
        dataset.loss,
        config.evaluate.faa_steps,
        config.evaluate.faa_batch_size,
        tuple(config.evaluate.faa_lrs),
        config.seed,
        device.type,
        config.engine.threads,
    )
    teams = [[i] for i in range(len(found))]
    if config.evaluate.faa_by == "group":
        assert partition.groups is not None
        teams = [np.flatnonzero(partition.groups == group).tolist() for group in np.unique(partition.groups)]
    owners = [owner for team in teams if (owner := _owner(dataset, partition, team)) is not None]
    results = attain(recipe, owners, cache_folder(config.evaluate.cache) / "attainable")
    for owner, result in zip(owners, results, strict=True):
        found[list(owner.clients)] = result.losses
    _report(found, results, recipe)
    return found


def _owner(dataset: Dataset, partition: Partition, team: Sequence[int]) -> Owner | None:
    parts = [partition.clients[client] for client in team]

    def pooled(kind: str) -> Indices:
        return np.concatenate([getattr(part, kind) for part in parts])

    def of_train(positions: Indices) -> Examples:
        chosen = torch.from_numpy(positions)
        return Examples(dataset.to_float(dataset.train.inputs[chosen]), dataset.train.labels[chosen])

    train, validation = pooled("train"), pooled("validation")
    tested = [client for client, part in zip(team, parts, strict=True) if len(part.test)]
    if not len(train) or not len(validation) or not tested:
        return None
    tests = []
    for client in tested:
        chosen = torch.from_numpy(partition.clients[client].test)
        tests.append(Examples(dataset.to_float(dataset.test.inputs[chosen]), dataset.test.labels[chosen]))
    return Owner(tuple(tested), of_train(train), of_train(validation), tuple(tests))


def _report(found: np.ndarray, results: Sequence[Attained], recipe: Recipe) -> None:
    unknown = int(np.isnan(found).sum())
    if unknown:
        log.info("%d clients lack training, validation or test examples and are left out of FAA", unknown)
    chosen = Counter(result.lr for result in results)
    log.info("step sizes chosen for the attainable losses: %s", dict(sorted(chosen.items())))
    edge = chosen[max(recipe.lrs)] + (chosen[min(recipe.lrs)] if len(recipe.lrs) > 1 else 0)
    if edge:
        log.info("%d of %d lie at an end of evaluate.faa_lrs=%s", edge, len(results), list(recipe.lrs))


def attain(recipe: Recipe, owners: Sequence[Owner], cache: Path) -> list[Attained]:
    """Return one result per owner, from the cache where it is there; the others are computed on all cores."""
    paths = [cache / f"{_key(recipe, owner)}.json" for owner in owners]
    results: dict[int, Attained] = {k: kept for k, path in enumerate(paths) if (kept := _read(path)) is not None}
    log.info("attainable losses: %d trainings, %d of them from the cache", len(owners), len(results))
    missing = [k for k in range(len(owners)) if k not in results]
    computed = _compute(recipe, {k: owners[k] for k in missing})
    for k, result in counting(computed, "attainable losses", len(missing)):
        results[k] = result
        text = json.dumps(asdict(result), allow_nan=False)
        replace_file(paths[k], lambda file, text=text: file.write(text.encode()))  # type: ignore[misc]
    return [results[k] for k in range(len(owners))]


def _compute(recipe: Recipe, owners: dict[int, Owner]) -> Iterator[tuple[int, Attained]]:
    workers = min(cores(), len(owners))
    if len(owners) <= FEW or workers == 1 or recipe.device != "cpu":
        for k, owner in owners.items():
            yield k, train_alone(recipe, owner)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        # tensors would travel as handles of shared memory, of which a process may hold a limited number
        futures = {pool.submit(_train_packed, recipe, _pack(owner)): k for k, owner in owners.items()}
        for future in as_completed(futures):
            yield futures[future], future.result()


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pack(owner: Owner) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(part.inputs.numpy(), part.targets.numpy()) for part in (owner.train, owner.validation, *owner.tests)]


def _train_packed(recipe: Recipe, arrays: list[tuple[np.ndarray, np.ndarray]]) -> Attained:
    torch.set_num_threads(recipe.threads)
    train, validation, *tests = (Examples(torch.from_numpy(x), torch.from_numpy(y)) for x, y in arrays)
    return train_alone(recipe, Owner(tuple(range(len(tests))), train, validation, tuple(tests)))


def train_alone(recipe: Recipe, owner: Owner) -> Attained:
    """Train on the owner's data once per step size and return what the model best on its validation part attains."""
    module = build_model(recipe.model, recipe.input_shape, recipe.num_classes, recipe.seed)
    model = LocalModel(module, LOSSES[recipe.loss], recipe.device)
    train, validation, *tests = (_to(part, model.device) for part in (owner.train, owner.validation, *owner.tests))
    start = best = model.arrays()
    lowest, chosen = _loss(model, validation), 0.0
    for lr in recipe.lrs:
        model.load(start)
        _train(model, train, recipe, lr)
        loss = _loss(model, validation)
        if loss < lowest:  # not so for NaN: a step size that diverged
            best, lowest, chosen = model.arrays(), loss, lr
    model.load(best)
    return Attained(tuple(_loss(model, test) for test in tests), chosen)


def _train(model: LocalModel, train: Examples, recipe: Recipe, lr: float) -> None:
    """SGD from where the model stands, the step size falling to zero."""
    rng = generator(recipe.seed, Stream.OPTIMUM)
    stairs = min(STAIRS, recipe.steps)
    for k in range(stairs):
        steps = recipe.steps * (k + 1) // stairs - recipe.steps * k // stairs
        batches = torch.from_numpy(draw_batches(rng, len(train.targets), recipe.batch_size, steps)).to(model.device)
        local_sgd(model, train.inputs[batches], train.targets[batches], Plain(), lr * (stairs - k) / stairs)


class Plain:
    """Hooks of plain SGD."""

    def step_weight(self, loss: Tensor) -> Tensor | None:
        """Every step counts as 1."""
        return None

    def direction(self, parameters: Tensors) -> Tensors | None:
        """Nothing is added to the gradient."""
        return None

    def update_state(self, weight: Tensor | None) -> None:
        """Nothing to move."""


def _loss(model: LocalModel, part: Examples) -> float:
    return float(model.example_loss(model.outputs(part.inputs), part.targets).double().mean())


def _to(part: Examples, device: torch.device) -> Examples:
    return Examples(part.inputs.to(device), part.targets.to(device))


def _key(recipe: Recipe, owner: Owner) -> str:
    """Hash of everything a result depends on."""
    digest = hashlib.sha256(f"{VERSION} {recipe} {len(owner.tests)}".encode())
    for part in (owner.train, owner.validation, *owner.tests):
        for tensor in (part.inputs, part.targets):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(np.ascontiguousarray(tensor.numpy()).data)
    return digest.hexdigest()[:40]


def _read(path: Path) -> Attained | None:
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Attained(tuple(map(float, kept["losses"])), float(kept["lr"]))
    except (OSError, ValueError, KeyError, TypeError):  # absent, or not what we write: computed again
        return None
