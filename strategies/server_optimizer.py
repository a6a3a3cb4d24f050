"""The server's step: the mean of the clients' changes is a pseudo-gradient (Reddi et al., ICLR 2021, Algorithm 2).

With Δ = mean_S(θ_i) − θ̂:

    sgd       θ̂ ← θ̂ + η_g Δ
    momentum  m ← β₁ m + Δ;                 θ̂ ← θ̂ + η_g m
    adam      m ← β₁ m + (1−β₁) Δ,  v ← β₂ v + (1−β₂) Δ²;                   θ̂ ← θ̂ + η_g m/(√v + τ)
    yogi      m as adam,            v ← v − (1−β₂) Δ² sign(v − Δ²);         θ̂ ← θ̂ + η_g m/(√v + τ)

m = 0 and v = τ² at first, and no bias correction, as in the paper. ``sgd`` with η_g = 1 returns the mean itself, to the bit.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]


class ServerOptimizer:
    """One of the rules above; it holds m and v in float64.

    Args:
        settings: has ``server_optimizer``, ``server_lr`` (η_g), ``server_momentum`` (β₁), ``server_beta2``, ``server_tau``.

    Attributes:
        first, second: m and v of every floating array; empty until they are needed.
    """

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        self.first: dict[str, np.ndarray] = {}
        self.second: dict[str, np.ndarray] = {}

    def step(self, previous: Arrays, mean: Arrays) -> dict[str, np.ndarray]:
        """Return θ̂ after the step, in the dtypes of ``previous``; integer arrays are taken from ``mean``."""
        settings = self._settings
        if settings.server_optimizer == "sgd" and settings.server_lr == 1:
            return dict(mean)
        return {name: self._move(name, previous[name], array) for name, array in mean.items()}

    def _move(self, name: str, previous: np.ndarray, mean: np.ndarray) -> np.ndarray:
        if previous.dtype.kind != "f":
            return mean
        before = previous.astype(np.float64)
        change = self._settings.server_lr * self._direction(name, mean.astype(np.float64) - before)
        return np.asarray(before + change).astype(previous.dtype)

    def _direction(self, name: str, delta: np.ndarray) -> np.ndarray:
        settings, rule = self._settings, self._settings.server_optimizer
        if rule == "sgd":
            return delta
        beta1 = settings.server_momentum
        gain = 1.0 if rule == "momentum" else 1 - beta1
        self.first[name] = beta1 * self.first.get(name, np.zeros_like(delta)) + gain * delta
        if rule == "momentum":
            return self.first[name]
        square, old = delta**2, self.second.get(name, np.full_like(delta, settings.server_tau**2))
        fresh = 1 - settings.server_beta2
        self.second[name] = (
            settings.server_beta2 * old + fresh * square
            if rule == "adam"
            else old - fresh * square * np.sign(old - square)
        )
        return np.asarray(self.first[name] / (np.sqrt(self.second[name]) + settings.server_tau))
