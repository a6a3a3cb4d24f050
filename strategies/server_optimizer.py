"""The server's step: the mean of the clients' changes is a pseudo-gradient (Reddi et al., ICLR 2021, Algorithm 2).

With Δ = mean_S(θ_i) − θ̂:

    sgd       θ̂ ← θ̂ + η_g Δ
    momentum  m ← β₁ m + Δ;                 θ̂ ← θ̂ + η_g m
    adam      m ← β₁ m + (1−β₁) Δ,  v ← β₂ v + (1−β₂) Δ²;                   θ̂ ← θ̂ + η_g m/(√v + τ)
    yogi      m as adam,            v ← v − (1−β₂) Δ² sign(v − Δ²);         θ̂ ← θ̂ + η_g m/(√v + τ)

m = 0 and v = τ² at first, and no bias correction, as in the paper. ``sgd`` with η_g = 1 returns the mean itself, to the bit.

Flower's own strategies weigh clients by numbers of examples; where those are equal, and only then, they compare thus:

| here | Flower 1.42 | |
| --- | --- | --- |
| momentum | FedAvgM | the same |
| yogi | FedYogi | v = 0 at first |
| adam | FedAdam | v = 0 at first, η_g √(1−β₂^(t+1))/(1−β₁^(t+1)) in round t = 1, 2, … in place of η_g, float64 returned |

Flower's also step integer arrays and floating buffers, which here are the clients' largest and mean.
"""

from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]
Memory = MutableMapping[str, dict[str, np.ndarray]]


class ServerOptimizer:
    """One of the rules above.

    Args:
        settings: has ``server_optimizer``, ``server_lr`` (η_g), ``server_momentum`` (β₁), ``server_beta2``, ``server_tau``.
    """

    def __init__(self, settings: Any) -> None:
        self._settings = settings

    def step(self, previous: Arrays, mean: Arrays, memory: Memory) -> dict[str, np.ndarray]:
        """Return θ̂ after the step.

        Args:
            previous: θ̂ before it; gives the dtypes, all floating.
            mean: mean_S(θ_i); its arrays are stepped, whatever else ``previous`` holds.
            memory: what the server keeps; m and v live there in float64, as ``first_moment`` and ``second_moment``.
        """
        settings = self._settings
        if settings.server_optimizer == "sgd" and settings.server_lr == 1:
            return dict(mean)
        return {name: self._move(name, previous[name], array, memory) for name, array in mean.items()}

    def _move(self, name: str, previous: np.ndarray, mean: np.ndarray, memory: Memory) -> np.ndarray:
        before = previous.astype(np.float64)
        change = self._settings.server_lr * self._direction(name, mean.astype(np.float64) - before, memory)
        return np.asarray(before + change).astype(previous.dtype)

    def _direction(self, name: str, delta: np.ndarray, memory: Memory) -> np.ndarray:
        settings, rule = self._settings, self._settings.server_optimizer
        if rule == "sgd":
            return delta
        beta1 = settings.server_momentum
        gain = 1.0 if rule == "momentum" else 1 - beta1
        first = memory.setdefault("first_moment", {})
        first[name] = np.asarray(beta1 * first.get(name, np.zeros_like(delta)) + gain * delta)
        if rule == "momentum":
            return first[name]
        second, fresh = memory.setdefault("second_moment", {}), 1 - settings.server_beta2
        square, old = delta**2, second.get(name, np.full_like(delta, settings.server_tau**2))
        second[name] = np.asarray(
            settings.server_beta2 * old + fresh * square
            if rule == "adam"
            else old - fresh * square * np.sign(old - square)
        )
        return np.asarray(first[name] / (np.sqrt(second[name]) + settings.server_tau))
