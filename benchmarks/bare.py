"""The loops a researcher writes in PyTorch: one model, ``torch.optim.SGD``, one client after another, nothing around it.

Each does the arithmetic of its algorithm on data held as float32, converted once, which is in its favour: ours holds bytes and
converts each batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

State = dict[str, Tensor]


@dataclass(frozen=True)
class Job:
    """What a loop works on.

    Attributes:
        make_model: gives the k-th of different random networks.
        inputs, labels: of all clients, float32 (n, …) and int64 (n,).
        clients, examples: N, and how many examples each holds, in order.
        participants: M.
        client: the settings of the ``client`` section.
    """

    make_model: Callable[[int], nn.Module]
    inputs: Tensor
    labels: Tensor
    clients: int
    examples: int
    participants: int
    client: Any

    def batch(self, rng: np.random.Generator, i: int) -> tuple[Tensor, Tensor]:
        """Draw one mini-batch of client i."""
        chosen = torch.from_numpy(i * self.examples + rng.choice(self.examples, self.client.batch_size, replace=False))
        return self.inputs[chosen], self.labels[chosen]

    def participants_of(self, rng: np.random.Generator) -> list[int]:
        """Draw M of N."""
        drawn: list[int] = rng.choice(self.clients, self.participants, replace=False).tolist()
        return drawn


def copy(module: nn.Module) -> State:
    """Its parameters now."""
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def fedavg(job: Job) -> Callable[[int], None]:
    """Agnostic FedAvg."""
    model, loss_function = job.make_model(0), nn.CrossEntropyLoss()

    def run(rounds: int) -> None:
        rng, state = np.random.default_rng(0), copy(model)
        for _ in range(rounds):
            mean = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
            for i in job.participants_of(rng):
                model.load_state_dict(state)
                optimizer = torch.optim.SGD(model.parameters(), lr=job.client.lr)
                for _ in range(job.client.local_steps):
                    x, y = job.batch(rng, i)
                    optimizer.zero_grad()
                    loss_function(model(x), y).backward()
                    optimizer.step()
                for name, tensor in model.state_dict().items():
                    mean[name] += tensor / job.participants
            state = mean

    return run


def federage(job: Job) -> Callable[[int], None]:
    """FedAvg, its loss weighted by whether it reaches β."""
    model, loss_function, client = job.make_model(0), nn.CrossEntropyLoss(), job.client

    def run(rounds: int) -> None:
        rng, state, beta = np.random.default_rng(0), copy(model), 0.0
        for _ in range(rounds):
            mean = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
            betas = []
            for i in job.participants_of(rng):
                model.load_state_dict(state)
                optimizer, own = torch.optim.SGD(model.parameters(), lr=client.lr), beta
                for _ in range(client.local_steps):
                    x, y = job.batch(rng, i)
                    optimizer.zero_grad()
                    loss = loss_function(model(x), y)
                    weight = 1 - client.gamma + (client.gamma / client.alpha if loss.item() >= own else 0.0)
                    (weight * loss).backward()
                    optimizer.step()
                    own = min(max(own - client.lr_beta * (1 - weight), client.beta_range[0]), client.beta_range[1])
                betas.append(own)
                for name, tensor in model.state_dict().items():
                    mean[name] += tensor / job.participants
            state, beta = mean, sum(betas) / len(betas)

    return run


def scaffold(job: Job) -> Callable[[int], None]:
    """Control variates, option II."""
    model, loss_function, client = job.make_model(0), nn.CrossEntropyLoss(), job.client

    def run(rounds: int) -> None:
        rng, state = np.random.default_rng(0), copy(model)
        control = [torch.zeros_like(p) for p in model.parameters()]
        controls: dict[int, list[Tensor]] = {}
        for _ in range(rounds):
            mean = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
            moved = [torch.zeros_like(c) for c in control]
            for i in job.participants_of(rng):
                model.load_state_dict(state)
                start = [p.detach().clone() for p in model.parameters()]
                own = controls.get(i) or [torch.zeros_like(c) for c in control]
                optimizer = torch.optim.SGD(model.parameters(), lr=client.lr)
                for _ in range(client.local_steps):
                    x, y = job.batch(rng, i)
                    optimizer.zero_grad()
                    loss_function(model(x), y).backward()
                    for p, c_i, c in zip(model.parameters(), own, control, strict=True):
                        assert p.grad is not None
                        p.grad += c - c_i
                    optimizer.step()
                scale = 1 / (client.local_steps * client.lr)
                new = [
                    c_i - c + scale * (s - p.detach())
                    for c_i, c, s, p in zip(own, control, start, model.parameters(), strict=True)
                ]
                for total, c_new, c_i in zip(moved, new, own, strict=True):
                    total += c_new - c_i
                controls[i] = new
                for name, tensor in model.state_dict().items():
                    mean[name] += tensor / job.participants
            state = mean
            for c, total in zip(control, moved, strict=True):
                c += total / job.clients

    return run


def focus(job: Job, clusters: int = 3) -> Callable[[int], None]:
    """The E-step over all local data, then a training by itself for each cluster."""
    model, loss_function, client = job.make_model(0), nn.CrossEntropyLoss(), job.client
    starts = [copy(job.make_model(m)) for m in range(clusters)]

    def run(rounds: int) -> None:
        rng, states = np.random.default_rng(0), starts
        log_pi: dict[int, Tensor] = {}
        for _ in range(rounds):
            sums = [{name: torch.zeros_like(t) for name, t in state.items()} for state in states]
            total = torch.zeros(clusters)
            for i in job.participants_of(rng):
                own = slice(i * job.examples, (i + 1) * job.examples)
                x_all, y_all = job.inputs[own], job.labels[own]
                losses = []
                with torch.no_grad():
                    for state in states:
                        model.load_state_dict(state)
                        losses.append(loss_function(model(x_all), y_all))
                log_pi[i] = torch.log_softmax(log_pi.get(i, torch.zeros(clusters)) - torch.stack(losses), 0)
                batches = [job.batch(rng, i) for _ in range(client.local_steps)]
                for m, state in enumerate(states):
                    model.load_state_dict(state)
                    optimizer = torch.optim.SGD(model.parameters(), lr=client.lr)
                    for x, y in batches:
                        optimizer.zero_grad()
                        loss_function(model(x), y).backward()
                        optimizer.step()
                    for name, tensor in model.state_dict().items():
                        sums[m][name] += log_pi[i][m].exp() * tensor
                total += log_pi[i].exp()
            states = [{name: t / total[m] for name, t in sums[m].items()} for m in range(clusters)]

    return run


LOOPS: dict[str, Callable[[Job], Callable[[int], None]]] = {
    "fedavg": fedavg,
    "federage": federage,
    "scaffold": scaffold,
    "focus": focus,
}
