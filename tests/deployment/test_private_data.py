"""Three sites with data of their own, over TLS with a key each."""

import json

import numpy as np
import pandas as pd
import pytest

from fedrage_flwr.prepare import main as prepare

pytestmark = pytest.mark.deployment
DATA = (
    "dataset=private partition=local dataset.classes=[left,right] dataset.input_shape=[2] rare_clients=0 model=softmax"
)


@pytest.fixture
def tables(tmp_path):
    """Points on a line, labelled by their sign."""
    rng = np.random.default_rng(0)
    for site in range(3):
        points = rng.normal(size=(60 + 20 * site, 2))
        side = np.where(points[:, 0] > 0, "right", "left")
        pd.DataFrame({"x": points[:, 0], "y": points[:, 1], "side": side}).to_csv(tmp_path / f"{site}.csv", index=False)
        assert prepare(["table", str(tmp_path / f"{site}.csv"), str(tmp_path / f"{site}.npz"), "--label", "side"]) == 0
    return tmp_path


def test_three_sites_train_on_their_own_data(federation, tables):
    here = federation(3)
    for site in range(3):
        here.register(site)
        here.start_node(site, f'partition-id={site} num-partitions=3 data-path="{tables / f"{site}.npz"}"')
    text = here.run(f"{DATA} ram=natural num_clients=3 num_rounds=2 eval_every=2 client.lr=0.5", tables / "out")
    assert (tables / "out" / "summary.json").exists(), text
    summary = json.loads((tables / "out" / "summary.json").read_text())
    clients = pd.read_csv(tables / "out" / "clients.csv")
    assert clients.groupby("client")["examples"].first().tolist() == [12, 16, 20]  # a fifth of 60, 80 and 100
    assert summary["accuracy_mean_last10"] > 0.8
    assert summary["rejected_replies"] == 0


def test_a_site_with_other_classes_is_refused_by_name(federation, tables):
    here = federation(1, insecure=True)
    here.start_node(0, f'partition-id=0 num-partitions=1 data-path="{tables / "0.npz"}"')
    text = here.run(f"{DATA.replace('left,right', 'left,middle,right')} ram=full num_clients=1", tables / "out")
    assert (
        "classes is ['left', 'right'] in the file, but the run has dataset.classes=['left', 'middle', 'right']" in text
    )
