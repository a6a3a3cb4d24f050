"""Exact intervals and hedge capacity by hand; the whole page on a real run."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fedrage_flwr import explain
from fedrage_flwr.errors import UserError
from fedrage_flwr.explain import Observed, as_met, binomial_interval, implied_weights, main, observe, weight_lines
from fedrage_flwr.outlook import Outlook, name_clients
from fedrage_flwr.words import conf_dir
from strategies.federage import FedeRage


@pytest.fixture
def run_folder(simulate):
    """A short run as the command leaves it: its tables, and the configuration beside them."""
    from omegaconf import OmegaConf

    from fedrage_flwr.config import compose_config

    def make(*overrides):
        folder, _ = simulate(*overrides)
        cfg = compose_config(overrides)
        (folder / ".hydra").mkdir()
        OmegaConf.save(
            OmegaConf.masked_copy(cfg, [key for key in cfg if key != "hydra"]), folder / ".hydra" / "config.yaml"
        )
        return folder

    return make


def test_binomial_intervals_are_the_exact_ones():
    # 0 of n: (0, 1 − (a/2)^(1/n)); n of n is its mirror image; both solve P(X as extreme) = 2.5 %
    low, high = binomial_interval(np.array([0, 10, 3]), 10)
    assert low[0] == 0
    assert high[1] == 1
    assert high[0] == pytest.approx(1 - 0.025 ** (1 / 10))
    assert low[1] == pytest.approx(0.025 ** (1 / 10))
    assert (low[2], high[2]) == pytest.approx((0.06674, 0.65245), abs=1e-5)  # Clopper & Pearson's own table: .067, .652


def test_the_interval_holds_its_level_whatever_the_probability():
    from math import comb

    trials = 30
    low, high = binomial_interval(np.arange(trials + 1), trials)
    for p in (0.01, 0.1, 0.37, 0.5):
        chance = [comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)]
        assert sum(c for c, a, b in zip(chance, low, high, strict=True) if a <= p <= b) >= 0.95


def client(**changes):
    return SimpleNamespace(**{"kappa": 5.0, "gamma": 0.5, "lr": 0.02, "lr_beta": 0.01, "local_steps": 5, **changes})


def test_hedge_capacity_by_hand():
    # N = 4, M = 2, κ = 5: κ p_i N = 10 P(i∈S); the rarest κ makes up for is M/(Nκ) = 0.1, which client 3 has not
    inclusion = np.array([0.9, 0.9, 0.15, 0.05])
    told = FedeRage.explain(None, client(), Outlook(100, inclusion, inclusion / 2))
    assert told.columns["κ p_i N"] == pytest.approx([9, 9, 1.5, 0.5])
    lines = dict(told.lines)
    assert lines["hedge capacity"].startswith("clients 3 cannot")
    assert lines["smallest P(i∈S)"].startswith("0.1 =")
    assert lines["κ"].startswith("5 =")
    assert lines["κ"].endswith("κ · lr = 0.1")
    assert lines["β"].startswith("falls by 1 in 40 rounds")  # 1/(0.01 · 0.5 · 5)


def test_a_client_exactly_at_the_limit_is_covered_and_gamma_0_moves_no_beta():
    inclusion = np.array([0.9, 0.9, 0.1, 0.1])
    told = FedeRage.explain(None, client(gamma=0.0), Outlook(100, inclusion, inclusion / 2))
    assert "every client" in dict(told.lines)["hedge capacity"]
    assert "every step weighs 1" in dict(told.lines)["β"]


def test_implied_weights_are_shares_times_step_weights():
    observed = Observed(
        10, np.array([6, 4, 0]), np.array([6, 4, 0]), np.array([0.6, 0.4, 0.0]),
        {"step_weight_mean": np.array([1.0, 3.0, np.nan])}, np.zeros(3),
    )  # fmt: skip
    assert implied_weights(observed) == pytest.approx([1.0, 2.0, 0.0])  # (.6, 1.2, 0) scaled to sum to 3
    lines = dict(weight_lines(observed))
    assert lines["mean step weight"].startswith("1.8 ")
    assert lines["weighed up"] == "clients 1 (largest first)"


def test_the_tables_of_a_run_are_read_right(run_folder):
    folder = run_folder("num_rounds=6", "ram.clients_per_round=2", "num_clients=8", "rare_clients=1")
    (folder / "participation.csv").write_text(
        "round,client,outcome,reason\n1,0,averaged,\n1,1,averaged,\n2,1,averaged,\n3,1,averaged,\n3,2,failed,why\n"
    )
    (folder / "updates.csv").write_text(
        "round,client,train_loss,beta,step_weight_mean,tail_share\n1,0,1,,2,0\n1,1,2,,1,0\n2,1,4,,3,0\n3,1,6,,2,0.3\n"
    )
    observed = observe(folder, explain.read_config(folder))
    assert observed.num_rounds == 6
    assert observed.came.tolist() == [1, 3, 1, 0, 0, 0, 0, 0]
    assert observed.averaged.tolist() == [1, 3, 0, 0, 0, 0, 0, 0]
    assert observed.share[:3] == pytest.approx([0.5 / 3, 2 / 3, 0.5 / 3])  # (½), (½ + 1 + ½), (½) over three rounds
    assert observed.numbers["train_loss"][:2].tolist() == [1, 4]
    assert "beta" not in observed.numbers  # nobody sent it
    assert observed.numbers["tail_share"][1] == pytest.approx(0.1)


@pytest.mark.parametrize("overrides", [["strategy=federage"], ["strategy=fedavg", "ram=markov"]])
def test_the_page_names_the_clients_never_seen(run_folder, capsys, overrides):
    folder = run_folder("num_rounds=3", *overrides)
    main([str(folder)])
    page = capsys.readouterr().out
    came = set(np.loadtxt(folder / "participation.csv", delimiter=",", skiprows=1, usecols=1, ndmin=1).astype(int))
    never = sorted(set(range(30)) - came)
    assert f"{len(never)} clients ({name_clients(never)})" in page
    assert ("smallest P(i∈S)" in page) == ("weighed up" in page) == (overrides[0] == "strategy=federage")
    assert ("too narrow" in page) == ("ram=markov" in overrides)


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["--help"], ["nowhere"]])
def test_mistakes_are_one_line(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"usage: python -m fedrage_flwr\.explain FOLDER"):
        main(arguments)


def test_real_sites_are_explained_by_what_was_met(tmp_path, run_folder, capsys):
    """ram=natural has no law to compare with: six rounds of a run, relabelled, stand for those of three sites."""
    folder = run_folder(
        "num_clients=3", "rare_clients=0", "partition=iid", "ram=uniform", "ram.clients_per_round=1", "num_rounds=6"
    )
    from omegaconf import OmegaConf

    path = folder / ".hydra" / "config.yaml"
    config = OmegaConf.load(path)
    config.ram = OmegaConf.load(conf_dir() / "ram" / "natural.yaml")
    OmegaConf.save(config, path)
    came = pd.read_csv(folder / "participation.csv")["client"].value_counts().reindex(range(3), fill_value=0)
    main([str(folder)])
    page = capsys.readouterr().out
    assert "not known beforehand" in page
    assert "expected" not in page
    rows = [
        line.split()[:2]
        for line in page.partition("Clients")[2].splitlines()
        if line.split()[:1] in (["0"], ["1"], ["2"])
    ]
    assert rows == [[str(i), str(came[i])] for i in range(3)]
    assert "of the rounds, over 3 sites" in page
    assert "1 (mean)" in page  # one participant a round


def test_what_was_met_in_numbers():
    """Two rounds, {0} and {0, 1}, of three sites: P = (1, ½, 0), p = (¾, ¼, 0)."""
    observed = Observed(
        2, np.array([2, 1, 0]), np.array([2, 1, 0]), np.array([0.75, 0.25, 0.0]), {}, np.full(3, np.nan)
    )
    view = as_met(observed)
    assert (view.inclusion.tolist(), view.marginals.tolist(), view.participants) == ([1, 0.5, 0], [0.75, 0.25, 0], 1.5)
