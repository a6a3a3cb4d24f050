"""Differential privacy of clients: a strategy whose mean is clipped and noised before anything is made of it.

    Δ_i ← (x_i − x̂) · min(1, C/‖x_i − x̂‖)            for each record x: the model, FedeRage's β, each with its own C
    x̂  ← x̂ + (1/|S|) Σ_{i∈S} Δ_i + N(0, (zC/|S|)²)   what the server's optimiser and all later rounds see

This is the Gaussian mechanism of McMahan et al. (ICLR 2018) with a fixed bound. Clipping and the size of the noise are Flower's
functions; its wrappers are not used, because they bring their own loop over rounds and allow one record. Its noise function draws
from NumPy's global generator; here the noise is derived from (seed, stream, round, record), as every other draw.

| code | paper |
| --- | --- |
| ``clip``, ``clip_others`` | C (their S) of the model and of each further record |
| ``noise_multiplier`` | z |

**What ε says.** Two runs are neighbours if in one of them everything that one client sent is replaced by "no change", |S|
being the same. Then a record's mean moves by at most C/|S|. R records released with the same z are one release with z/√R, and
a client that was counted in k rounds is exposed to k releases: ε is that of the client counted most often. *No amplification
by sampling is claimed*: it needs clients drawn by a known law and hidden from whoever looks, and the Random Access Model
promises neither. The server is trusted; what is private are the models and records it sends or saves, not the losses in its
tables, nor who took part. How often a client comes must not depend on its data.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from math import sqrt
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, SamplingMethod
from flwr.supercore.differential_privacy import clip_inputs_inplace, compute_stdv, get_norm

from fedrage_flwr.errors import UserError
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.records import Arrays, to_arrays, weighted_mean
from fedrage_flwr.rounds import Update
from strategies.base import BaseStrategy

BOOK = "private"  # the name in ``memory``


def private(chosen: type[BaseStrategy], privacy: Any, seed: int, secret: int | None = None) -> type[BaseStrategy]:
    """Return ``chosen`` with a private mean.

    Args:
        chosen: a strategy of which everything it does with replies is the plain mean.
        privacy: the settings of the ``privacy`` section, with a number as ``clip``.
        seed: of the run; whoever knows it can take the noise away, if there is no secret.
        secret: on real nodes, which are told the seed: a number drawn for this process alone. A resumed run must not use the
            same noise on other replies. Up to one release may be lost behind a checkpoint: it is counted at every resume.

    Raises:
        UserError: the strategy makes something else of the replies, or the accountant's library is missing.
    """
    if not chosen.plain_mean:
        raise UserError(
            f"privacy.clip={privacy.clip:g}: {chosen.__name__} makes more of the replies than their plain mean, which is all that"
            " is made private"
        )
    if privacy.noise_multiplier and find_spec("dp_accounting") is None:
        raise UserError(
            "privacy.noise_multiplier: accounting needs another library: pip install 'fedrage-flwr[privacy]'"
        )
    bound: float = privacy.clip
    noise_seed = seed if secret is None else secret

    class Private(chosen):  # type: ignore[valid-type, misc]  # a class that is an argument
        __doc__ = chosen.__doc__

        def __init__(self, settings: Any, client: Any, num_clients: int) -> None:
            super().__init__(settings, client, num_clients)
            self.memory[BOOK] = {"contributions": np.zeros(num_clients, np.int64)}

        def initial_records(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
            first = to_arrays(arrays)
            others = sorted(first.keys() - set(self.parameter_names(first)))
            if others:
                raise UserError(f"privacy.clip={bound:g}: {others[0]} of the model is no parameter, and gets no noise")
            records: dict[str, ArrayRecord] = super().initial_records(arrays)
            return records

        def reduce(self, updates: Sequence[Update]) -> ArrayRecord:
            counts = self.memory[BOOK]["contributions"].copy()
            counts[[update.client for update in updates]] += 1
            self.memory[BOOK] = {"contributions": counts}
            arrays: ArrayRecord = super().reduce(updates)
            return arrays

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            super().load_state_dict(state)
            if secret is not None:
                self.memory[BOOK] = {"contributions": self.memory[BOOK]["contributions"] + 1}

        def mean(
            self, updates: Sequence[Update], record: str, weights: Sequence[float] | None = None
        ) -> dict[str, np.ndarray]:
            norm = bound if record == "arrays" else privacy.clip_others
            centre = to_arrays(self.broadcast[record])
            clipped = [clip(to_arrays(update.records[record]), centre, norm) for update in updates]
            mean = weighted_mean(clipped, weights)
            deviation = compute_stdv(privacy.noise_multiplier, norm, len(updates))
            place = 0 if record == "arrays" else 1 + sorted(self.records).index(record)
            rng = generator(noise_seed, Stream.PRIVACY, self.round, place)
            noised = add_noise(mean, deviation, rng)
            return {name: noised[name].astype(array.dtype) for name, array in centre.items()}

        def summary_entries(self) -> dict[str, Any]:
            releases = int(self.memory[BOOK]["contributions"].max())
            multiplier = privacy.noise_multiplier / sqrt(1 + len(self.records))
            epsilon = gaussian_epsilon(multiplier, releases, privacy.delta, self.num_clients)
            entries: dict[str, Any] = super().summary_entries()
            return {**entries, "epsilon": epsilon, "delta": privacy.delta, "privacy_releases": releases}

    return Private


def clip(arrays: Arrays, centre: Arrays, norm: float) -> dict[str, np.ndarray]:
    """Move ``arrays`` towards ``centre`` to an L2 distance of ``norm``; what is no farther stays where it is. Float64."""
    exact = {name: array.astype(np.float64) for name, array in arrays.items()}
    change = [array - centre[name] for name, array in exact.items()]
    if get_norm(change) <= norm:
        return exact
    change = [np.atleast_1d(array) for array in change]  # a 0-d difference is a scalar, which has no in-place form
    clip_inputs_inplace(change, norm)
    return {name: (centre[name] + delta.reshape(exact[name].shape)) for name, delta in zip(exact, change, strict=True)}


def add_noise(arrays: Arrays, deviation: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Add independent Gaussian noise to every number."""
    if not deviation:
        return dict(arrays)
    return {name: np.asarray(array + rng.normal(0.0, deviation, array.shape)) for name, array in arrays.items()}


def gaussian_epsilon(noise_multiplier: float, releases: int, delta: float, num_clients: int) -> float | None:
    """Return ε at ``delta`` of so many Gaussian releases, without amplification; None where there is no bound."""
    if not releases:
        return 0.0
    if not noise_multiplier:
        return None
    from flwr.serverapp import RdpAccountant  # needs dp_accounting

    relation, sampling = NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
    accountant = RdpAccountant(PrivacyConfig(delta, num_clients, relation, sampling))
    accountant.compose(GaussianPrivacyEvent(noise_multiplier, num_clients, num_clients), releases)
    return accountant.get_epsilon(delta)
