"""The oracle's weights, averaged exactly over a law with subsets of several sizes."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedrage_flwr.client_manager import RoundView
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.parts import make_strategy, prepare_run
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.rounds import Update
from strategies.oracle import Oracle

LAW = {(0,): 0.3, (1,): 0.1, (0, 1): 0.25, (1, 2): 0.05, (0, 1, 2): 0.3}
P = np.array([sum(q / len(s) for s, q in LAW.items() if i in s) for i in range(3)])
CHANGES = np.array([[1.0, -2.0], [0.5, 4.0], [-3.0, 10.0]])
START = np.array([5.0, -7.0])


def after(settings_of, subset, changes=CHANGES, **settings):
    """θ̂ after one round with the clients of ``subset``, in float64."""
    server = Oracle(*settings_of("oracle", **settings), 3, marginals=P)
    server.broadcast = {"arrays": to_record({"w": START})}
    updates = [Update(i, {"arrays": to_record({"w": START + changes[i]})}, {}) for i in subset]
    return to_arrays(server.reduce(updates))["w"]


def expectation(settings_of, **settings):
    return sum(q * after(settings_of, s, **settings) for s, q in LAW.items())


def test_the_expected_step_is_the_plain_mean_of_all_clients(settings_of):
    np.testing.assert_allclose(expectation(settings_of), START + CHANGES.mean(0), rtol=1e-12)


def test_the_step_by_hand(settings_of):
    """S = {0, 1}: ½(Δ_0/(3p_0) + Δ_1/(3p_1)) with p_0 = 0.3 + 0.25/2 + 0.1 = 0.525, p_1 = 0.1 + 0.125 + 0.025 + 0.1 = 0.35."""
    step = (CHANGES[0] / (3 * 0.525) + CHANGES[1] / (3 * 0.35)) / 2
    np.testing.assert_allclose(after(settings_of, (0, 1)), START + step, rtol=1e-12)


def test_the_server_rate_scales_the_step(settings_of):
    whole, half = (after(settings_of, (0, 1), server_lr=lr) - START for lr in (1.0, 0.5))
    np.testing.assert_allclose(half, whole / 2, rtol=1e-12)


def test_self_normalised_by_hand(settings_of):
    """Weights ∝ 1/p_i that sum to 1: 0.35/(0.525 + 0.35) = 0.4 for client 0, 0.6 for client 1."""
    step = 0.4 * CHANGES[0] + 0.6 * CHANGES[1]
    np.testing.assert_allclose(after(settings_of, (0, 1), self_normalised=True), START + step, rtol=1e-12)


def test_self_normalised_is_biased(settings_of):
    assert np.abs(expectation(settings_of, self_normalised=True) - (START + CHANGES.mean(0))).min() > 0.1


def test_self_normalised_is_steadier(settings_of):
    """Where all clients change alike it moves alike whoever takes part; the unbiased form does so on average only."""
    alike = np.tile([1.0, 2.0], (3, 1))
    moves = {
        form: np.array([after(settings_of, s, alike, self_normalised=form) - START for s in LAW])
        for form in (True, False)
    }
    np.testing.assert_allclose(moves[True], np.tile([1.0, 2.0], (len(LAW), 1)), rtol=1e-12)
    np.testing.assert_allclose(list(LAW.values()) @ moves[False], [1.0, 2.0], rtol=1e-12)
    assert np.ptp(moves[False][:, 0]) > 1


@pytest.mark.parametrize("local_steps", [1, 5])
def test_what_it_aims_at(federation, settings_of, train_config, local_steps):
    """On f_i = ½‖θ − a_i‖² the expected round contracts towards the plain mean of the a_i by (1 − η)^H."""
    centres = np.array([[0.0, 3.0], [1.0, -1.0], [10.0, 4.0]])
    settings, world = (
        settings_of("oracle", lr=0.1, local_steps=local_steps),
        federation(centres.tolist(), start=[2.0, 2.0]),
    )
    total = np.zeros(2)
    for subset, q in LAW.items():
        server = Oracle(*settings, 3, marginals=P)
        view = RoundView(world.grid, {n: i for n, i in world.grid.partitions.items() if i in subset})
        messages = server.configure_train(1, world.start, train_config(settings[1]), view)
        total += q * world.theta(server.aggregate_train(1, view.send_and_receive(messages))[0])
    np.testing.assert_allclose(total - centres.mean(0), 0.9**local_steps * ([2.0, 2.0] - centres.mean(0)), atol=1e-5)


def test_somebody_who_never_takes_part(federation, settings_of, train_config):
    """p_i = 0 and there it is: the round is refused and the model stays."""
    settings, world = settings_of("oracle"), federation([[0.0], [1.0]])
    server = Oracle(*settings, 2, marginals=np.array([1.0, 0.0]))
    result = server.start(world.grid, world.start, 1, train_config=train_config(settings[1]))
    assert (world.theta(result.arrays) == world.theta(world.start)).all()
    assert {(o.outcome, o.reason) for o in server.outcomes} == {
        ("rejected", "client 1 took part although the oracle was told that it never does")
    }


def test_integer_arrays_are_not_weighted(settings_of):
    server = Oracle(*settings_of("oracle"), 3, marginals=P)

    def record(count):
        return to_record({"w": np.zeros(1, np.float32), "count": np.array(count)})

    server.broadcast = {"arrays": record(1)}
    arrays = to_arrays(server.reduce([Update(i, {"arrays": record(2 + i)}, {}) for i in (0, 2)]))
    assert (arrays["count"], arrays["count"].dtype) == (4, np.int64)


def test_a_run_tells_it_the_marginals_of_its_law():
    prepared = prepare_run(validate(compose_config(["strategy=oracle"])))
    told = make_strategy(prepared.config, prepared.manager).marginals
    np.testing.assert_array_equal(told, prepared.manager.law.marginals().values)
    assert (told.dtype, told.shape, round(told.sum(), 9)) == (np.float64, (30,), 1)


@pytest.mark.parametrize("form", ["true", "false"])
def test_with_everybody_there_it_is_fedavg(simulate, form):
    job = ("num_rounds=3", "ram=full", "num_clients=6", "rare_clients=0", "partition=iid")
    fedavg, _ = simulate("strategy=fedavg", *job)
    oracle, summary = simulate("strategy=oracle", f"strategy.self_normalised={form}", *job)
    assert summary["strategy"] == "oracle"  # labelled in every table made of summaries
    expected, found = load_file(fedavg / "model.safetensors"), load_file(oracle / "model.safetensors")
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6)
