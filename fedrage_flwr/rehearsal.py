"""A few rounds in memory, for what they cost in bytes and seconds: nothing is written, nothing is kept."""

import time
from dataclasses import dataclass, replace

import torch
from flwr.app import ConfigRecord

from clients.base import write_settings
from fedrage_flwr.callbacks import LAST_ROUNDS
from fedrage_flwr.config import Config
from fedrage_flwr.grids.inline import InlineSettings
from fedrage_flwr.parts import Prepared, WorkspaceFactory, make_grid, make_local_model, make_measure, make_strategy
from fedrage_flwr.records import to_record
from fedrage_flwr.rounds import Round

MOST_ROUNDS, MOST_SECONDS = 12, 3.0  # whichever comes first, but two rounds at least: the first one warms up


@dataclass(frozen=True)
class Costs:
    """What was measured.

    Attributes:
        rounds: how many were measured.
        bytes_up, bytes_down: of one participant in one round.
        participant_seconds: of one participant in one round, the server's share included.
        evaluation_seconds: of one evaluation.
    """

    rounds: int
    bytes_up: float
    bytes_down: float
    participant_seconds: float
    evaluation_seconds: float

    def total_seconds(self, config: Config, participants: float) -> float:
        """Seconds of a whole run with so many participants a round, evaluations included."""
        one_round = participants * self.participant_seconds
        return config.num_rounds * one_round + (evaluations(config) + 1) * self.evaluation_seconds  # 1: the average


def evaluations(config: Config) -> int:
    """How many rounds are evaluated."""
    last = min(LAST_ROUNDS, config.num_rounds)
    return last + (config.num_rounds - last) // config.eval_every


class _Stopwatch:
    """Keeps rounds in which somebody came, and ends the rehearsal."""

    def __init__(self) -> None:
        self.rounds: list[Round] = []
        self._started = time.perf_counter()

    def after_round(self, round: Round) -> None:
        """Count."""
        if round.updates:
            self.rounds.append(round)
        late = time.perf_counter() - self._started > MOST_SECONDS
        if len(self.rounds) >= MOST_ROUNDS or (late and len(self.rounds) >= 2):
            round.stop = "measured"


def rehearse(prepared: Prepared) -> Costs | None:
    """Run a few rounds in this process and evaluate once; None where no reply could be used in any round.

    Clients run one after another here, also where ``backend`` would run them side by side.
    """
    config = replace(prepared.config, backend=InlineSettings("inline"))
    torch.set_num_threads(config.engine.threads)
    strategy = make_strategy(config, prepared.manager)
    model = make_local_model(config, prepared.dataset, prepared.device)
    strategy.untrained = frozenset(model.arrays()) - frozenset(model.parameter_names)
    train_config = ConfigRecord({"seed": config.seed, **write_settings(config.client)})
    grid = make_grid(config, WorkspaceFactory(config, prepared.dataset, prepared.partition), prepared.device)
    watch = _Stopwatch()
    arrays = strategy.start(
        grid,
        initial_arrays=strategy.initial_arrays(
            lambda k: to_record(make_local_model(config, prepared.dataset, prepared.device, k).arrays())
        ),
        num_rounds=config.num_rounds,
        timeout=None,
        train_config=train_config,
        manager=prepared.manager,
        callbacks=[watch],
    ).arrays
    if not watch.rounds:
        return None
    measure = make_measure(prepared, strategy, grid, train_config)
    started = time.perf_counter()
    measure(strategy.reported(arrays), config.num_rounds)
    return _costs(watch.rounds, time.perf_counter() - started)


def _costs(rounds: list[Round], evaluation_seconds: float) -> Costs:
    warm = rounds[1:] or rounds
    participants = sum(len(round.outcomes) for round in warm)
    return Costs(
        rounds=len(rounds),
        bytes_up=sum(round.bytes_up for round in warm) / participants,
        bytes_down=sum(round.bytes_down for round in warm) / participants,
        participant_seconds=sum(round.seconds for round in warm) / participants,
        evaluation_seconds=evaluation_seconds,
    )
