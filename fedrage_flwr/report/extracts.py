"""What figures need of a finished run beyond its two small files, kept as small: ``regions/`` and ``memberships/RUN.csv``."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file
from torch import nn

from fedrage_flwr.data import load_dataset, partition
from fedrage_flwr.explain import read_config
from fedrage_flwr.models import build_model

CELLS = 81  # along each side of the plane


def extract(folder: Path, where: Path) -> None:
    """Write what the run in ``folder`` has of these, in sub-folders beside ``where`` and under its name."""
    for name, table in (("regions", regions(folder)), ("memberships", memberships(folder))):
        if table is not None:
            path = where.parent / name / f"{where.name}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            table.to_csv(path, index=name == "regions", float_format="%.4g", lineterminator="\n")


def regions(folder: Path) -> pd.DataFrame | None:
    """Return the class that the last model gives to the points of a grid over the data, by y (rows) and x (columns).

    None unless the model tells classes of points in the plane apart.
    """
    tensors = load_file(folder / "model.safetensors")
    first = next((tensor for tensor in tensors.values() if tensor.ndim == 2), None)
    if first is None or first.shape[1] != 2:
        return None
    config = read_config(folder)
    dataset = load_dataset(config.dataset)
    if dataset.num_classes < 2:
        return None
    model = build_model(config.model, dataset.input_shape, dataset.num_classes, config.seed)
    names = model.state_dict().keys()
    if not names <= tensors.keys():  # several models: no one map
        return None
    model.load_state_dict({name: tensors[name] for name in names})
    return grid(model, dataset.train.inputs)


def grid(model: nn.Module, inputs: torch.Tensor) -> pd.DataFrame:
    """Return the classes on ``CELLS`` × ``CELLS`` points of the square about the origin that holds ``inputs``, (n, 2)."""
    side = np.linspace(-1, 1, CELLS) * float(inputs.abs().max())
    y, x = np.meshgrid(side, side, indexing="ij")
    points = torch.from_numpy(np.stack([x.ravel(), y.ravel()], axis=1)).float()
    with torch.no_grad():
        classes = model(points).argmax(1).numpy().reshape(CELLS, CELLS)
    return pd.DataFrame(classes, index=pd.Index(side.round(4), name="y"), columns=side.round(4))


def memberships(folder: Path) -> pd.DataFrame | None:
    """Return round, client, true group, pi_0, pi_1, … of each client in each evaluated round; None where there are no clusters.

    The group is empty where the data set knows none.
    """
    clients = pd.read_csv(folder / "clients.csv")
    pi = [column for column in clients if str(column).startswith("pi_")]
    if not pi:
        return None
    config = read_config(folder)
    groups = partition(config.partition, load_dataset(config.dataset), config.all_clients, config.rare_clients).groups
    table = clients[["round", "client", *pi]]
    table.insert(2, "group", "" if groups is None else groups[table["client"]])
    return table
