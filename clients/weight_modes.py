"""Is FedeRage only a bigger step? An ablation that keeps participants, batches and β, and replaces the step weights.

Let W (|S|, H) be the weights FedeRage gives in this round, each client starting from the broadcast. The model's steps of client i
are weighed with

| ``client.weight_mode`` | weight of step h |
| --- | --- |
| ``loss`` | the algorithm: w from the loss of the step |
| ``shuffle_round`` | W[π(i), h]: the weights of the round permuted among its clients |
| ``shuffle_time`` | drawn independently from all entries of W: the same distribution, no dependence on client or step |
| ``between`` | mean_h W[i, h]: which client counts more, not which step |
| ``within`` | W[i, h] / mean_h W[i, h]: which step counts more, not which client |
| ``matched`` | FedAvg with the mean weight that an earlier run logged for this round (``strategy.weight_log``) |

Computing W takes the data of the round's other clients: ``shuffle_round`` and ``shuffle_time`` exist in simulation only.
"""

import dataclasses
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from clients.base import Task
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.training import local_sgd

if TYPE_CHECKING:
    from clients.federage import FedeRageClient

WeightMode = Literal["loss", "shuffle_round", "shuffle_time", "between", "within", "matched"]


def replaced_weights(task: Task, algorithm: "type[FedeRageClient]") -> Tensor:
    """Return the weights of client i's H steps, shape (H,), on its device."""
    mode = task.settings.weight_mode
    device = task.workspace.model.device
    if mode == "matched":
        return torch.full((task.settings.local_steps,), float(task.config["step-weight"]), device=device)
    if mode in ("between", "within"):
        own = _weights(task, task.data.partition, algorithm)
        mean = own.mean()
        return mean.expand_as(own) if mode == "between" else own / mean
    participants = list(task.config["participants"])
    if mode == "shuffle_round":
        order = generator(task.seed, Stream.ABLATION, task.round).permutation(participants).tolist()
        return _weights(task, order[participants.index(task.data.partition)], algorithm)
    pooled = torch.cat([_weights(task, i, algorithm) for i in participants])
    rng = generator(task.seed, Stream.ABLATION, task.round, task.data.partition)
    return pooled[torch.from_numpy(rng.integers(len(pooled), size=task.settings.local_steps)).to(device)]


def _weights(task: Task, client: int, algorithm: "type[FedeRageClient]") -> Tensor:
    """One row of W: the algorithm itself, run from the broadcast on the client's own batches of this round."""
    settings = dataclasses.replace(task.settings, weight_mode="loss")
    task = dataclasses.replace(task, settings=settings, data=task.workspace.client(client))
    hooks, model = algorithm(task), task.workspace.model
    model.load(task.received["arrays"])
    local_sgd(model, *task.data.gather(task.batches()), hooks, settings.lr, settings.theta_radius)
    return torch.stack(hooks.weights)
