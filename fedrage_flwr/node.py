"""What a Flower node works with: the share of the data that its own node config names, prepared as the server's messages say.

Settings travel by value and are looked up by name; no path does. Where data lies and which device is used is the node's
business: ``data-root`` and ``device`` in ``--node-config``, or the environment variable ``FEDRAGE_DATA``.
"""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from fedrage_flwr.data import DATASETS, PARTITIONS, Dataset, load_dataset, partition
from fedrage_flwr.data.partition.local import Local
from fedrage_flwr.data.private import Private
from fedrage_flwr.losses import LOSSES
from fedrage_flwr.models import MODELS, build_model
from fedrage_flwr.settings import NameTable, lookup
from fedrage_flwr.training import LocalModel
from fedrage_flwr.workspace import Workspace, build_workspace

SECTIONS: Mapping[str, NameTable] = {"dataset": DATASETS, "partition": PARTITIONS, "model": MODELS}
PATHS = ("root", "cache")  # settings that name a place on a machine
WORD = re.compile(r"\w[\w.+-]*")  # what a text in a message may be: a name, never a path

Values = Mapping[str, Any]
Job = tuple[tuple[str, Any], ...]


def write_job(config: Any) -> dict[str, Any]:
    """The keys of a message that say how a node prepares a simulated share, given the whole configuration."""
    job = {"num-clients": config.all_clients, "rare-clients": config.rare_clients, "threads": config.engine.threads}
    for section in SECTIONS:
        for name, value in vars(getattr(config, section)).items():
            if value is not None and name not in PATHS:  # Flower's records know no None
                job[f"{section}.{name}"] = value
    return job


def node_workspace(message: Values, node: Values) -> Workspace:
    """Return the workspace of this node; the same object at every call of a process that means the same thing.

    Args:
        message: the ``config`` record of a message: the keys of ``write_job``, and ``seed``.
        node: the node's own config.

    Raises:
        ValueError: the message lacks a setting or carries one that no node takes.
        UserError: this node's data is not there.
    """
    wanted = (
        "seed",
        "num-clients",
        "rare-clients",
        "threads",
        *(k for k in message if k.partition(".")[0] in SECTIONS),
    )
    missing = [key for key in wanted if key not in message]
    if missing:
        raise ValueError(f"the message does not say {missing[0]}: is the server of the same version as this node?")
    job = tuple(sorted((key, _by_value(key, message[key])) for key in wanted))
    if message["dataset.name"] == "private":
        if "data-path" not in node:
            raise ValueError(
                "the node config lacks data-path: give flower-supernode --node-config 'data-path=\"/…/site.npz\"'"
            )
        return _build_private(
            job, str(node["data-path"]), own_partition(message, node), str(node.get("device", "auto"))
        )
    return _build(
        job, str(node.get("data-root", os.environ.get("FEDRAGE_DATA", "data"))), str(node.get("device", "auto"))
    )


@lru_cache(maxsize=1)  # a simulated process acts as many nodes of one run
def _build(job: Job, root: str, device: str) -> Workspace:
    values = dict(job)
    dataset = load_dataset(_settings("dataset", values, root))
    shares = partition(_settings("partition", values), dataset, values["num-clients"], values["rare-clients"])
    return build_workspace(dataset, shares, _model(values, dataset, device))


@lru_cache(maxsize=1)
def _build_private(job: Job, path: str, client: int, device: str) -> Workspace:
    values = dict(job)
    dataset = Private(_settings("dataset", values)).load_file(Path(path).expanduser())
    shares = Local(_settings("partition", values)).split(len(dataset.train), client, values["num-clients"])
    return build_workspace(dataset, shares, _model(values, dataset, device))


def _model(values: Values, dataset: Dataset, device: str) -> LocalModel:
    torch.set_num_threads(values["threads"])
    module = build_model(_settings("model", values), dataset.input_shape, dataset.num_classes, values["seed"])
    return LocalModel(module, LOSSES[dataset.loss], node_device(device))


def node_device(word: str) -> torch.device:
    """The device of a node: ``auto`` takes CUDA where there is some."""
    if word not in ("auto", "cpu", "cuda"):
        raise ValueError(f"node config device={word!r}: must be one of auto, cpu, cuda")
    return torch.device("cuda" if word == "cuda" or (word == "auto" and torch.cuda.is_available()) else "cpu")


def own_partition(message: Values, node: Values) -> int:
    """Return the partition this node stands for.

    Raises:
        ValueError: its own config does not say, or it does not fit the run.
    """
    clients = int(message["num-clients"])
    for key in ("partition-id", "num-partitions"):
        if not isinstance(node.get(key), int):
            raise ValueError(
                f"the node config lacks the number {key}: give flower-supernode --node-config"
                f" 'partition-id=0 num-partitions={clients}', each node its own partition-id"
            )
    if node["num-partitions"] != clients:
        raise ValueError(
            f"num-partitions={node['num-partitions']} in the node config, but the run has num_clients={clients}"
        )
    if not 0 <= node["partition-id"] < clients:
        raise ValueError(f"partition-id={node['partition-id']} in the node config must lie in 0..{clients - 1}")
    return int(node["partition-id"])


def _settings(section: str, values: Values, root: str | None = None) -> Any:
    table, name = SECTIONS[section], str(values.get(f"{section}.name"))
    if name not in table:
        raise ValueError(f"this node knows no {section} {name!r}; it knows {', '.join(sorted(table))}")
    settings = lookup(table, name).Settings
    own = {"root": root, "cache": os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "fedrage")}
    known = settings.__dataclass_fields__
    given = {field: values.get(f"{section}.{field}") for field in known}
    return settings(**{f: own[f] if f in PATHS else list(v) if isinstance(v, tuple) else v for f, v in given.items()})


def _by_value(key: str, value: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    if key == "dataset.classes":  # compared with what the node's file says, and used for nothing else
        return tuple(value)
    if any(isinstance(v, bytes) or (isinstance(v, str) and not WORD.fullmatch(v)) for v in values):
        raise ValueError(f"{key}={value!r} in a message is no plain name: refused")
    return tuple(value) if isinstance(value, list) else value
