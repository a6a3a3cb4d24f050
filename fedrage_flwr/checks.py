"""What is refused or warned of before a run starts: settings that do not fit each other, the data or where the clients are."""

import os
import shutil

import torch

from clients import CLIENTS
from clients.base import ClientAlgorithm
from fedrage_flwr.availability.base import Law
from fedrage_flwr.checkpoint import Checkpoint
from fedrage_flwr.config import Config
from fedrage_flwr.data import Dataset
from fedrage_flwr.errors import UserError
from fedrage_flwr.loggers import LOGGERS
from fedrage_flwr.records import to_record
from fedrage_flwr.settings import lookup
from fedrage_flwr.training import LocalModel
from strategies import STRATEGIES


def check_settings(config: Config, remote: bool) -> None:
    """Raise ``UserError`` if settings do not fit each other or, with ``remote``, clients that are Flower's nodes."""
    if remote and config.seeds is not None:
        raise UserError(f"seeds={config.seeds}: only in simulation; start a run for each seed=K")
    if remote and config.model.name == "custom":
        raise UserError("model=custom: only in simulation; a node imports nothing that a message names")
    lookup(LOGGERS, config.logger.name).require()
    if config.evaluate.metrics and (remote or lookup(STRATEGIES, config.strategy.name).personal):
        why = "clients of Flower's own" if remote else f"the clients of strategy={config.strategy.name}"
        raise UserError(f"evaluate.metrics={config.evaluate.metrics}: measured where the server predicts, not by {why}")


def check_place(config: Config, device: torch.device, law: Law, remote: bool) -> None:
    """Raise ``UserError`` if this machine lacks something, or the law or the data are for clients in another place."""
    if config.engine.compile and device.type == "cpu" and shutil.which(os.environ.get("CXX", "g++")) is None:
        raise UserError(
            "engine.compile=true: torch.compile needs a C++ compiler on a CPU, and there is no g++ (or $CXX)"
        )
    if not remote and (config.dataset.name == "private" or law.terms is not None):
        word = f"ram={config.ram.name}" if law.terms is not None else "dataset=private"
        raise UserError(f"{word} is for Flower's nodes: start it with flwr run, see docs/deployment.md")
    if config.deadline_s is not None and (not remote or law.terms is not None):
        where = "is for Flower's nodes (flwr run)" if not remote else f"ram={config.ram.name} has ram.deadline_s"
        raise UserError(f"deadline_s={config.deadline_s:g}: {where}")
    if remote and config.privacy.noise_multiplier and config.checkpoint_every != 1:
        raise UserError(
            f"checkpoint_every={config.checkpoint_every}: privacy.noise_multiplier on Flower's nodes needs checkpoint_every=1, or"
            " rounds done again after a stop would be released twice and counted once"
        )


def check_validation(config: Config, dataset: Dataset, remote: bool) -> None:
    """Raise ``UserError`` if there are no validation parts to measure."""
    if remote:
        raise UserError("evaluate.split=validation: only in simulation; nodes are tested on their test parts")
    if dataset.source is not None:
        raise UserError(f"evaluate.split=validation: dataset={config.dataset.name} has no validation parts; give test")


def check_model(checkpoint: Checkpoint, config: Config, model: LocalModel) -> None:
    """Raise ``UserError`` if the checkpoint holds another model than the configuration makes."""
    algorithm: type[ClientAlgorithm] = lookup(CLIENTS, config.client.name)
    problem = algorithm.misfit(to_record(checkpoint.arrays), to_record(model.arrays()))
    if problem:
        raise UserError(f"{checkpoint.path} holds another model than model={config.model.name}: {problem}")


def tuning_warnings(config: Config) -> list[str]:
    """Say it where an experiment wants tuned settings and there are none."""
    if not config.tuned.wanted or config.tuned.note is not None:
        return []
    words = " ".join(f"{word}={getattr(config, word).name}" for word in ("dataset", "model", "ram", "strategy"))
    return [f"not tuned, the method's defaults are used; to tune: python -m fedrage_flwr.tune {words}"]
