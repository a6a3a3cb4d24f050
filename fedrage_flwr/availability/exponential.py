"""Exponential: ``weighted`` with q_i ∝ e^{−i/τ}, i the partition id: a long tail instead of two kinds of client."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedrage_flwr.availability.base import Floats
from fedrage_flwr.availability.weighted import Weighted
from fedrage_flwr.settings import Ge, Gt


class Exponential(Weighted):
    """Successive sampling; weights fall by e every τ clients."""

    @dataclass(frozen=True)
    class Settings:
        name: Literal["exponential"]
        tau: Annotated[float, Gt(0)]  # τ, in clients
        clients_per_round: Annotated[int, Ge(1)]  # M

    def _prior_log_weights(self) -> Floats:
        tau: float = self.settings.tau
        return -np.arange(self.num_clients) / tau
