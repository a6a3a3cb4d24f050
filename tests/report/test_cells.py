"""What is one cell, and what its row and column are called."""

from fedrage_flwr.report.cells import by_column, make_cells


def test_seeds_are_one_cell_and_settings_are_named_where_words_are_the_same(make_run):
    runs = [
        make_run("fedavg", 1, [0.5], {"client.lr": 0.1, "device": "cpu"}),
        make_run("fedavg", 0, [0.4], {"client.lr": 0.1, "device": "cuda"}),
        make_run("federage", 0, [0.6], {"client.lr": 0.2, "client.gamma": 0.5}),
        make_run("federage", 0, [0.7], {"client.lr": 0.2, "client.gamma": 0.25}),
        make_run("fedavg", 0, [0.8], {"client.lr": 0.3}, ram="uniform"),
    ]
    cells = make_cells(runs)
    assert [(cell.column, cell.row, cell.seeds) for cell in cells] == [
        ("fashion_mnist, skewed", "fedavg", [0, 1]),
        ("fashion_mnist, skewed", "federage client.gamma=0.5", [0]),
        ("fashion_mnist, skewed", "federage client.gamma=0.25", [0]),
        ("fashion_mnist, uniform", "fedavg", [0]),  # another step size, but alone in its column
    ]
    assert cells[0].reported() == {0: 0.4, 1: 0.5}
    assert list(by_column(cells)) == ["fashion_mnist, skewed", "fashion_mnist, uniform"]


def test_a_seed_recorded_before_a_setting_existed_joins_those_that_have_its_plain_value(make_run):
    old, new = make_run("focus", 0, [0.5]), make_run("focus", 1, [0.6], {"dataset.max_examples": None})
    fewer = make_run("focus", 0, [0.4], {"dataset.max_examples": 500})
    assert [(cell.column, cell.seeds) for cell in make_cells([old, new, fewer])] == [
        ("fashion_mnist, skewed", [0, 1]),
        ("fashion_mnist, skewed dataset.max_examples=500", [0]),
    ]


def test_what_is_met_makes_columns(make_run):
    rare = [make_run("fedavg", 0, [0.5], {"ram.rare_probability": p}) for p in (0.1, 0.005)]
    assert [cell.column for cell in make_cells(rare)] == [
        "fashion_mnist, skewed ram.rare_probability=0.1",
        "fashion_mnist, skewed ram.rare_probability=0.005",
    ]
