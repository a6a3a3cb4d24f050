"""Ditto, the server half (Li et al., ICML 2021, Algorithm 1): agnostic FedAvg; the personal models stay with the clients.

    θ̂ = (1/|S^t|) Σ_{i∈S^t} θ_i

The paper weighs clients by examples; here the mean is uniform, as in FedAvg, and equal to it to the bit.
"""

from strategies.base import BaseStrategy


class Ditto(BaseStrategy):
    """The plain mean; clients predict with models of their own.

    Aims at: Σ p_i f_i for the global model, as FedAvg; f_i(v) + (λ/2)‖v − θ̂‖² for each client's own.
    Stores: a model per client, on the client.
    Must know: nothing; clients keep state between rounds.
    """

    columns = ("personal_loss",)
    personal = True
