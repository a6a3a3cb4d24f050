"""FedProx, the server half (Li et al., MLSys 2020, Algorithm 2).

    θ̂ = (1/|S^t|) Σ_{i∈S^t} θ_i

The server does what agnostic FedAvg's does; the proximal term is the clients' (``clients.fedprox``). Flower's own FedProx
weighs by numbers of examples and leaves the term to whoever writes the client.
"""

from strategies.base import BaseStrategy


class FedProx(BaseStrategy):
    """The plain mean, as it stands in the base class.

    Aims at: Σ p_i f_i for small steps, as FedAvg; the pull μ shortens each client's way.
    Stores: nothing.
    Must know: nothing.
    """
