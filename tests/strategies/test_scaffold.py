"""SCAFFOLD's server half: its bookkeeping by hand, the identities that hold whoever takes part, and what it aims at."""

import logging

import numpy as np
import pytest
import torch
from flwr.app import Message, RecordDict
from safetensors.numpy import load_file
from torch import nn

from fedrage_flwr.client_app import make_client_app
from fedrage_flwr.client_manager import RoundView
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.rounds import Update
from fedrage_flwr.training import LocalModel
from fedrage_flwr.workspace import SplitTensors, Workspace
from strategies.fedavg import FedAvg
from strategies.scaffold import Scaffold

CENTRES = [[0.0, 3.0], [1.0, -1.0], [10.0, 4.0], [-2.0, 0.5]]
CURVATURES = [0.5, 1.0, 2.0, 1.0]
FORMS = [{"option": 2}, {"option": 2, "compact_uplink": True}, {"option": 1}]


class Script:
    """A client manager that lets through whom the test says."""

    def __init__(self, subsets):
        self.subsets = subsets

    def connect(self, grid):
        pass

    def admit(self, grid, round):
        return RoundView(grid, {node: i for node, i in grid.partitions.items() if i in self.subsets[round - 1]})


class After:
    """Calls the test after each round."""

    def __init__(self, look):
        self.after_round = look


def random_subsets(rounds, clients=4, seed=0):
    """Of any size, nobody included."""
    return [tuple(np.flatnonzero(row)) for row in np.random.default_rng(seed).random((rounds, clients)) < 0.4]


def play(world, settings, train_config, subsets, look=lambda server: None, strategy=Scaffold):
    """Run one round per subset; ``look`` sees the server after each. Returns θ̂ and the server."""
    server = strategy(*settings, len(world.grid.partitions))
    result = server.start(
        world.grid, world.start, len(subsets), train_config=train_config(settings[1]), manager=Script(subsets),
        callbacks=[After(lambda round: look(server))],
    )  # fmt: skip
    return world.theta(result.arrays), server


def own(world, client):
    """c_i as the client keeps it; zero if it has never taken part."""
    record = world.grid.context(client).state.get("control")
    return np.zeros_like(world.theta(world.start)) if record is None else world.theta(record)


def mean_of_own(world):
    return np.mean([own(world, i) for i in world.grid.partitions.values()], axis=0)


def one(value):
    return to_record({"w": np.array([value], np.float32)})


@pytest.mark.parametrize("server_lr", [1.0, 0.5])
def test_o06_changes_are_divided_by_all_clients(settings_of, server_lr):
    """N = 4, two take part, c = 1, Δc_i = 2 and 4: c = 1 + 6/4. θ̂ = 1, θ_i = 2 and 4: θ̂ + η_g·(3 − 1)."""
    server = Scaffold(*settings_of("scaffold", server_lr=server_lr), 4)
    server.records = {"control": one(1.0)}
    server.broadcast = {"arrays": one(1.0), **server.records}
    updates = [
        Update(0, {"arrays": one(2.0), "control": one(2.0)}, {}),
        Update(2, {"arrays": one(4.0), "control": one(4.0)}, {}),
    ]
    assert to_arrays(server.reduce(updates))["w"] == [1 + server_lr * 2]
    control = to_arrays(server.records["control"])["w"]
    assert (control, control.dtype) == ([2.5], np.float32)


def test_o06_control_variates_start_at_zero(federation, settings_of, train_config):
    world = federation(CENTRES, start=[7.0, -3.0])
    server = Scaffold(*settings_of("scaffold"), 4)
    assert (world.theta(server.initial_records(world.start)["control"]) == 0).all()


@pytest.mark.parametrize("form", [(), ("strategy.compact_uplink=true",), ("client.option=1",)])
def test_o06_round_one_is_fedavg_bit_for_bit(simulate, form):
    job = ("num_rounds=1", "client.lr=0.05")
    expected = load_file(simulate("strategy=fedavg", *job)[0] / "model.safetensors")
    found = load_file(simulate("strategy=scaffold", *job, *form)[0] / "model.safetensors")
    assert {name for name in found if not name.startswith("control.")} == set(expected)
    assert {name.removeprefix("control.") for name in found if name.startswith("control.")} == set(expected)
    assert all((found[name] == expected[name]).all() for name in expected)
    assert all(found[f"control.{name}"].any() for name in expected)  # every tensor has come back


@pytest.mark.parametrize("server_lr", [1.0, 0.7])
@pytest.mark.parametrize("form", FORMS)
def test_c_is_the_mean_of_all_c_i_whoever_takes_part(federation, settings_of, train_config, form, server_lr):
    world, rounds = federation(CENTRES, CURVATURES), []

    def look(server):
        np.testing.assert_allclose(world.theta(server.records["control"]), mean_of_own(world), atol=2e-6)
        rounds.append(np.abs(mean_of_own(world)).max())

    subsets = random_subsets(40)
    assert {len(subset) for subset in subsets} >= {0, 1, 2, 3}
    play(world, settings_of("scaffold", server_lr=server_lr, **form), train_config, subsets, look)
    assert max(rounds) > 0.5  # it was not all zeros


@pytest.mark.parametrize("form", FORMS)
def test_o20_absent_clients_keep_their_control_variate_bit_for_bit(federation, settings_of, train_config, form):
    world, subsets, seen = federation(CENTRES, CURVATURES), random_subsets(20, seed=1), []

    def look(server):
        seen.append([own(world, i).tobytes() for i in range(4)])

    play(world, settings_of("scaffold", **form), train_config, subsets, look)
    for t in range(1, 20):
        for i in range(4):
            assert (seen[t][i] != seen[t - 1][i]) == (i in subsets[t]), (t, i)


def test_compact_uplink_is_the_two_vector_form_to_rounding(federation, settings_of, train_config):
    paths = []
    for compact in (False, True):
        world, path = federation(CENTRES, CURVATURES), []

        def look(server, world=world, path=path):
            path.append([world.theta(server.broadcast["arrays"]), world.theta(server.records["control"])])

        play(world, settings_of("scaffold", compact_uplink=compact), train_config, random_subsets(40, seed=2), look)
        paths.append(np.array(path))
    np.testing.assert_allclose(paths[0], paths[1], atol=5e-6)


def test_bytes(simulate):
    """Two model-sized vectors each way where FedAvg has one; the compact uplink has one. The models agree to rounding."""
    fedavg = simulate("strategy=fedavg", "num_rounds=3")[1]
    two, compact = (
        simulate("strategy=scaffold", "num_rounds=3", f"strategy.compact_uplink={c}") for c in ("false", "true")
    )
    assert two[1]["bytes_up_per_round"] == two[1]["bytes_down_per_round"] == 2 * fedavg["bytes_up_per_round"]
    assert compact[1]["bytes_up_per_round"] == fedavg["bytes_up_per_round"]
    assert compact[1]["bytes_down_per_round"] == 2 * fedavg["bytes_down_per_round"]
    models = [load_file(folder / "model.safetensors") for folder, _ in (two, compact)]
    for name in models[0]:
        np.testing.assert_allclose(models[0][name], models[1][name], atol=1e-5)


@pytest.mark.parametrize(("form", "curvatures"), [(FORMS[0], [1.0] * 4), *((form, CURVATURES) for form in FORMS)])
def test_it_minimises_the_plain_mean_whatever_the_participation(
    federation, settings_of, train_config, form, curvatures
):
    """Client 2 takes part in one round of ten, alone or not; Σ f_i/N is least at Σh_i a_i/Σh_i. With full gradients the
    iterates stop there, and c_i − c are the gradients that are left."""
    rng, world = np.random.default_rng(3), federation(CENTRES, curvatures)
    chances = np.array([0.9, 0.3, 0.1, 0.3])
    subsets = [tuple(np.flatnonzero(rng.random(4) < chances)) for _ in range(300)]
    theta, server = play(world, settings_of("scaffold", lr=0.1, **form), train_config, subsets)
    optimum = np.array(curvatures) @ np.array(CENTRES) / sum(curvatures)
    np.testing.assert_allclose(theta, optimum, atol=1e-3)
    gradients = np.array(curvatures)[:, None] * (optimum - np.array(CENTRES))
    differences = [own(world, i) - world.theta(server.records["control"]) for i in range(4)]
    np.testing.assert_allclose(differences, gradients, atol=5e-3)


def test_where_fedavg_goes_instead(federation, settings_of, train_config):
    """Centres 0 and 10, S = {0}, {0, 1}, {1} with probability 0.7, 0.2, 0.1: plain mean 5, p-mean 2. Each round adds
    ρ·(mean of S's centres − θ), of variance 11ρ², so the average of 300 iterates has a standard error of √(11/300) = 0.19
    about 2 (five of them: 6·10⁻⁷), while SCAFFOLD's last iterate is at 5."""
    draws = np.random.default_rng(4).choice(3, 300, p=[0.7, 0.2, 0.1])
    subsets = [((0,), (0, 1), (1,))[k] for k in draws]
    world, path = federation([[0.0], [10.0]]), []

    def look(server):
        path.append(world.theta(server.broadcast["arrays"]).item())

    play(world, settings_of("fedavg", lr=0.1), train_config, subsets, look, strategy=FedAvg)
    assert np.mean(path) == pytest.approx(2, abs=0.95)
    theta, _ = play(federation([[0.0], [10.0]]), settings_of("scaffold", lr=0.1), train_config, subsets)
    assert theta == pytest.approx(5, abs=1e-3)


class Broken:
    """A grid on which client 1's reply of round 2 is spoilt on the way, after the client has committed."""

    def __init__(self, grid, record):
        self._grid, self._record = grid, record

    def __getattr__(self, name):
        return getattr(self._grid, name)

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        replies = list(self._grid.send_and_receive(messages))
        return [self._spoil(m, r) if self._grid.partitions[m.metadata.dst_node_id] == 1 else r
                for m, r in zip(messages, replies, strict=True)]  # fmt: skip

    def _spoil(self, message, reply):
        if message.metadata.group_id != "2":
            return reply
        self.lost = to_arrays(reply.content["control"])["theta"]
        content = RecordDict(dict(reply.content.items()))
        content[self._record] = to_record({"theta": np.full(2, np.nan, np.float32)})
        return Message(content, reply_to=message)


@pytest.mark.parametrize("record", ["arrays", "control"])
def test_a_rejected_reply_moves_nothing_and_is_counted(federation, settings_of, train_config, caplog, record):
    """c takes in accepted changes alone, and ceases to be the mean of the c_i by exactly the change that was lost."""
    world = federation(CENTRES, CURVATURES)
    world.grid = Broken(world.grid, record)
    rejected, gaps = [], []

    def look(server):
        rejected.append([o.client for o in server.outcomes if o.outcome == "rejected"])
        gaps.append(mean_of_own(world) - world.theta(server.records["control"]))

    with caplog.at_level(logging.WARNING):
        play(world, settings_of("scaffold"), train_config, [(0, 1), (1, 2), (1, 3), (0, 1, 2)], look)
    assert rejected == [[], [1], [], []]
    assert "round 2: control variates of clients 1 may have moved without c" in caplog.text
    assert np.abs(world.grid.lost).min() > 0.01
    np.testing.assert_allclose(gaps, np.array([0, 1, 1, 1])[:, None] * world.grid.lost / 4, atol=1e-6)


def test_o03_only_trainable_parameters_have_a_control_variate(settings_of, train_config):
    """BatchNorm's running statistics are averaged, not stepped by η_g; its counter stays an integer; neither is in c. With
    momentum 0.1 a client whose batch has mean m leaves 0.1·m: 0.1·(2 + 6)/2 = 0.4 for two clients."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 2))
    model = LocalModel(module)
    train = SplitTensors(torch.tensor([[1.0], [3.0], [5.0], [7.0]]), torch.tensor([0, 1, 0, 1]))
    workspace = Workspace(model, train, [np.array([0, 1]), np.array([2, 3])], to_float=lambda inputs: inputs)
    settings = settings_of("scaffold", server_lr=0.5, local_steps=1)
    server = Scaffold(*settings, 2)
    server.untrained = frozenset(model.arrays()) - frozenset(model.parameter_names)
    start = to_record(model.arrays())
    result = server.start(InlineGrid(make_client_app(workspace), 2), start, 1, train_config=train_config(settings[1]))
    assert set(server.records["control"]) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert [o.outcome for o in server.outcomes] == ["averaged"] * 2
    arrays = to_arrays(result.arrays)
    np.testing.assert_allclose(arrays["0.running_mean"], [0.4], rtol=1e-6)
    assert (arrays["0.num_batches_tracked"], arrays["0.num_batches_tracked"].dtype) == (1, np.int64)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["client.theta_radius=3"], r"client\.theta_radius=3 does not go with client\.option=2"),
        (["client.option=1", "strategy.compact_uplink=true"], r"strategy\.compact_uplink=true does not go with client\.option=1"),
        (["client.option=3"], r"client\.option=3 is not allowed: must be one of 1, 2"),
        (["strategy.server_optimizer=adam"], r"strategy\.server_optimizer=adam: scaffold has its own server step; allowed: sgd"),
    ],
)  # fmt: skip
def test_what_is_not_defined_is_refused(overrides, message):
    with pytest.raises(UserError, match=message):
        validate(compose_config(["strategy=scaffold", *overrides]))


def test_option_one_may_project():
    assert (
        validate(compose_config(["strategy=scaffold", "client.option=1", "client.theta_radius=3"])).client.option == 1
    )


def test_the_clients_are_told_about_the_compact_uplink():
    assert validate(compose_config(["strategy=scaffold", "strategy.compact_uplink=true"])).client.compact_uplink
