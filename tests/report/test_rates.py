"""The fits of the rates: slopes of made-up errors, and the command at toy size."""

import numpy as np
import pandas as pd
import pytest

from fedrage_flwr.errors import UserError
from fedrage_flwr.report.rates import Averages, algorithm, draws, errors, kappa, lad_problem, main, slopes


def test_slopes_by_hand():
    """Seeds with errors T^−½ and T^−1: mean −¾, standard error ¼, t with one degree of freedom 12.706."""
    rows = [
        ("a", 2.0, 1.0, rounds, seed, rounds**power)
        for seed, power in ((0, -0.5), (1, -1.0))
        for rounds in (10, 100, 1000)
    ]
    table = pd.DataFrame(rows, columns=["label", "kappa", "c", "rounds", "seed", "error"])
    (row,) = slopes(table).to_dict("records")
    assert row["slope"] == pytest.approx(-0.75)
    assert row["high"] == pytest.approx(-0.75 + 0.25 * 12.7062, rel=1e-4)
    assert row["largest"] == pytest.approx((10**-0.5 + 10**-1) / 2 * np.sqrt(10) / 2)  # falls with T
    assert kappa(0.1, 0.5) == pytest.approx(5.5)


def test_settings_side_by_side_are_settings_alone():
    problem = lad_problem()
    members, positions = draws(problem, 30, 2, [4, 5])
    together = algorithm(problem, members, positions, np.array([0.1, 0.05]), np.array([1.0, 0.2]), np.array([0.0, 0.5]))
    for k, (lr, alpha, gamma) in enumerate([(0.1, 1.0, 0.0), (0.05, 0.2, 0.5)]):
        alone = algorithm(problem, members, positions, lr, alpha, gamma)
        np.testing.assert_array_equal(together.theta[k], alone.theta)
        np.testing.assert_array_equal(together.beta[k], alone.beta)
        assert (errors(problem, Averages(alone.theta, alone.beta), alpha, gamma) >= 0).all()


def test_the_command(tmp_path, capsys):
    main([str(tmp_path / "out"), "seeds=2", "rounds=10,30"])
    table = pd.read_csv(tmp_path / "out" / "errors.csv")
    assert len(table) == 4 * 4 * 2 * 2
    assert (table["error"] > 0).all()
    assert len(pd.read_csv(tmp_path / "out" / "slopes.csv")) == 16
    first = (tmp_path / "out" / "slopes.csv").read_bytes(), (tmp_path / "out" / "rates.pdf").read_bytes()
    main(["--draw", str(tmp_path / "out")])
    assert first == ((tmp_path / "out" / "slopes.csv").read_bytes(), (tmp_path / "out" / "rates.pdf").read_bytes())
    with pytest.raises(UserError, match=r"errors\.csv is not there"):
        main(["--draw", str(tmp_path)])


@pytest.mark.parametrize("word", ["seeds=x", "round=10", "--help", "rounds=10"])
def test_mistakes(word):
    with pytest.raises(UserError, match=r"usage|at least"):
        main([word])
