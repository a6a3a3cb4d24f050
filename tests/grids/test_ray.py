"""Clients on Ray actors: the same bits as in the process, and what happens when one of them goes away."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict

from clients.base import write_settings
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.grids.actor import tensors_as_arrays
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.grids.ray import RayGrid, RaySettings, plan
from fedrage_flwr.parts import WorkspaceFactory, make_local_model, prepare_run
from fedrage_flwr.records import to_arrays, to_record

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


def test_a_ray_cluster_that_is_not_there():
    config = validate(compose_config(["backend=ray", "backend.address='127.0.0.1:1'"]))
    with pytest.raises(UserError, match="Ray cannot be reached there"):
        RayGrid(config.backend, 2, None, CPU)  # refused before it asks for a workspace


class Poisoned(WorkspaceFactory):
    """A workspace whose client 1 takes its process down, always, and client 2 the first time only."""

    marker: str

    def __call__(self, device):
        workspace = super().__call__(device)
        client, marker = workspace.client, Path(self.marker)

        def poisoned(partition):
            if partition == 1 or (partition == 2 and not marker.exists()):
                marker.touch()
                os._exit(1)
            return client(partition)

        workspace.client = poisoned
        return workspace


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory):
    """A grid with Poisoned clients on two actors (even and odd ids), and the inline grid with healthy ones."""
    config = validate(compose_config(["strategy=scaffold", "backend=ray", "backend.num_actors=2"]))
    prepared = prepare_run(config)
    made = (config, prepared.dataset, prepared.partition)
    factory = Poisoned(*made)
    object.__setattr__(factory, "marker", str(tmp_path_factory.mktemp("marker") / "died"))
    grid = RayGrid(config.backend, config.num_clients, factory, CPU)
    yield grid, InlineGrid.create(None, config.num_clients, WorkspaceFactory(*made), CPU), config
    grid.close()


def ask(grid, config, clients, round):
    """Send one round of SCAFFOLD, with a model and a control variate of the round's number over 100."""
    start = make_local_model(config, prepare_run(config).dataset, CPU).arrays()
    records = {
        name: to_record({k: np.full_like(a, round / 100) for k, a in start.items()}) for name in ("arrays", "control")
    }
    settings = {"seed": 0, "server-round": round, **write_settings(config.client)}
    content = RecordDict({**records, "config": ConfigRecord(settings)})
    nodes = {partition: node for node, partition in grid.partitions.items()}
    return list(grid.send_and_receive([Message(content, nodes[i], "train") for i in clients]))


def same_reply(found, wanted):
    assert not found.has_error(), found.error
    for name in ("arrays", "control"):
        for key, array in to_arrays(wanted.content[name]).items():
            np.testing.assert_array_equal(to_arrays(found.content[name])[key], array)


def same_states(found, wanted):
    found, wanted = found.state_dict(), wanted.state_dict()
    assert found.keys() == wanted.keys()
    for client, records in wanted.items():
        for key, array in records["control"].items():
            np.testing.assert_array_equal(found[client]["control"][key], array)


def test_the_clients_of_an_actor_that_died_are_asked_again_and_their_states_move_once(poisoned):
    grid, inline, config = poisoned
    grid.restore_client_states({})
    inline.restore_client_states({})
    healthy = [0, 3, 4]
    for found, wanted in zip(ask(grid, config, healthy, 1), ask(inline, config, healthy, 1), strict=True):
        same_reply(found, wanted)
    clients = [0, 2, 3, 4]  # client 2 kills the actor of the even ones, once
    for found, wanted in zip(ask(grid, config, clients, 2), ask(inline, config, clients, 2), strict=True):
        same_reply(found, wanted)
    same_states(grid, inline)


@pytest.mark.slow
def test_a_client_whose_actor_dies_again_is_reported_and_keeps_its_neighbours_out_of_it(poisoned):
    grid, inline, config = poisoned
    grid.restore_client_states({})
    inline.restore_client_states({})
    replies = ask(grid, config, [0, 1, 3], 1)
    assert [reply.has_error() for reply in replies] == [False, True, False]
    assert replies[1].error.reason == "its Ray actor failed twice (ActorDiedError)"
    for found, wanted in zip((replies[0], replies[2]), ask(inline, config, [0, 3], 1), strict=True):
        same_reply(found, wanted)
    same_states(grid, inline)


@pytest.mark.slow
def test_an_actor_that_keeps_dying_is_not_replaced_without_end(poisoned, monkeypatch):
    grid, _, config = poisoned
    monkeypatch.setattr("fedrage_flwr.grids.ray.MOST_DEATHS", 1)
    replies = ask(grid, config, [0, 1, 3], 1)
    assert [reply.has_error() for reply in replies] == [False, True, True]
    assert replies[2].error.reason == "its Ray actor died 2 times in this round"


def test_a_state_lost_with_its_node_is_reported_and_the_client_starts_anew(poisoned):
    """What a lost node does to the states it held is done here by freeing the object."""
    from ray._private.internal_api import free

    grid, inline, config = poisoned
    grid.restore_client_states({})
    ask(grid, config, [4], 1)  # one by one: their states are two objects
    ask(grid, config, [6], 1)
    free([grid._states[4]])
    lost, kept = ask(grid, config, [4, 6], 2)
    assert lost.error.reason == "its state was lost with a Ray node; it starts anew the next time"
    assert not kept.has_error()
    inline.restore_client_states({})
    same_reply(ask(grid, config, [4], 3)[0], ask(inline, config, [4], 3)[0])


def test_states_are_given_back(poisoned):
    grid, inline, config = poisoned
    for one in (grid, inline):
        one.restore_client_states({})
        ask(one, config, [3, 4], 1)
        saved = one.state_dict()
        ask(one, config, [0, 3], 2)
        one.load_state_dict(saved)
        assert one.state_dict().keys() == {"3", "4"}
    same_reply(ask(grid, config, [3], 2)[0], ask(inline, config, [3], 2)[0])


def test_actors_map_one_copy_of_the_data(poisoned):
    import ray

    data = torch.arange(1_000_000)
    with tensors_as_arrays(ray):
        reference = ray.put({"data": data})
    first, second = ray.get(reference)["data"], ray.get(reference)["data"]
    assert torch.equal(first, data)
    assert first.data_ptr() == second.data_ptr()
    copied = ray.put({"data": data})  # outside, Ray copies as it always does
    assert ray.get(copied)["data"].data_ptr() != ray.get(copied)["data"].data_ptr()
