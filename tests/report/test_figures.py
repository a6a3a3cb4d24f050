"""Figures of made-up runs: what is drawn is what was put in, and the files are there."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from fedrage_flwr.api import run
from fedrage_flwr.experiment import main
from fedrage_flwr.report import plots
from fedrage_flwr.report.figures import (
    client_table,
    command,
    curve_table,
    draw,
    figures,
    membership_table,
    recovery,
    skew_table,
    weight_table,
)  # fmt: skip
from fedrage_flwr.report.runs import load

RAM = {
    "num_clients": 4, "rare_clients": 1, "ram.clients_per_round": 2, "ram.rare_probability": 0.2, "ram.probabilities": None,
    "client.alpha": 0.1, "client.gamma": 0.5,
}  # fmt: skip


def test_curves_are_the_means_and_the_band_the_extremes(make_run):
    runs = [make_run("fedavg", 0, [0.2, 0.4]), make_run("fedavg", 1, [0.4, 0.8]), make_run("federage", 0, [0.5, 0.7])]
    table = curve_table(runs)
    assert table.loc[table["label"] == "federage", "value"].tolist() == pytest.approx([50, 70])
    (axis,) = figures(runs)["curves"].axes
    assert [line.get_label() for line in axis.lines] == ["fedavg", "federage"]
    np.testing.assert_allclose(axis.lines[0].get_xydata(), [[1, 30], [2, 60]])
    band = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert {round(v) for v in band} == {20, 40, 80}


def test_a_panel_for_each_setting_met(make_run):
    runs = [make_run("fedavg", 0, [0.2], dataset=word) for word in ("mnist", "digits")]
    assert [axis.get_title() for axis in figures(runs)["curves"].axes] == ["mnist, skewed", "digits, skewed"]


def test_bars_of_clients_are_means_over_seeds(make_run):
    runs = [
        replace(make_run("fedavg", seed, [0.5], config=RAM), client_accuracy={0: a, 3: 0.1})
        for seed, a in enumerate((0.6, 0.8))
    ]
    assert client_table(runs)["value"].tolist() == pytest.approx([70, 10])
    (axis,) = figures(runs)["clients"].axes
    bars = [patch for patch in axis.patches if patch.get_height() > 1 and patch.get_facecolor()[:3] != (232 / 255,) * 3]
    assert [bar.get_height() for bar in bars] == pytest.approx([70, 10])
    assert axis.get_legend_handles_labels()[1] == ["fedavg, mean 40.0"]


def test_heat_map_over_alpha_and_gamma(make_run):
    runs = [
        make_run("federage", seed, [value + 0.02 * seed], config={**RAM, "client.alpha": alpha, "client.gamma": gamma})
        for (alpha, gamma), value in {(0.1, 0.5): 0.5, (0.1, 0.2): 0.6, (0.2, 0.5): 0.7, (0.2, 0.2): 0.8}.items()
        for seed in (0, 1)
    ]
    axis = figures(runs)["sensitivity"].axes[0]
    np.testing.assert_allclose(axis.images[0].get_array(), [[51, 71], [61, 81]])  # γ = 0.5 on top
    assert [text.get_text() for text in axis.texts] == ["51.0", "71.0", "61.0", "81.0"]


def test_skew_with_the_hedge_capacity(make_run):
    """κ = 0.5 + 0.5/0.1 = 5.5: M/(Nκ) = 2/(4 · 5.5)."""
    runs = [
        make_run(word, 0, [value], config={**settings, "ram.rare_probability": probability})
        for word, settings in (("fedavg", {k: v for k, v in RAM.items() if "client." not in k}), ("federage", RAM))
        for probability, value in ((0.1, 0.9), (0.01, 0.6))
    ]
    table, capacity = skew_table(runs)
    assert capacity == pytest.approx(1 / 11)
    assert table["whole test set"].tolist() == pytest.approx([90, 60, 90, 60])
    (axis,) = figures(runs)["skew"].axes
    np.testing.assert_allclose(axis.lines[0].get_xydata(), [[1, 60], [10, 90]])
    assert axis.lines[-1].get_xdata()[0] == pytest.approx(100 / 11)
    low, high = axis.get_xlim()
    assert low > high  # the rarest to the right


def test_effective_weights_by_hand(make_run):
    """p = (0.3, 0.3, 0.3, 0.1) of P = (0.6, 0.6, 0.6, 0.2) and M = 2; w̄ = (0.5, 0.5, 1, 5.5): products 0.15, 0.15, 0.3, 0.55
    sum to 1.15; the last is raised from 0.4 to 4 · 0.55/1.15."""
    made = replace(make_run("federage", 0, [0.5], config=RAM), step_weights={0: 0.5, 1: 0.5, 2: 1.0, 3: 5.5})
    table = weight_table([made])
    np.testing.assert_allclose(table.loc[table["label"] == "p", "value"], [1.2, 1.2, 1.2, 0.4])
    expected = 4 * np.array([0.15, 0.15, 0.3, 0.55]) / 1.15
    np.testing.assert_allclose(table.loc[table["label"] == "federage", "value"], expected)
    lines = figures([made])["weights"].axes[0].lines
    np.testing.assert_allclose(lines[2].get_ydata(), expected)  # after 1/N and p


def test_ablation_bars(make_run):
    modes = {"loss": (0.8, 0.9), "within": (0.5, 0.7)}
    runs = [
        make_run("federage", seed, [value], config={**RAM, "client.weight_mode": mode})
        for mode, values in modes.items()
        for seed, value in enumerate(values)
    ]
    (axis,) = figures(runs)["ablation"].axes
    assert [bar.get_height() for bar in axis.patches] == pytest.approx([85, 60])
    assert [text.get_text() for text in axis.texts] == ["85.0", "60.0"]


PI = pd.DataFrame(
    {
        "round": [1] * 4 + [2] * 4, "client": [0, 1, 2, 3] * 2, "group": [0, 0, 1, 1] * 2,
        "pi_0": [0.5, 0.5, 0.5, 0.5, 0.1, 0.2, 0.9, 0.8], "pi_1": [0.5, 0.5, 0.5, 0.5, 0.9, 0.8, 0.1, 0.2],
    }
)  # fmt: skip


def test_memberships_follow_the_cluster_of_the_group(make_run, tmp_path):
    (tmp_path / "memberships").mkdir()
    PI.to_csv(tmp_path / "memberships" / "a.csv", index=False)
    made = replace(make_run("focus", 0, [0.5]), path=tmp_path / "a.json")
    table = membership_table([made])
    assert table["value"].tolist() == [0.5] * 4 + [0.9, 0.8, 0.9, 0.8]
    assert recovery(PI) == 1
    assert recovery(PI.assign(group=[0, 1, 0, 1] * 2)) == pytest.approx(
        -0.5
    )  # of pairs, none agrees where one third would
    drawn = figures([made])
    np.testing.assert_allclose(drawn["memberships"].axes[0].lines[1].get_ydata(), [0.5, 0.8])
    assert drawn["recovery"].axes[0].patches[0].get_height() == 1


def test_a_method_has_one_colour_in_all_figures(make_run, tmp_path):
    """FOCUS is the second method; FedAvg, the first, has no clusters and no bar of recovery. Nor has p a curve."""
    (tmp_path / "memberships").mkdir()
    PI.to_csv(tmp_path / "memberships" / "a.csv", index=False)
    drawn = figures([make_run("fedavg", 0, [0.4]), replace(make_run("focus", 0, [0.5]), path=tmp_path / "a.json")])
    (bar,) = drawn["recovery"].axes[0].patches
    assert to_hex(bar.get_facecolor()).upper() == drawn["curves"].axes[0].lines[1].get_color()
    weighed = replace(make_run("federage", 0, [0.5], config=RAM), step_weights=dict.fromkeys(range(4), 1.0))
    drawn = figures([make_run("fedavg", 0, [0.4], config=RAM), weighed])
    assert drawn["weights"].axes[0].lines[2].get_color() == drawn["curves"].axes[0].lines[1].get_color()


def test_faa_bars(make_run):
    runs = [make_run("focus", seed, [0.5]) for seed in (0, 1)]
    runs = [replace(r, rounds=r.rounds.assign(faa=value)) for r, value in zip(runs, (0.02, 0.04), strict=True)]
    assert figures(runs)["faa"].axes[0].patches[0].get_height() == pytest.approx(0.03)


def test_text_is_readable_in_print(make_run, tmp_path):
    """Eight points and more on every piece of text, and nothing in a legend reaches over the edge of the figure."""
    runs = [
        make_run("federage", 0, [0.5, 0.6], config={**RAM, "client.batch_size": b, "client.lr": lr})
        for b in (1, 8, 32) for lr in (0.01, 0.02)
    ]  # fmt: skip
    figure = figures(runs)["curves"]
    draw(runs, tmp_path)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert (
        min(text.get_fontsize() for text in figure.findobj(match=lambda artist: hasattr(artist, "get_fontsize"))) >= 8
    )


def test_files_say_where_they_come_from_and_are_the_same_again(make_run, tmp_path):
    runs = [replace(make_run("fedavg", seed, [0.5, 0.6]), overrides=("experiment=table1", "strategy=fedavg", f"seed={seed}"))
            for seed in (0, 1)]  # fmt: skip
    assert command(runs) == "python -m fedrage_flwr.experiment table1 strategy=fedavg seed=0,1"
    alone = replace(runs[0], experiment=None, overrides=("strategy=focus",))
    assert command([*runs, alone]) == f"{command(runs)}; python -m fedrage_flwr -m strategy=focus"
    paths = draw(runs, tmp_path / "one")
    assert [path.name for path in paths] == ["curves.pdf", "curves.png"]
    assert b"fedrage_flwr.experiment table1 strategy=fedavg seed=0,1" in paths[1].read_bytes()
    again = draw(runs, tmp_path / "two")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert draw([], tmp_path) == []


def test_decision_regions_of_real_runs(tmp_path, monkeypatch):
    """From the experiment's own files: the regions drawn are the model's answers, and the same as those of the run's folder."""
    monkeypatch.chdir(tmp_path)
    main(["toy2d", "strategy=fedavg,oracle", "seed=0", "num_rounds=60"])
    regions = pd.read_csv("results/toy2d/regions/fedavg_seed=0.csv", index_col="y")
    assert regions.shape == (81, 81)
    assert set(np.unique(regions)) <= set(range(5))
    runs, _ = load([tmp_path / "results" / "toy2d"])
    figure = figures(runs)["regions"]
    meshes = [c for axis in figure.axes for c in axis.collections if hasattr(c, "get_coordinates")]
    np.testing.assert_array_equal(np.asarray(meshes[0].get_array()).reshape(81, 81), regions)
    assert [axis.get_title() for axis in figure.axes[:2]] == ["fedavg, seed 0", "oracle, seed 0"]


def test_memberships_of_a_real_run(tmp_path):
    from fedrage_flwr.report.extracts import extract

    words = ["experiment=focus_linear", "strategy=focus", "num_rounds=3", "evaluate.faa=false", "eval_every=1"]
    folder = run(*words, folder=tmp_path / "run", figures=False).folder
    extract(folder, tmp_path / "focus")
    pi = pd.read_csv(tmp_path / "memberships" / "focus.csv")
    assert len(pi) == 3 * 9
    assert pi["group"].tolist() == ([0] * 4 + [1] * 3 + [2] * 2) * 3
    assert pi.filter(like="pi_").sum(axis=1).tolist() == pytest.approx([1] * 27, abs=1e-3)
    assert not (tmp_path / "regions").exists()


def test_colours_differ():
    assert len(set(plots.COLOURS)) == len(plots.COLOURS) == len(plots.MARKERS)
