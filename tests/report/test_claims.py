"""Each check on made-up runs, by hand, and the file of claims itself."""

import re
from pathlib import Path

import pytest

from fedrage_flwr.errors import UserError
from fedrage_flwr.report.checks import CHECKS, Results
from fedrage_flwr.report.claims import judge, page, read_claims
from fedrage_flwr.words import choices

CLAIMS = Path(__file__).parents[2] / "results" / "claims.yaml"
SKEWED = {"dataset": "fashion_mnist", "ram": "inclusion"}


@pytest.fixture
def results(tmp_path, record_run):
    """Fashion, skewed: FedAvg 60, 62, 64 %; FedeRage 3, 4 and 5 points above; SCAFFOLD a seed of its own and twice the bytes."""
    folder = tmp_path / "table1"
    for seed, base in enumerate((0.60, 0.62, 0.64)):
        record_run(folder, "fedavg", seed, [base] * 10)
        record_run(folder, "federage", seed, [base + 0.03 + seed / 100] * 10)
    record_run(folder, "scaffold", 9, [0.7] * 10, bytes_up_per_round=200.0, bytes_down_per_round=201.0)
    return Results(tmp_path)


def order(results, better, worse, **more):
    return CHECKS["order"](results, ["table1"], {"strategy": better}, {"strategy": worse}, where=SKEWED, **more)


def test_the_papers_mean_inside_or_outside_the_interval(results):
    def accuracy(strategy):
        return CHECKS["accuracy"](results, ["table1"], {**SKEWED, "strategy": strategy})

    found = accuracy("fedavg")  # 62 ± 4.3027 · 2/√3 = 4.97; the paper's 61.82 is inside
    assert (found.verdict, found.paper, found.ours) == ("agrees", "61.82 ± 10.39", "62.00 ± 4.97 (3 seeds, 10 rounds)")
    assert found.reason.endswith("ours is +0.18 points from it, within the paper's own ±")
    assert accuracy("federage").verdict == "differs"  # 66 ± 7.45 and 83.95
    assert accuracy("scaffold").verdict == "not testable here"
    assert accuracy("fedprox").verdict == "not run yet"


def test_runs_shorter_than_the_papers_test_none_of_its_claims(results):
    """The runs are of ten rounds."""

    def found(rounds):
        number = CHECKS["accuracy"](results, ["table1"], {**SKEWED, "strategy": "fedavg"}, rounds)
        return number, order(results, "federage", "fedavg", rounds=rounds)

    assert [one.verdict for one in found(10)] == ["agrees", "agrees"]
    assert [one.verdict for one in found(11)] == ["not testable here"] * 2
    assert [one.ours for one in found(11)] == [
        "62.00 ± 4.97 (3 seeds, 10 rounds)",
        "+4 ± 2.48 points (3 seeds, 10 rounds)",
    ]
    assert found(10_000)[1].reason == "the paper's runs are of 10,000 rounds"


def test_an_order_by_the_paired_difference(results):
    found = order(results, "federage", "fedavg")  # 3, 4, 5 points: 4 ± 4.3027/√3 = 2.48
    assert (found.verdict, found.ours) == ("agrees", "+4 ± 2.48 points (3 seeds)")
    assert order(results, "fedavg", "federage").verdict == "differs"
    assert order(results, "federage", "fedavg", smaller=True).verdict == "differs"
    same = order(results, "fedavg", "fedavg")
    assert (same.verdict, same.reason) == ("undecided", "the interval of the paired difference holds zero")
    assert order(results, "fedavg", "federage", margin=0.05).verdict == "undecided"  # −4 ± 2.48, 5 allowed
    assert order(results, "fedavg", "federage", margin=0.07).verdict == "agrees"
    assert order(results, "federage", "fedavg", measure="area").verdict == "agrees"  # flat curves: area is height
    assert order(results, "federage", "scaffold").verdict == "not testable here"  # no shared seed
    assert order(results, "federage", "fedavg", measure="faa").verdict == "not testable here"
    assert order(results, "federage", "fedprox").verdict == "not run yet"


def test_the_spread_over_seeds(results):
    larger, smaller = {"strategy": "federage"}, {"strategy": "fedavg"}
    found = CHECKS["dispersion"](results, ["table1"], larger, smaller, SKEWED)
    assert found.ours.startswith("std_seeds 1.50× (0.24 to 9.37;")  # 3 and 2 points; √(9/4 · 39.0) and √(9/4 / 39.0)
    assert found.verdict == "undecided"


def test_bytes(results):
    def traffic(strategy, factor):
        return CHECKS["traffic"](results, ["table1"], strategy, "fedavg", factor)

    assert (traffic("scaffold", 2.0).verdict, traffic("scaffold", 2.0).ours) == ("agrees", "2× up, 2.01× down")
    assert traffic("scaffold", 1.0).verdict == "differs"
    extra = CHECKS["extra_bytes"](results, ["table1"], "scaffold", "fedavg", 34)
    assert (extra.verdict, extra.ours) == ("agrees", "+33.33 bytes up, +33.67 bytes down")  # of three participants
    assert CHECKS["extra_bytes"](results, ["table1"], "scaffold", "fedavg", 33).verdict == "differs"
    assert CHECKS["extra_bytes"](results, ["table1"], "focus", "fedavg", 4).verdict == "not run yet"
    assert traffic("focus", 1.0).verdict == "not run yet"


def test_a_number_of_the_summary(tmp_path, record_run):
    for seed, value in enumerate((1.0, 0.9)):
        record_run(tmp_path / "focus_linear", "focus", seed, [0.5] * 10, adjusted_rand_index=value)

    def reached(at_least, measure="adjusted_rand_index"):
        return CHECKS["reached"](Results(tmp_path), ["focus_linear"], {"strategy": "focus"}, measure, at_least).verdict

    assert (reached(0.9), reached(0.95), reached(0.5, "nothing")) == ("agrees", "differs", "not testable here")


def test_slopes(tmp_path):
    assert CHECKS["rates"](Results(tmp_path), -0.5).verdict == "not run yet"
    (tmp_path / "rates").mkdir()
    path = tmp_path / "rates" / "slopes.csv"
    path.write_text("late_slope,late_high\n-0.7,-0.6\n-0.6,-0.5\n")
    assert CHECKS["rates"](Results(tmp_path), -0.5).verdict == "agrees"
    path.write_text("late_slope,late_high\n-0.7,-0.6\n-0.6,-0.4\n")
    assert CHECKS["rates"](Results(tmp_path), -0.5).verdict == "undecided"


def test_an_error_that_falls_slower_than_the_root_is_not_bounded(tmp_path):
    """error·√T/κ with κ = 2: 5, 5, 4 where the error is 1, 0.3162, 0.08; 5, 10, 10 of 1, 0.6325, 0.2: the last is no smaller."""
    (tmp_path / "rates").mkdir()
    path = tmp_path / "rates" / "errors.csv"

    def write(*errors):
        rows = [f"x,0.5,0.5,2,1,{100 * 10**k},0,{error}" for k, error in enumerate(errors)]
        path.write_text("\n".join(["label,alpha,gamma,kappa,c,rounds,seed,error", *rows]) + "\n")
        return CHECKS["bounded"](Results(tmp_path))

    assert write(1, 0.31622, 0.08).verdict == "agrees"
    assert write(1, 0.31622, 0.11).verdict == "differs"
    assert "0.800 to 0.80" in write(1, 0.31622, 0.08).ours


def test_what_arithmetic_settles(tmp_path):
    results = Results(tmp_path)
    assert CHECKS["majority"](results).verdict == "differs"
    assert "at most 5 of 30 clients" in CHECKS["majority"](results).ours
    assert "at most 0.1106" in CHECKS["majority"](results).ours  # (3 − 3 · 0.005)/27
    assert CHECKS["outlier"](results).verdict == "differs"
    assert "1.000 for FOCUS and 0.613 for FedAvg" in CHECKS["outlier"](results).ours
    assert CHECKS["outlier_mended"](results).verdict == "agrees"
    assert CHECKS["scaffold"](results).verdict == "differs"


def test_two_cells_for_one_claim_are_refused(tmp_path, record_run):
    record_run(tmp_path / "table1", "fedavg", 0, [0.5] * 10, {"client.lr": 0.1})
    record_run(tmp_path / "table1", "fedavg", 1, [0.5] * 10, {"client.lr": 0.2})
    with pytest.raises(UserError, match="2 cells have strategy=fedavg; name more settings"):
        Results(tmp_path).cell(["table1"], {"strategy": "fedavg"})


def test_names_in_braces_are_replaced(tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(
        "- {experiment: skew, source: us, claim: 'at {rare}', command: c, check: order, each: {rare: [0.1, 0.01]},\n"
        "   with: {runs_of: [skew], better: {strategy: a}, worse: {strategy: b}, where: {ram.rare_probability: '{rare}'}}}\n"
    )
    first, second = read_claims(path)
    assert (first.text, second.text) == ("at 0.1", "at 0.01")
    assert second.options["where"] == {"ram.rare_probability": 0.01}
    path.write_text("- {experiment: skew, source: us, claim: c, command: c, check: order_of}\n")
    with pytest.raises(
        UserError, match=r"claims.yaml: cannot be read as claims \(ValueError: check: order_of is none of"
    ):
        read_claims(path)
    with pytest.raises(UserError, match="no such file"):
        read_claims(tmp_path / "other.yaml")


def test_every_row_of_the_papers_experiments_has_claims(tmp_path):
    """Section 9 of ALGORITHMS.md, and what can be settled now is."""
    claims = read_claims(CLAIMS)
    wanted = {
        "toy2d", "table1", "table1_cifar10", "table1_softmax", "availability", "fairness", "reweighting", "sensitivity", "rates",
        "focus_linear", "focus_rotated", "focus_clusters", "focus_partial", "focus_rotated_cifar10", "focus_text",
        "skew", "ablation",
    }  # fmt: skip
    assert wanted <= {claim.experiment for claim in claims}
    assert sum(claim.check == "accuracy" for claim in claims) == 24
    verdicts = [judge(claim, Results(tmp_path)).verdict for claim in claims]
    assert len(verdicts) - verdicts.count("not run yet") == 5
    run = re.compile(r"python -m fedrage_flwr\.experiment (\w+)")
    named = {match[1] for claim in claims if (match := run.match(claim.command))}
    assert named <= {*choices("experiment"), "toy2d"}


def test_the_page_counts_and_shows(results):
    text = page(read_claims(CLAIMS), results)
    assert (
        "| fashion_mnist, skewed, fedavg: test accuracy (%) | FedeRage, Table I | 61.82 ± 10.39 | 62.00 ± 4.97 (3 seeds, 10"
        in text
    )
    assert "    python -m fedrage_flwr.experiment table1_cifar10\n" in text
    counts = {word: int(number) for word, number in re.findall(r"([a-z ]+): (\d+)[,.]", text)}
    assert sum(counts.values()) == len(read_claims(CLAIMS))
