"""The global model on the whole test set and on every client's own test part, by one pass over the test set."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedrage_flwr.training import LocalModel

CHUNK = 2048  # examples per forward pass


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One model, measured.

    Attributes:
        accuracy, loss: on the full test set.
        clients: ids of the clients measured, shape (n,).
        client_accuracy, client_loss: on each one's own test part, shape (n,); NaN where it is empty.
        client_examples: sizes of those parts, shape (n,).
    """

    accuracy: float
    loss: float
    clients: np.ndarray
    client_accuracy: np.ndarray
    client_loss: np.ndarray
    client_examples: np.ndarray


class Evaluator:
    """Evaluates models on a test set held in memory.

    Args:
        model: overwritten by each model evaluated.
        inputs, targets: the test split as stored.
        to_float: makes model inputs of stored ones.
        parts: per client, positions of its test part.
        clients: ids to measure; None for all.
    """

    def __init__(
        self,
        model: LocalModel,
        inputs: Tensor,
        targets: Tensor,
        to_float: Callable[[Tensor], Tensor],
        parts: Sequence[np.ndarray],
        clients: np.ndarray | None = None,
    ) -> None:
        self.clients = np.arange(len(parts)) if clients is None else clients
        chosen = [parts[i] for i in self.clients.tolist()]
        self._examples = np.array([len(part) for part in chosen], np.int64)
        self._positions = np.concatenate(chosen) if chosen else np.empty(0, np.int64)
        self._owner = np.repeat(np.arange(len(chosen)), self._examples)
        self._model = model
        self._inputs = to_float(inputs.to(model.device))
        self._targets = targets.to(model.device)

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> Evaluation:
        """Measure one model."""
        correct, losses = self._per_example(arrays)
        with np.errstate(invalid="ignore"):  # an empty test part is 0/0: NaN, as documented
            client_accuracy, client_loss = (self._client_sums(v) / self._examples for v in (correct, losses))
        return Evaluation(
            accuracy=float(correct.mean()),
            loss=float(losses.mean()),
            clients=self.clients,
            client_accuracy=client_accuracy,
            client_loss=client_loss,
            client_examples=self._examples,
        )

    def _client_sums(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self._owner, weights=values[self._positions], minlength=len(self._examples))

    @torch.no_grad()
    def _per_example(self, arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        self._model.load(dict(arrays))
        module = self._model.module.eval()
        correct, losses = [], []
        for inputs, targets in zip(torch.split(self._inputs, CHUNK), torch.split(self._targets, CHUNK), strict=True):
            logits = module(inputs)
            correct.append(logits.argmax(1) == targets)
            losses.append(functional.cross_entropy(logits, targets, reduction="none"))
        return torch.cat(correct).double().cpu().numpy(), torch.cat(losses).double().cpu().numpy()
