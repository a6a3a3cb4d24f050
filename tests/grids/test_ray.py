"""Clients on Ray actors: the same bits as in the process, and what happens when one of them goes away."""

import os
from typing import Literal

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.grids.ray import RayGrid, RaySettings, plan
from fedrage_flwr.records import to_arrays
from fedrage_flwr.run import WorkspaceFactory, prepare_run

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def settings(**changes):
    return RaySettings(
        **{"name": "ray", "num_actors": None, "num_cpus": 1, "num_gpus": None, "address": None, **changes}
    )


@pytest.mark.parametrize(
    ("changes", "device", "cpus", "gpus", "actors"),
    [
        ({}, CPU, 4, 0, 4),
        ({"num_cpus": 2}, CPU, 5, 0, 2),
        ({"num_cpus": 0.5}, CPU, 2, 0, 4),
        ({"num_actors": 3}, CPU, 4, 0, 3),
        ({}, CUDA, 16, 4, 4),
        ({"num_cpus": 2, "num_gpus": 0.07}, CUDA, 16, 1, 8),  # O18 b: 14 would fit on the GPU, 8 on the CPUs
        ({"num_gpus": 0.3}, CUDA, 16, 1, 3),  # O18 d
        ({"num_gpus": 0.3}, CUDA, 16, 2, 6),  # a share lies on one device
        ({"num_gpus": 0.1}, CUDA, 16, 1, 10),  # 1/0.1 is not 9
    ],
)
def test_o18_how_many_actors_fit(changes, device, cpus, gpus, actors):
    assert plan(settings(**changes), device, cpus, gpus, num_clients=100).actors == actors


def test_no_more_actors_than_clients():
    assert plan(settings(), CPU, 64, 0, num_clients=5).actors == 5


@pytest.mark.parametrize(
    ("changes", "device", "message"),
    [
        ({"num_gpus": 0.5}, CPU, r"backend.num_gpus=0.5: the clients run on the CPU.*allowed here: 0 or null"),  # O18 a
        ({"num_gpus": 0.0}, CUDA, r"backend.num_gpus=0 hides every CUDA device"),  # O18 c
        ({"num_cpus": 3}, CPU, r"backend.num_cpus=3 .* more than Ray has: 2 CPUs"),
        ({"num_actors": 9}, CPU, r"backend.num_actors=9: at most 2 fit"),
    ],
)
def test_o18_what_does_not_fit_is_refused_before_round_1(changes, device, message):
    with pytest.raises(UserError, match=message):
        plan(settings(**changes), device, cpus=2, gpus=1 if device == CUDA else 0, num_clients=100)


@pytest.mark.parametrize("override", ["backend.num_cpus=0", "backend.num_cpus=-1", "backend.num_gpus=1.5"])
def test_o18_numbers_out_of_range(override):
    with pytest.raises(UserError, match="is not allowed"):
        validate(compose_config(["backend=ray", override]))


@pytest.mark.parametrize("strategy", ["federage", "weighted_fedavg"])
def test_same_participants_and_same_bits_as_inline(simulate, strategy):
    job = (f"strategy={strategy}", "num_rounds=8", "eval_every=4")
    inline, _ = simulate(*job)
    ray, summary = simulate(*job, "backend=ray")
    for name in ("model.safetensors", "polyak.safetensors", "participation.csv", "updates.csv", "clients.csv"):
        assert (inline / name).read_bytes() == (ray / name).read_bytes(), name
    assert summary["backend"] == "ray"


class Poisoned(WorkspaceFactory):
    """A workspace whose client 1 takes its process down, raises, or returns NaN."""

    trouble: Literal["exit", "raise", "nan"] = "exit"

    def __call__(self, device):
        workspace = super().__call__(device)
        client, trouble = workspace.client, os.environ.get("POISON", "exit")

        def poisoned(partition):
            if partition == 1:
                if trouble == "exit":
                    os._exit(1)
                raise RuntimeError("disk on fire")
            return client(partition)

        workspace.client = poisoned
        return workspace


def ask_all(grid, config, clients):
    arrays = WorkspaceFactory(config, *data(config))(CPU).template
    content = RecordDict({"arrays": arrays})
    content["config"] = ConfigRecord(
        {
            "seed": 0,
            "server-round": 1,
            "client.name": "fedavg",
            "client.lr": 0.1,
            "client.local_steps": 2,
            "client.batch_size": 8,
        }
    )
    nodes = {partition: node for node, partition in grid.partitions.items()}
    return list(grid.send_and_receive([Message(content, nodes[i], "train") for i in clients]))


def data(config):
    prepared = prepare_run(config)
    return prepared.dataset, prepared.partition


def test_a_dead_actor_is_reported_and_replaced():
    """Client 1 kills its actor: the clients of that actor in that round fail by name, the others answer with the bits of the
    inline grid, and the next round is whole again."""
    config = validate(compose_config(["strategy=fedavg", "backend=ray", "backend.num_actors=2"]))
    grid = RayGrid(config.backend, config.num_clients, Poisoned(config, *data(config)), CPU)
    inline = InlineGrid.create(None, config.num_clients, WorkspaceFactory(config, *data(config)), CPU)
    try:
        replies = ask_all(grid, config, [0, 1, 2, 3])
        assert [reply.has_error() for reply in replies] == [False, True, False, True]  # odd clients share an actor
        assert "Ray actor died" in replies[1].error.reason
        again = ask_all(grid, config, [0, 2, 3, 5])
        expected = ask_all(inline, config, [0, 2, 3, 5])
        for found, wanted in zip(again, expected, strict=True):
            assert not found.has_error()
            for name, array in to_arrays(wanted.content["arrays"]).items():
                np.testing.assert_array_equal(to_arrays(found.content["arrays"])[name], array)
    finally:
        grid.close()


def test_a_ray_cluster_that_is_not_there():
    config = validate(compose_config(["backend=ray", "backend.address='127.0.0.1:1'"]))
    with pytest.raises(UserError, match="Ray cannot be reached there"):
        RayGrid(config.backend, 2, WorkspaceFactory(config, *data(config)), CPU)
