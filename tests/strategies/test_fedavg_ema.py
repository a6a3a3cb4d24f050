"""The moving average by hand; that the iterates are FedAvg's; that the average is what is measured and saved."""

import csv

import numpy as np
import torch
from safetensors.numpy import load_file

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.parts import make_local_model, prepare_run
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.rounds import Update
from strategies.fedavg_ema import FedAvgEma


def record(value, count):
    return to_record({"w": np.array([value], np.float32), "count": np.array(count)})


def rounds(settings_of, values, **settings):
    """What is reported after each round in which one client sends this value."""
    server, reported = FedAvgEma(*settings_of("fedavg_ema", **settings), 1), []
    for count, value in enumerate(values):
        server.broadcast = {"arrays": record(0.0, count)}
        arrays = server.reduce([Update(0, {"arrays": record(value, count)}, {})])
        assert to_arrays(arrays)["w"] == [value]  # broadcast as it is
        reported.append(to_arrays(server.reported(arrays)))
    return reported


def test_by_hand(settings_of):
    """d = ½ and iterates 4, 1, 8: 4; (2 + 1)/1.5 = 2; (1 + ½ + 8)/1.75 = 38/7. The start is not in it."""
    reported = rounds(settings_of, [4.0, 1.0, 8.0], ema_decay=0.5)
    np.testing.assert_allclose([r["w"].item() for r in reported], [4, 2, 38 / 7], rtol=1e-7)
    assert [(r["count"].item(), r["count"].dtype, r["w"].dtype) for r in reported] == [
        (t, np.int64, np.float32) for t in range(3)
    ]


def test_towards_one_it_is_the_plain_average(settings_of):
    reported = rounds(settings_of, [4.0, 1.0, 8.0, -5.0], ema_decay=1 - 1e-9)
    np.testing.assert_allclose([r["w"].item() for r in reported], [4, 5 / 2, 13 / 3, 2], rtol=1e-6)


def test_before_the_first_round_the_start_is_reported(settings_of):
    server = FedAvgEma(*settings_of("fedavg_ema"), 1)
    assert to_arrays(server.reported(record(3.0, 7))) == {"w": np.array([3.0]), "count": np.array(7)}


def columns(folder, *names):
    with (folder / "rounds.csv").open() as file:
        return [[row[name] for name in names] for row in csv.DictReader(file)]


def test_decay_zero_is_fedavg_bit_for_bit(simulate):
    job = ("num_rounds=12", "client.lr=0.05")
    fedavg, _ = simulate("strategy=fedavg", *job)
    ema, _ = simulate("strategy=fedavg_ema", "strategy.ema_decay=0", *job)
    for name in ("model.safetensors", "polyak.safetensors"):
        expected, found = load_file(fedavg / name), load_file(ema / name)
        assert {key: a.tobytes() for key, a in expected.items()} == {key: a.tobytes() for key, a in found.items()}
    assert columns(fedavg, "accuracy", "loss", "train_loss") == columns(ema, "accuracy", "loss", "train_loss")


def test_the_iterates_are_fedavgs_and_the_average_is_measured_and_saved(simulate):
    job = ("num_rounds=12", "client.lr=0.05")
    fedavg, _ = simulate("strategy=fedavg", *job)
    ema, _ = simulate("strategy=fedavg_ema", *job)
    iterates = [load_file(folder / "polyak.safetensors") for folder in (fedavg, ema)]
    assert all((iterates[0][name] == iterates[1][name]).all() for name in iterates[0])
    assert columns(fedavg, "train_loss", "bytes_up", "bytes_down") == columns(
        ema, "train_loss", "bytes_up", "bytes_down"
    )

    prepared = prepare_run(validate(compose_config(["strategy=fedavg_ema"])))
    model, test = make_local_model(prepared.config, prepared.dataset, torch.device("cpu")), prepared.dataset.test
    losses = []
    for folder in (fedavg, ema):
        model.load(load_file(folder / "model.safetensors"))
        outputs = model.outputs(prepared.dataset.to_float(test.inputs))
        losses.append(float(model.example_loss(outputs, test.labels).double().mean()))
        assert float(columns(folder, "loss")[-1][0]) == losses[-1]
    assert losses[0] != losses[1]
