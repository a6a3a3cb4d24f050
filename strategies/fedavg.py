"""Agnostic FedAvg, the server half (FedeRage paper, Algorithm 1, line 6).

    θ̂ = (1/|S^t|) Σ_{i∈S^t} θ_i

Uniform over whoever arrived, never by number of examples. It minimises Σ p_i f_i with p_i = E[1{i∈S}/|S|] (eq. 8).
"""

from strategies.base import BaseStrategy


class FedAvg(BaseStrategy):
    """The plain mean, as it stands in the base class.

    Aims at: Σ p_i f_i for small steps, p_i = E[1{i∈S}/|S|]: frequent clients count more.
    Stores: nothing.
    Must know: nothing.
    """

    plain_mean = True
