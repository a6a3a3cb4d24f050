"""FOCUS's client half by hand: E-step, M-step, mixture (FOCUS paper, Algorithm 1, eqs. 4-8)."""

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict
from torch import nn

from clients.focus import mix, responsibilities
from fedrage_flwr.client_app import make_client_app
from fedrage_flwr.clusters import join, split
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.losses import cross_entropy, squared_error
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.training import LocalModel
from fedrage_flwr.workspace import SplitTensors, Workspace


@pytest.fixture
def settings(fedavg_settings):
    return lambda **changes: fedavg_settings(name="focus", **changes)


def send(grid, config, models, kind="train", client=0, arrays=None):
    content = RecordDict({"arrays": to_record(join(enumerate(models)) if arrays is None else arrays)})
    content["config"] = ConfigRecord({**config, "server-round": 1})
    (reply,) = grid.send_and_receive([Message(content, list(grid.get_node_ids())[client], kind)])
    return reply


def ask(*arguments, **options):
    reply = send(*arguments, **options)
    assert not reply.has_error(), reply.error
    return reply.content


def theta(*values):
    return [{"theta": np.array([value], np.float32)} for value in values]


def test_one_round_by_hand(federation, settings, train_config):
    """f = θ² (h = 2, a = 0). At w = (1, 2) the losses are 1 and 4: π = (1, e⁻³)/(1 + e⁻³) from uniform. One step of 0.1
    along 2θ leaves 0.8 of each model. The loss reported weighs both by π."""
    one = federation([[0.0]], curvatures=[2.0])
    content = ask(one.grid, train_config(settings()), theta(1, 2))
    expected = np.array([1, np.exp(-3)]) / (1 + np.exp(-3))
    np.testing.assert_allclose(to_arrays(content["pi"])["value"], expected, rtol=1e-6)
    found = split(to_arrays(content["arrays"]))
    np.testing.assert_allclose([model["theta"][0] for model in found], [0.8, 1.6], rtol=1e-6)
    assert content["metrics"]["train-loss"] == pytest.approx(expected @ [1, 4], rel=1e-6)
    assert content["metrics"]["pi_max"] == pytest.approx(expected[0])


def test_pi_accumulates_over_the_rounds_a_client_takes_part_in(federation, settings, train_config):
    """Losses (1, 4), then with other models (9, 4): log π ∝ (−10, −8)."""
    two = federation([[0.0], [0.0]], curvatures=[2.0, 2.0])
    ask(two.grid, train_config(settings()), theta(1, 2))
    content = ask(two.grid, train_config(settings()), theta(3, 2))
    np.testing.assert_allclose(to_arrays(content["pi"])["value"], np.array([np.exp(-2), 1]) / (1 + np.exp(-2)), 1e-6)
    other = ask(two.grid, train_config(settings()), theta(3, 2), client=1)
    np.testing.assert_allclose(to_arrays(other["pi"])["value"], np.array([np.exp(-5), 1]) / (1 + np.exp(-5)), 1e-5)


def log(*pi):
    return np.log(np.array(pi))


@pytest.mark.parametrize(
    ("prior", "losses", "expected"),
    [
        ((0.5, 0.5), (800, 801), (0.7310586, 0.2689414)),
        ((0.5, 0.5), (0.3, 5000), (1, 0)),
        ((0.9, 0.1), (2, 1), (0.7680307, 0.2319693)),
        ((0.5, 0.5), (np.inf, 3), (0, 1)),
        ((0.5, 0.5), (2, np.nan), (1, 0)),
        ((1 - 1e-300, 1e-300), (np.inf, 900), (0, 1)),  # the only finite one was next to impossible
        ((0.9, 0.1), (np.inf, np.nan), (0.9, 0.1)),
    ],
)
def test_o11_e_step(prior, losses, expected):
    found = responsibilities(log(*prior), np.array(losses, float))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(np.exp(found), expected, atol=5e-8)


def test_o11_no_finite_loss_is_logged(caplog):
    responsibilities(log(0.9, 0.1), np.array([np.inf, np.inf]))
    assert "stay as they were" in caplog.text


def test_o11_float32_losses_around_104_for_200_rounds():
    """exp(−104) is 0 in float32. After 200 rounds log π is that of the summed losses, and the weights sum to 1."""
    rng = np.random.default_rng(0)
    losses = (104 + rng.normal(0, 0.1, (200, 3))).astype(np.float32)
    log_pi = log(1 / 3, 1 / 3, 1 / 3)
    for row in losses:
        log_pi = responsibilities(log_pi, row)
        assert np.exp(log_pi).sum() == pytest.approx(1, abs=1e-6)
    total = -losses.astype(float).sum(0)
    np.testing.assert_allclose(log_pi, total - total.max() - np.log(np.exp(total - total.max()).sum()), atol=1e-8)


@pytest.mark.parametrize("bad", [5000, np.inf])
def test_a_pi_that_underflowed_comes_back(bad):
    log_pi = responsibilities(log(0.5, 0.5), np.array([0, bad]))
    assert np.exp(log_pi[1]) == 0
    for _ in range(12):
        log_pi = responsibilities(log_pi, np.array([500, 0]))
    assert np.exp(log_pi[1]) == 1


def test_mixed_are_probabilities_not_logits():
    """Cluster 0 gives class 1 odds of 1 to 4, cluster 1 of 7 to 3; π = (¼, ¾): ¼·0.2 + ¾·0.7 = 0.575. Of the mixed logits
    the odds would be (1/4)^¼ (7/3)^¾ = 1.335, a probability of 0.572."""
    outputs = torch.log(torch.tensor([[[0.8, 0.2]], [[0.3, 0.7]]])) + 5  # shifted: logits, not log-probabilities
    found = torch.softmax(mix(outputs, log(0.25, 0.75), cross_entropy), -1)
    np.testing.assert_allclose(found, [[0.425, 0.575]], rtol=1e-6)


def test_a_cluster_of_weight_zero_may_give_anything():
    outputs = torch.tensor([[[0.0, 0.0]], [[torch.nan, torch.inf]]])
    found = mix(outputs, np.array([0.0, -5000.0]), cross_entropy)
    np.testing.assert_allclose(found.exp(), [[0.5, 0.5]])


def one_client(loss, train_targets, test_targets):
    """One client whose inputs are 0, so that the model's output is its bias."""
    outputs = 2 if loss is cross_entropy else 1
    train, test = (SplitTensors(torch.zeros(len(t), 1), torch.tensor(t)) for t in (train_targets, test_targets))
    parts = [np.arange(len(train_targets))], [np.arange(len(test_targets))]
    model = LocalModel(nn.Sequential(nn.Linear(1, outputs)), loss)
    return InlineGrid(make_client_app(Workspace(model, train, parts[0], lambda x: x, test, parts[1])), 1)


def bias(*values):
    return {"0.weight": np.zeros((len(values), 1), np.float32), "0.bias": np.array(values, np.float32)}


def test_a_client_that_never_took_part_predicts_with_one_e_step(settings, train_config):
    """p(class 1) is 0.2 and 0.7, the one training example is of class 1: π ∝ (0.2, 0.7) = (2/9, 7/9), so p(class 1) is
    (0.04 + 0.49)/0.9 = 53/90. Of the test examples 1, 1, 0 two are right. Nothing is kept."""
    grid = one_client(cross_entropy, [1], [1, 1, 0])
    models = [bias(np.log(0.8), np.log(0.2)), bias(np.log(0.3), np.log(0.7))]
    metrics = ask(grid, train_config(settings()), models, "evaluate")["metrics"]
    assert metrics["pi"] == pytest.approx([2 / 9, 7 / 9])
    assert metrics["accuracy"] == pytest.approx(2 / 3)
    assert metrics["loss"] == pytest.approx(-(2 * np.log(53 / 90) + np.log(37 / 90)) / 3)
    assert not grid.context(0).state


def test_a_client_that_took_part_predicts_with_the_pi_it_kept(settings, train_config):
    """Outputs 1 and 3, π = (¼, ¾): the prediction is 2.5, and its squared error at 2 is ¼. The training target, 1, would
    give another π."""
    grid = one_client(squared_error, [1.0], [2.0])
    grid.context(0).state["log_pi"] = to_record({"value": log(0.25, 0.75)})
    metrics = ask(grid, train_config(settings()), [bias(1.0), bias(3.0)], "evaluate")["metrics"]
    assert metrics["pi"] == pytest.approx([0.25, 0.75])
    assert metrics["loss"] == pytest.approx(0.25)


def linear_client(examples=40):
    rng = np.random.default_rng(1)
    x, y = (torch.tensor(rng.normal(size=s), dtype=torch.float32) for s in ((examples, 3), (examples,)))
    model = LocalModel(nn.Sequential(nn.Linear(3, 1)), squared_error)
    grid = InlineGrid(make_client_app(Workspace(model, SplitTensors(x, y), [np.arange(examples)], lambda x: x)), 1)
    weights = [rng.normal(size=(1, 3)).astype(np.float32) for _ in range(3)]
    return grid, [{"0.weight": w, "0.bias": np.zeros(1, np.float32)} for w in weights]


def test_the_batched_trainings_are_those_of_fedavg_on_the_same_batches(settings, fedavg_settings, train_config):
    """Five steps on mini-batches of 4: G trainings as one computation, against FedAvg's client from each model."""
    grid, models = linear_client()
    work = {"lr": 0.05, "local_steps": 5, "batch_size": 4}
    together = split(to_arrays(ask(grid, train_config(settings(**work)), models)["arrays"]))
    for start, found in zip(models, together, strict=True):
        content = ask(grid, train_config(fedavg_settings(**work)), [], arrays=start)
        for name, expected in to_arrays(content["arrays"]).items():
            np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)


def test_the_loss_of_the_e_step_is_that_of_all_local_data(settings, train_config, monkeypatch):
    """Whatever the batch and the size of the passes."""
    monkeypatch.setattr("fedrage_flwr.training.PASS", 7)
    grid, models = linear_client()
    content = ask(grid, train_config(settings(batch_size=2)), models)
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    scores = [-np.square(x @ m["0.weight"][0] - y).mean() for m in models]
    expected = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(to_arrays(content["pi"])["value"], expected, rtol=1e-5)


def test_a_model_that_ran_away_does_not_spoil_the_reply(federation, settings, train_config):
    """(10²⁰)² is no float32: that cluster weighs 0 and its model goes back as it came."""
    one = federation([[0.0]], curvatures=[2.0])
    content = ask(one.grid, train_config(settings()), theta(1, 1e20))
    assert to_arrays(content["pi"])["value"].tolist() == [1, 0]
    np.testing.assert_allclose(to_arrays(content["arrays"])["cluster0.theta"], [0.8], rtol=1e-6)
    assert to_arrays(content["arrays"])["cluster1.theta"] == np.float32(1e20)
    assert content["metrics"]["train-loss"] == pytest.approx(1)


@pytest.mark.parametrize(
    "arrays",
    [
        {"theta": np.zeros(1, np.float32)},
        {"cluster0.theta": np.zeros(2, np.float32)},
        {"cluster0.theta": np.zeros(1, np.float32), "cluster2.theta": np.zeros(1, np.float32)},
        {"cluster0.theta": np.zeros(1, np.float32), "cluster1.other": np.zeros(1, np.float32)},
    ],
)
def test_models_that_are_not_this_clients_are_refused(federation, settings, train_config, arrays):
    reply = send(federation([[0.0]]).grid, train_config(settings()), [], arrays=arrays)
    assert reply.has_error()
    assert "does not fit" in reply.error.reason


def test_one_model_is_fedavg_and_leaves_nothing_to_remember(federation, settings, fedavg_settings, train_config):
    one = federation([[3.0]], start=[1.0])
    content = ask(one.grid, train_config(settings(local_steps=3)), theta(1))
    assert to_arrays(content["pi"])["value"].tolist() == [1]
    assert not one.grid.context(0).state
    expected = ask(one.grid, train_config(fedavg_settings(local_steps=3)), [], arrays=theta(1)[0])
    assert to_arrays(content["arrays"])["cluster0.theta"] == to_arrays(expected["arrays"])["theta"]
    assert content["metrics"]["train-loss"] == expected["metrics"]["train-loss"]
