"""FOCUS, the client half: EM over soft clusters (FOCUS paper, Algorithm 1; E-step eq. 8, local steps eqs. 4-6).

    E   log π_em ← log π_em − mean_{(x,y)∈D_e} ℓ(x, y; w_m),  then normalise          with the w_m just received
    M   θ_em ← w_m, then K SGD steps on D_e, for every m                              on the same mini-batches
    predict   Σ_m π_em softmax(h_{w_m}(x))                                            probabilities are mixed, not logits

| code | paper |
| --- | --- |
| ``models`` | w_1..w_M; M is ``strategy.num_clusters``, called G here because M is taken |
| ``log_pi``, ``pi`` | log π_e, π_e |
| ``client.local_steps`` | K |

π is kept as a logarithm, so that one that underflowed can come back. A client that has never taken part predicts with the π
of one E-step from uniform, and keeps nothing.
"""

import logging

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from clients.base import Work
from clients.clusters import ClusteredClient
from fedrage_flwr.clusters import join
from fedrage_flwr.cohort import Process
from fedrage_flwr.losses import Loss, cross_entropy

BELOW = 1000.0  # nats: exp(-1000) is 0 in float64, and -1000 is a number that later losses can outweigh

log = logging.getLogger(__name__)


class FocusClient(ClusteredClient):
    """One E-step and G local trainings a round."""

    trainings = "strategy.num_clusters"
    keeps_state = True

    def train(self) -> Process[Work]:
        """Send θ_em for every m, and π_e; keep log π_e."""
        log_pi = self.e_step()
        pi = np.exp(log_pi)
        trained = yield self.local_training(self.models)  # the G trainings share their mini-batches
        losses = trained.losses.mean(0).double().cpu().numpy().reshape(-1)
        heavy = pi > 0
        # A model of weight 0 may have run away: it must not make the whole reply unusable.
        models = [trained.models[m] if heavy[m] else self.models[m] for m in range(len(pi))]
        return Work(
            records={"arrays": join(enumerate(models)), "pi": {"value": pi}},
            metrics={"train-loss": float(losses[heavy] @ pi[heavy]), "pi_max": float(pi.max())},
            # One model leaves nothing to tell apart, and where clusters are still being chosen, nothing to remember.
            memory={"log_pi": {"value": log_pi}} if len(pi) > 1 else None,
        )

    def e_step(self) -> np.ndarray:
        """Return the new log π_e, float64 (G,)."""
        if len(self.models) == 1:
            return np.zeros(1)
        return responsibilities(self.prior(), self.losses())

    def prior(self) -> np.ndarray:
        """log π_e as it was after this client's last participation; uniform before the first."""
        if "log_pi" in self.task.memory:
            return self.task.memory["log_pi"]["value"]
        return np.full(len(self.models), -np.log(len(self.models)))

    def evaluate(self) -> dict[str, float | list[float]]:
        """Measure the mixture on this client's test part, with the π it kept or, if it never took part, of one E-step."""
        log_pi = self.prior() if "log_pi" in self.task.memory else self.e_step()
        outputs = mix(self.test_outputs(), log_pi, self.task.data.loss)
        return {**self.task.data.measure(outputs), "pi": np.exp(log_pi).tolist()}


def responsibilities(log_pi: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """The E-step in log space.

    Args:
        log_pi: log π_e before, (G,).
        losses: mean local loss of each cluster model, (G,). One that is not finite gives its cluster weight 0, unless all
            are: then π_e stays as it was.

    Returns:
        log π_e after, float64 (G,), all finite; the exponentials sum to 1.
    """
    finite = np.isfinite(losses)
    if not finite.any():
        log.warning("no cluster model has a finite loss here; the responsibilities stay as they were")
        return log_pi
    scores = log_pi - np.where(finite, losses, 0).astype(np.float64)
    scores[~finite] = scores[finite].min() - BELOW
    scores -= scores.max()
    normal: np.ndarray = scores - np.log(np.exp(scores).sum())
    return normal


@torch.no_grad()
def mix(outputs: Tensor, log_pi: np.ndarray, loss: Loss) -> Tensor:
    """Mix the predictions of G models.

    Args:
        outputs: (G, n, …): logits (G, n, classes) if the loss is the cross-entropy, else predictions.
        log_pi: log π_e, (G,).
        loss: the task's.

    Returns:
        (n, …): logarithms of the mixed probabilities, whose softmax are those; or mixed predictions.
    """
    heavy = np.flatnonzero(np.exp(log_pi) > 0)  # 0 · NaN would be NaN
    log_weights = torch.from_numpy(log_pi[heavy]).to(outputs.device).view(-1, *(1,) * (outputs.ndim - 1))
    outputs = outputs[torch.from_numpy(heavy).to(outputs.device)].double()
    if loss is cross_entropy:
        return torch.logsumexp(log_weights + functional.log_softmax(outputs, -1), 0)
    return (log_weights.exp() * outputs).sum(0)
