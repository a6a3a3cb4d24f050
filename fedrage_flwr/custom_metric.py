"""``evaluate.metrics=[module:function]``: measures of the user's own, each a function of outputs and targets.

A function is called with the outputs of the global model, float (n, num_classes), and the targets, (n,), both tensors: once with
the whole test set, and once with the test part of each client. It returns a number. Its name is the name of the column.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from fedrage_flwr.custom_model import import_path
from fedrage_flwr.data import Dataset
from fedrage_flwr.errors import UserError
from fedrage_flwr.results import CLIENT_COLUMNS, ROUND_COLUMNS

Metric = Callable[[Tensor, Tensor], float]


def load_metrics(paths: Sequence[str], dataset: Dataset) -> Mapping[str, Metric]:
    """Return the functions by name, tried on a few examples.

    Raises:
        UserError: one cannot be imported, is called like a column that is there, fails, or returns no number.
    """
    metrics: dict[str, Metric] = {}
    for path in paths:
        metric = import_path(path, f"evaluate.metrics={path}")
        name = getattr(metric, "__name__", "")
        if not callable(metric) or not name.isidentifier():
            raise UserError(f"evaluate.metrics={path}: must be a function with a name")
        if name in metrics or name in (*ROUND_COLUMNS, *CLIENT_COLUMNS):
            raise UserError(
                f"evaluate.metrics={path}: there is a column {name} already; give the function another name"
            )
        _try(metric, path, dataset)
        metrics[name] = metric
    return metrics


def _try(metric: Metric, path: str, dataset: Dataset) -> None:
    targets = dataset.test.labels[:4]
    outputs = torch.zeros(len(targets), dataset.num_classes)
    try:
        float(metric(outputs, targets))
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(
            f"evaluate.metrics={path}: fails on outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)}: {said}"
        ) from error
