"""Rare: ``weighted`` with weight 1, but ε for the last ``rare_clients`` ids (the skewed regime, ALGORITHMS §2)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedrage_flwr.availability.base import Floats
from fedrage_flwr.availability.weighted import Weighted
from fedrage_flwr.settings import Ge, Interval


class Rare(Weighted):
    """Successive sampling; the last ``rare_clients`` clients have weight ``epsilon``."""

    @dataclass(frozen=True)
    class Settings:
        name: Literal["rare"]
        epsilon: Annotated[float, Interval(gt=0, le=1)]  # ε, weight of a rare client
        clients_per_round: Annotated[int, Ge(1)]  # M

    def _prior_log_weights(self) -> Floats:
        log_weights = np.zeros(self.num_clients)
        log_weights[self.num_clients - self.rare_clients :] = np.log(self.settings.epsilon)
        return log_weights
