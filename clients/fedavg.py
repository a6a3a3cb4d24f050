"""Agnostic FedAvg, the client half: H plain SGD steps (FedeRage paper, Algorithm 1, line 10).

θ_i ← Π_C(θ_i − η_θ ∇f_i(θ_i; ξ_i))
"""

from clients.base import ClientAlgorithm


class FedAvgClient(ClientAlgorithm):
    """Local SGD as it stands in the base class."""
