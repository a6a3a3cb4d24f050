"""Who gets through, and that nobody else can tell the odds."""

import gc
import types

import numpy as np
import pytest
import torch
from flwr.app import Array, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedrage_flwr.availability.base import Law
from fedrage_flwr.availability.uniform import Uniform
from fedrage_flwr.client_manager import RandomAccessClientManager, RoundView
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.parts import WorkspaceFactory, make_local_model, prepare_run
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.settings import lookup
from strategies import STRATEGIES
from strategies.base import StrategySettings
from strategies.fedavg import FedAvg
from strategies.rounds import run_rounds


def law(n, m, seed=0):
    return Uniform(Uniform.Settings(name="uniform", clients_per_round=m), n, 0, seed)


class Asked(InlineGrid):
    """Nodes that can only be known by asking; ``late`` look-ups pass before the last of them is there."""

    def __init__(self, ids, late=0):
        super().__init__(ClientApp(), len(ids))
        self.nodes = {1000 + 7 * k: partition for k, partition in enumerate(ids)}
        del self.partitions
        self.late, self.asked = late, []

    def get_node_ids(self):
        self.late -= 1
        return list(self.nodes)[: None if self.late < 0 else -1]

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            self.asked.append(message.metadata.dst_node_id)
            identity = MetricRecord({"partition-id": self.nodes[message.metadata.dst_node_id], "num-partitions": 3})
            replies.append(Message(RecordDict({"identity": identity}), reply_to=message))
        return replies


def test_o14_waits_for_every_node_and_asks_each_once():
    grid = Asked([2, 0, 1], late=3)
    manager = RandomAccessClientManager(law(3, 3), 3, node_wait_s=10)
    manager.connect(grid)
    assert sorted(grid.asked) == [1000, 1007, 1014]
    assert dict(manager.admit(grid, 1).partitions) == {1007: 0, 1014: 1, 1000: 2}


def test_gives_up_in_time_and_names_who_is_missing():
    with pytest.raises(UserError, match="2 of 3 clients have connected; missing partitions 1"):
        RandomAccessClientManager(law(3, 1), 3, node_wait_s=0.2).connect(Asked([2, 0, 1], late=10**6))


def test_o27_two_nodes_with_one_partition_are_refused():
    with pytest.raises(UserError, match="two nodes say they hold partition-id=1"):
        RandomAccessClientManager(law(3, 1), 3, node_wait_s=1).connect(Asked([0, 1, 1]))


@pytest.mark.parametrize("m", [1, 2, 4])
def test_o13_exactly_the_drawn_ones_get_through(m):
    grid = Asked([0, 1, 2, 3])
    manager = RandomAccessClientManager(law(4, m), 4, node_wait_s=1)
    manager.connect(grid)
    for number in range(1, 20):
        assert list(manager.admit(grid, number).partitions.values()) == law(4, m).sample(number).tolist()
        assert len(list(manager.admit(grid, number).get_node_ids())) == m


def test_a_message_to_somebody_who_did_not_get_through_is_refused():
    grid = Asked([0, 1])
    view = RoundView(grid, {1000: 0})
    with pytest.raises(ValueError, match="did not reach the server"):
        view.send_and_receive([Message(RecordDict(), 1007, "train")])


# --- hidden availability -------------------------------------------------------------------------------------------------


def reachable(*roots):
    """Every object a strategy could get at by following references: attributes, items, closures, defaults; not modules,
    classes and globals, which are the same in every run."""
    stack, seen = list(roots), set()
    while stack:
        thing = stack.pop()
        if id(thing) in seen or isinstance(thing, types.ModuleType | type | types.FrameType | types.CodeType):
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, types.FunctionType):
            stack += [cell.cell_contents for cell in thing.__closure__ or ()] + list(thing.__defaults__ or ())
        else:
            stack += gc.get_referents(thing)


def leaks(p, *roots):
    found = []
    for thing in reachable(*roots):
        if isinstance(thing, Law | RandomAccessClientManager):
            found.append(thing)
        values = thing.numpy() if isinstance(thing, Array) else thing
        if isinstance(values, torch.Tensor):
            values = values.detach().numpy()
        if isinstance(values, list | tuple) and all(isinstance(v, float) for v in values):
            values = np.array(values)
        if isinstance(values, np.ndarray) and values.shape == p.shape and values.dtype.kind == "f":
            found += [thing] if np.allclose(values, p, rtol=1e-6) else []
    return found


def test_the_search_finds_what_it_should():
    p = np.array([0.5, 0.3, 0.2])
    manager = RandomAccessClientManager(law(3, 1), 3, 1.0)

    class Nosy:
        pass

    for secret in (manager, manager.law, p, p.tolist(), {"deep": [tuple(p)]}, lambda: p, Array(p), torch.from_numpy(p)):
        nosy = Nosy()
        nosy.attribute = secret
        assert leaks(p, nosy)


TOLD = {name for name in STRATEGIES if lookup(STRATEGIES, name).told_marginals}


def test_only_the_oracle_is_told():
    assert sorted(TOLD) == ["oracle"]


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - TOLD))  # an oracle knows p, and says so
def test_nothing_reachable_from_a_strategy_knows_the_law(name):
    config = validate(compose_config([f"strategy={name}", "num_rounds=3"]))
    prepared = prepare_run(config)
    p = prepared.manager.law.marginals().values
    assert len(set(p.round(6))) == 2  # the default law is uneven
    checks = []

    class Watched(lookup(STRATEGIES, name)):
        def configure_train(self, server_round, arrays, config, grid):
            messages = list(super().configure_train(server_round, arrays, config, grid))
            checks.append(leaks(p, self, grid, messages))
            return messages

        def aggregate_train(self, server_round, replies):
            result = super().aggregate_train(server_round, replies)
            checks.append(leaks(p, self, replies))
            return result

    strategy = Watched(config.strategy, config.client, config.num_clients)

    class Between:
        def after_round(self, round):
            checks.append(leaks(p, strategy))

    factory = WorkspaceFactory(config, prepared.dataset, prepared.partition)
    from clients.base import write_settings

    strategy.start(
        InlineGrid.create(config.backend, config.num_clients, factory, prepared.device),
        to_record(make_local_model(config, prepared.dataset, prepared.device).arrays()),
        num_rounds=3,
        train_config=ConfigRecord({"seed": 0, **write_settings(config.client)}),
        manager=prepared.manager,
        callbacks=[Between()],
    )
    assert len(checks) == 9
    assert not any(checks)


def test_flowers_own_strategy_runs_under_the_law(federation, fedavg_settings, train_config):
    """Flower's FedAvg told to train on all the nodes it sees: the drawn ones, with equal numbers of examples a plain mean."""
    from flwr.serverapp.strategy import FedAvg as FlowersFedAvg

    settings = fedavg_settings()
    results, participants = [], []
    for strategy in (
        FlowersFedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
        FedAvg(StrategySettings("fedavg", "sgd", 1.0, 0.9, 0.99, 1e-3), settings, 3),
    ):
        four = federation([[0.0], [1.0], [5.0], [9.0]])
        seen = []
        watcher = type(
            "W", (), {"after_round": lambda self, round, seen=seen: seen.append([o.client for o in round.outcomes])}
        )()
        manager = RandomAccessClientManager(law(4, 2), 4, 1.0)
        result = run_rounds(
            strategy,
            four.grid,
            four.start,
            5,
            manager=manager,
            train_config=train_config(settings),
            callbacks=[watcher],
        )
        results.append(to_arrays(result.arrays)["theta"])
        participants.append(seen)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)
    assert participants[0] == participants[1] == [law(4, 2).sample(t).tolist() for t in range(1, 6)]
