"""The tables of made-up runs, by hand, and how they are written."""

import pytest

from fedrage_flwr.report.cells import make_cells
from fedrage_flwr.report.tables import accuracy_table, build, latex, markdown, pairs_table, published, write


@pytest.fixture
def runs(make_run):
    wobble = [-0.01, 0.01] * 5
    return [
        make_run(name, seed, [mean + own + w for w in wobble])
        for name, mean in (("fedavg", 0.6), ("federage", 0.8))
        for seed, own in enumerate((-0.02, 0.0, 0.02) if name == "fedavg" else (-0.01, 0.0, 0.01))
    ]


def test_table_one_with_the_papers_numbers_beside(runs):
    table = accuracy_table(make_cells(runs)).set_index("method")
    assert table.loc["fedavg", "fashion_mnist, skewed"] == "60.00 ± 2.00 (3 seeds, 10 rounds, 0 trials)"
    assert table.loc["federage", "fashion_mnist, skewed"] == "**80.00 ± 1.00** † ‡ (3 seeds, 10 rounds, 0 trials)"
    assert table.loc["federage", "fashion_mnist, skewed (paper)"] == "83.95 ± 1.03 (5 seeds, 10,000 rounds)"
    notes = " ".join(table.attrs["notes"])
    assert "std_seeds" in notes
    assert "% of A/A comparisons" in notes
    assert "equal budgets" in notes


def test_validation_accuracy_is_called_so_and_has_no_published_number_beside(make_run):
    table = accuracy_table(make_cells([make_run("fedavg", 0, [0.6] * 10, {"evaluate.split": "validation"})]))
    assert table.attrs["title"] == "Validation accuracy"
    assert table.attrs["notes"][0].startswith("Validation accuracy in %")
    assert list(table.columns) == ["method", "fashion_mnist, skewed"]


def test_the_largest_mean_less_deviation_need_not_be_the_best_mean(make_run):
    runs = [make_run("a", seed, [0.8 + own] * 10) for seed, own in enumerate((-0.1, 0.1))]
    runs += [make_run("b", seed, [0.78 + own] * 10) for seed, own in enumerate((-0.01, 0.01))]
    table = accuracy_table(make_cells(runs)).set_index("method")["fashion_mnist, skewed"]
    assert table["a"].startswith("**80.00 ± 14.14** (")
    assert table["b"].startswith("78.00 ± 1.41 ‡ (")


def test_pairs_by_hand(runs):
    (row,) = pairs_table(make_cells(runs)).to_dict("records")
    assert row["difference"] == "federage − fedavg"
    assert row["points"] == 20
    assert row["95 % ±"] == pytest.approx(4.3027 / 3**0.5, abs=0.01)  # differences 21, 20, 19 points: deviation 1
    assert (row["differ"], row["† would say"], row["seeds"]) == ("yes", "yes", 3)


def test_every_table_is_written_three_times(runs, tmp_path):
    tables = build(runs)
    assert {
        "accuracy",
        "spreads",
        "pairs",
        "budgets",
        "equal_budgets",
        "measures",
    } == tables.keys()  # A/A needs four seeds
    files = write(tables, tmp_path)
    assert {path.suffix for path in files} == {".md", ".tex", ".csv"}
    assert len(files) == 3 * len(tables)
    assert all(path.read_text() for path in files)


def test_markdown_and_latex_of_one_table(runs):
    table = accuracy_table(make_cells(runs))[["method", "fashion_mnist, skewed"]]
    table.attrs = {"title": "T", "notes": ["100 % sure"]}
    lines = markdown(table).splitlines()
    assert lines[0] == "## T"
    assert lines[4].startswith("| fedavg ")
    assert len({len(line) for line in lines[2:6]}) == 1
    text = latex(table)
    assert text.startswith("% T\n% 100 % sure\n\\begin{tabular}{ll}\n\\toprule")
    assert "federage & \\textbf{80.00 ± 1.00} † ‡ (3 seeds, 10 rounds, 0 trials) \\\\" in text
    table["fashion_mnist, skewed"] = "5 % of a_b"
    assert r"5 \% of a\_b" in latex(table)


def test_the_papers_table_is_whole():
    methods = {"fedavg", "fedprox", "scaffold", "federage"}
    cells = [
        published()[data][ram] for data in ("mnist", "fashion_mnist", "cifar10") for ram in ("uniform", "inclusion")
    ]
    assert all(cell.keys() == methods for cell in cells)
    assert all(0 < std < mean < 100 for cell in cells for mean, std in cell.values())
