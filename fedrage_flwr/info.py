"""``python -m fedrage_flwr.info OVERRIDES``: what would run, on what, how many bytes and how long. Makes no folder.

Bytes and seconds are measured by a few rounds in memory (``fedrage_flwr.rehearsal``); nothing of them is kept. Of real sites
(``ram=natural``, ``dataset=private``) nobody knows here who comes, what they hold or how fast they are: bytes alone are measured.
"""

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from fedrage_flwr.availability.base import Terms
from fedrage_flwr.availability.full import Full
from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.command import quiet_libraries
from fedrage_flwr.config import Config, compose_config, validate
from fedrage_flwr.data import ClientIndices, Partition, Split
from fedrage_flwr.display import make_console, show_lines
from fedrage_flwr.doors import enter, set_switches
from fedrage_flwr.errors import UserError
from fedrage_flwr.explain import Lines, availability_lines, explanation, method_lines
from fedrage_flwr.parts import Prepared, make_law, make_local_model, make_strategy, prepare_run
from fedrage_flwr.rehearsal import Costs, evaluations, rehearse


def resolved(cfg: DictConfig) -> str:
    """Return the configuration as YAML, Hydra's own section left out and every reference filled in."""
    own = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])
    return OmegaConf.to_yaml(own, resolve=True)


def data_lines(prepared: Prepared) -> Lines:
    """The data set, who holds how much, the model."""
    config, data = prepared.config, prepared.dataset
    shape = "×".join(map(str, data.input_shape))
    outputs = "a real target" if data.num_classes == 1 else f"{data.num_classes} classes"
    sizes = np.array([len(part) for part in prepared.partition.train])
    model = make_local_model(config, data, torch.device("cpu"))
    parameters = sum(parameter.numel() for parameter in model.parameters)
    size = ("model", f"{config.model.name}: {parameters:,} trainable parameters")
    if config.dataset.name == "private":
        return [("data set", f"private, kept by {config.num_clients} sites: {shape}, {outputs}"), size]
    return [
        ("data set", f"{config.dataset.name}: {len(data.train):,} + {len(data.test):,} examples, {shape}, {outputs}"),
        (
            "clients",
            f"{config.num_clients} and {config.held_out_clients} held out, partition={config.partition.name}:"
            f" {sizes.min():,} to {sizes.max():,} training examples each, median {np.median(sizes):,.0f}",
        ),
        *(("", note) for note in prepared.partition.notes),
        size,
    ]


def device_lines(prepared: Prepared) -> Lines:
    """Where the arithmetic would run."""
    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    names = ", ".join(cuda) if cuda else "none that torch can use"
    return [
        ("device", f"{prepared.device.type} (device={prepared.config.device}), backend={prepared.config.backend.name}"),
        ("this machine", f"{os.cpu_count()} CPUs; CUDA devices: {names}"),
    ]


def terms_lines(config: Config, terms: Terms) -> Lines:
    """What is agreed about sites of which nobody knows when they are there."""
    named = f", {', '.join(map(str, terms.required_sites))} among them" if terms.required_sites else ""
    enough = f"when {terms.enough} have answered" if terms.enough else "when all that were asked have answered"
    return [
        ("P(i∈S), p_i", "not known beforehand; after a run python -m fedrage_flwr.explain FOLDER has estimates"),
        ("asked", f"whichever of the {config.num_clients} sites are connected; {terms.min_sites} at least{named}"),
        ("a round ends", f"{enough}, or after {terms.deadline_s:g} s"),
    ]


def site_cost_lines(prepared: Prepared) -> Lines:
    """Bytes a round; the time is the sites' own."""
    costs = rehearse(_everybody(prepared))
    if costs is None:
        return cost_lines(prepared, None)
    bytes_ = f"{costs.bytes_up:,.0f} up, {costs.bytes_down:,.0f} down for each site that takes part"
    return [("bytes a round", bytes_), ("time", "not known: that of the sites and their network")]


def _everybody(prepared: Prepared) -> Prepared:
    """The same with all sites there and, where their data are not here, a batch of zeros in place of them."""
    config, dataset, partition = prepared.config, prepared.dataset, prepared.partition
    if config.dataset.name == "private":
        zeros = torch.zeros(config.client.batch_size, dtype=torch.int64)
        split = Split(torch.zeros(len(zeros), *dataset.input_shape, dtype=torch.uint8), zeros)
        own = ClientIndices(*(np.arange(len(zeros)),) * 3)
        dataset, partition = replace(dataset, train=split, test=split), Partition((own,) * config.all_clients, ())
    law = Full(Full.Settings("full"), config.num_clients, config.rare_clients, config.seed)
    manager = RandomAccessClientManager(law, config.all_clients, config.node_wait_s)
    return replace(prepared, dataset=dataset, partition=partition, manager=manager)


def cost_lines(prepared: Prepared, costs: Costs | None) -> Lines:
    """Bytes a round and time, from what was measured."""
    config = prepared.config
    if costs is None:
        return [("costs", f"none measured: no reply could be used in {config.num_rounds} rounds")]
    participants = float(prepared.manager.law.inclusion().values.sum())
    up, down = costs.bytes_up * participants, costs.bytes_down * participants
    side_by_side = (
        "" if config.backend.name == "inline" else f"; backend={config.backend.name} runs clients side by side"
    )
    faa = "; the trainings of evaluate.faa come on top" if config.evaluate.faa else ""
    return [
        ("bytes a round", f"{up:,.0f} up, {down:,.0f} down, for {participants:.4g} participants on average"),
        (
            "time",
            f"about {_duration(costs.total_seconds(config, participants))}: {config.num_rounds} rounds of"
            f" {_duration(participants * costs.participant_seconds)}, {evaluations(config)} evaluations of"
            f" {_duration(costs.evaluation_seconds)} (from {costs.rounds} rounds in this process{side_by_side}{faa})",
        ),
    ]


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def main(arguments: Sequence[str]) -> None:
    """Show what the overrides would run."""
    if any(argument.startswith("-") for argument in arguments):
        raise UserError(
            f"usage: python -m fedrage_flwr.info OVERRIDES, such as num_rounds=50; not {' '.join(arguments)}"
        )
    logging.getLogger().addHandler(logging.NullHandler())
    quiet_libraries()
    cfg = compose_config(arguments)
    config = validate(cfg)
    terms = make_law(config).terms
    real = terms is not None or config.dataset.name == "private"
    prepared = prepare_run(config, remote=real)
    if real:
        make_strategy(config, prepared.manager)  # raises what the run would: an oracle needs a law that is known
    law = prepared.manager.law
    console = make_console()
    console.print("Configuration", style="bold")
    console.print(resolved(cfg), markup=False, soft_wrap=True, end="")
    show_lines(console, "Data and model", data_lines(prepared))
    show_lines(console, "Devices", device_lines(prepared))
    told = explanation(config, law).lines if terms is None else ()
    show_lines(console, f"Method: {config.strategy.name}", [*method_lines(config), *told])
    availability = availability_lines(config, law) if terms is None else terms_lines(config, terms)
    show_lines(console, f"Availability: {config.ram.name}", availability)
    show_lines(console, "Costs", site_cost_lines(prepared) if real else cost_lines(prepared, rehearse(prepared)))


if __name__ == "__main__":
    set_switches()
    sys.exit(enter(main))
