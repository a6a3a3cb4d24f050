"""Ditto: the global model is FedAvg's, the personal ones are what is measured."""

import pandas as pd
from safetensors.numpy import load_file

JOB = ("num_rounds=6", "client.lr=0.05", "eval_every=6")


def test_the_global_model_is_fedavgs_to_the_bit(simulate):
    fedavg, there = simulate("strategy=fedavg", *JOB)
    ditto, here = simulate("strategy=ditto", *JOB)
    for name in ("model.safetensors", "polyak.safetensors"):
        expected, found = load_file(fedavg / name), load_file(ditto / name)
        assert expected.keys() == found.keys()
        assert all((expected[key] == found[key]).all() for key in expected)
    assert [here[f"bytes_{way}_per_round"] for way in ("up", "down")] == [
        there[f"bytes_{way}_per_round"] for way in ("up", "down")
    ]


def test_clients_that_never_took_part_predict_with_the_global_model(simulate):
    """The others do not: after a round of their own their loss is another. Held-out clients never take part."""
    job = ("num_rounds=3", "client.lr=0.05", "num_clients=10", "partition=iid", "held_out_clients=2", "rare_clients=0")
    folders = [simulate(f"strategy={word}", "ram=uniform", *job)[0] for word in ("fedavg", "ditto")]
    fedavg, ditto = (pd.read_csv(f / "clients.csv").query("round == 3").set_index("client") for f in folders)
    took_part = set(pd.read_csv(folders[1] / "participation.csv")["client"])
    assert 0 < len(took_part) < 10
    for client in range(12):
        same = abs(fedavg.loss[client] - ditto.loss[client]) < 1e-6
        assert same == (client not in took_part)
