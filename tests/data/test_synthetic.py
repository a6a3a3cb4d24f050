"""Clients made on demand: equal ids give equal data, and nothing grows with N."""

import pickle

import numpy as np
import pytest
import torch

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.data import load_dataset, partition
from fedrage_flwr.errors import UserError
from fedrage_flwr.parts import WorkspaceFactory, prepare_run

WORDS = ("dataset=synthetic", "partition=natural", "ram=uniform")


def made(*overrides):
    config = validate(compose_config([*WORDS, *overrides]))
    dataset = load_dataset(config.dataset)
    return dataset, partition(config.partition, dataset, config.num_clients, config.rare_clients)


def test_a_client_is_a_function_of_seed_and_id():
    source, again = made()[0].source, pickle.loads(pickle.dumps(made()[0].source))
    again.train(3)  # what was asked before changes nothing
    first, second = source.train(7), again.train(7)
    assert torch.equal(first.inputs, second.inputs)
    assert torch.equal(first.labels, second.labels)
    np.testing.assert_array_equal(source.test(7), again.test(7))
    assert not torch.equal(first.inputs, source.train(8).inputs)
    assert not torch.equal(first.inputs, made("dataset.seed=1")[0].source.train(7).inputs)


def test_shapes_sizes_and_classes():
    dataset, shared = made("dataset.shape=[3,4,5]", "dataset.examples_per_client=25", "dataset.classes_per_client=3")
    split = dataset.source.train(11)
    assert (split.inputs.shape, split.inputs.dtype, dataset.input_shape) == ((25, 3, 4, 5), torch.uint8, (3, 4, 5))
    classes = set(dataset.source.classes(11).tolist())
    assert len(classes) == 3
    assert set(split.labels.tolist()) <= classes
    assert set(dataset.test.labels[shared.test[11]].tolist()) <= classes
    assert len(set(shared.test[11].tolist())) == 20
    # f = 0.1 of 25 is 2.5: two for validation
    assert (len(shared.train[11]), len(shared.clients[11].validation)) == (23, 2)
    assert sorted([*shared.train[11], *shared.clients[11].validation]) == list(range(25))


def test_without_noise_an_example_is_its_prototype():
    source = made("dataset.noise=0.0")[0].source
    split = source.train(0)
    np.testing.assert_array_equal(split.inputs.numpy(), source.prototypes[split.labels.numpy()].astype(np.uint8))


def test_every_class_is_held_by_equally_many_clients():
    """2 of 10 classes each: the number of holders is binomial(2000, 0.2), mean 400, standard deviation 17.9. Ten counts within
    5 standard deviations fail by chance with probability below 1e-5; the draws are fixed by the seed."""
    source = made()[0].source
    holders = np.bincount(np.concatenate([source.classes(i) for i in range(2000)]), minlength=10)
    assert holders.sum() == 4000
    assert np.abs(holders - 400).max() < 5 * 17.9


def test_a_partition_of_a_hundred_thousand_holds_nothing_for_each():
    _, shared = made("num_clients=100000")
    assert (len(shared.clients), len(shared.test)) == (100_000, 100_000)
    assert len(pickle.dumps(shared)) < 100_000  # bytes
    with pytest.raises(IndexError):
        shared.train[100_000]


def test_the_workspace_makes_what_is_asked_for_and_nothing_else():
    config = validate(compose_config([*WORDS, "num_clients=50"]))
    prepared = prepare_run(config)
    workspace = WorkspaceFactory(config, prepared.dataset, prepared.partition)(torch.device("cpu"))
    client = workspace.client(49)
    inputs, targets = client.all()
    wanted = prepared.dataset.source.train(49)
    assert (client.num_examples, client.num_test) == (54, 20)
    assert torch.equal(inputs, prepared.dataset.to_float(wanted.inputs[:54]))
    assert torch.equal(targets, wanted.labels[:54])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["partition=iid"], "partition=iid: dataset=synthetic makes its clients; type partition=natural"),
        (["partition.order=[1,0]"], "partition.order: clients are made of their ids"),
        (["dataset.classes_per_client=11"], "dataset.classes_per_client=11"),
        (["dataset.test_examples=9"], "dataset.test_examples=9"),
        (["dataset.shape=[]"], r"dataset.shape=\[\]"),
        (["evaluate.faa=true"], "evaluate.faa=true: dataset=synthetic"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(overrides, message):
    with pytest.raises(UserError, match=message):
        prepare_run(validate(compose_config([*WORDS, *overrides])))


def test_a_run_learns_and_repeats_itself_to_the_bit(simulate):
    job = (
        *WORDS,
        "num_clients=1000",
        "num_rounds=40",
        "eval_every=40",
        "strategy=scaffold",
        "ram.clients_per_round=10",
    )
    first, summary = simulate(*job)
    second, _ = simulate(*job)
    for name in ("model.safetensors", "clients.csv", "participation.csv"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    assert summary["accuracy_mean_last10"] > 0.5  # guessing gives 0.1
