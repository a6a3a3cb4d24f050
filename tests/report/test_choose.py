"""docs/choose.md: each figure is that of the recorded runs in ``results/`` it names."""

import re

import numpy as np
import pandas as pd
import pytest

from tests.test_docs import REPOSITORY

PAGE = (REPOSITORY / "docs" / "choose.md").read_text(encoding="utf-8")
FIGURE = re.compile(r"(\d+\.(\d+)) ± (\d+\.\d+)")


def rows(heading: str) -> dict[str, list[tuple[str, str, str]]]:
    """The figures of the table below a heading, by method: mean, its decimals, ±."""
    below = PAGE.split(f"# {heading}\n")[1].split("\n#")[0]
    named = [(re.search(r"`(\w+)`", line), line) for line in below.splitlines() if line.startswith("|")]
    return {match[1]: FIGURE.findall(line) for match, line in named if match}


def test_the_table_over_rarity_shows_what_was_recorded():
    table = pd.read_csv(REPOSITORY / "results" / "skew" / "report" / "tables" / "measures.csv")
    table = table[table["measure"] == "rare_client_accuracy"].set_index(["method", "column"])["mean"]
    lines = PAGE.split("## How rare is too rare?")[1].split("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert [row[0] for row in cells[2:]] == ["`fedavg`", "`federage`", "`scaffold`"]
    for method, *shown in cells[2:]:
        for probability, figure in zip(cells[0][1:], shown, strict=True):
            rare = float(probability.removesuffix(" %")) / 100
            recorded = table[method.strip("`"), f"fashion_mnist, skewed ram.rare_probability={rare:g}"]
            assert float(figure) == pytest.approx(recorded, abs=0.0501 + 1e-4 * recorded)


@pytest.mark.parametrize(
    ("heading", "experiment", "column", "measures", "plus_minus", "methods"),
    [
        ("Which method?", "choose", "digits, rare", ("rare_client_accuracy", "accuracy"), "95 % ±", 7),
        ("Tuned, and under rarer participation", "table1", "fashion_mnist, skewed", ("accuracy", "rare_client_accuracy"),
         "std_seeds", 4),
        ("With a convex model", "table1_softmax", "fashion_mnist, skewed",
         ("polyak_accuracy", "accuracy", "rare_client_accuracy"), "std_seeds", 4),
        ("Groups of clients that want different models", "focus_linear", "linear_gaussian, full",
         ("faa", None, None), "95 % ±", 4),
        ("Groups of clients that want different models", "focus_text", "text_sentiment, full",
         (None, "faa", "client_accuracy_mean"), "95 % ±", 4),
    ],
)  # fmt: skip
def test_the_tables_show_what_was_recorded(heading, experiment, column, measures, plus_minus, methods):
    table = pd.read_csv(REPOSITORY / "results" / experiment / "report" / "tables" / "measures.csv")
    table = table[table["column"] == column].set_index(["method", "measure"])
    shown = rows(heading)
    assert len(shown) == methods
    for method, figures in shown.items():
        for (mean, decimals, around), measure in zip(figures, measures, strict=True):
            if measure is None:  # a column of other runs
                continue
            rounding = 0.5001 * 10.0 ** -len(decimals)
            recorded = table.loc[(method, measure), ["mean", plus_minus]].to_numpy(float)
            np.testing.assert_allclose([float(mean), float(around)], recorded, rtol=1e-4, atol=rounding, err_msg=method)
