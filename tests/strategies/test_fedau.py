"""FedAU: weights from a participation pattern, and what they aim at."""

import numpy as np
import pytest

from strategies.fedau import FedAU


def weights_along(settings_of, rounds, cutoff):
    """ω of one client that takes part in the rounds given."""
    server = FedAU(*settings_of("fedau", cutoff=cutoff), 3)
    found = []
    for number in rounds:
        server.round = number
        found.append(float(server.interval_means(np.array([1]))[0]))
        server._complete(np.array([1]))
    return found


@pytest.mark.parametrize(
    ("cutoff", "expected"),
    [
        (None, [1, 3, 2, 2]),  # intervals 3, 1, 2: none | 3 | (3+1)/2 | (3+1+2)/3
        (10, [1, 3, 2, 2]),
        (3, [1, 3, 2, 2]),  # attended in its third round: the interval of 3 ends by itself
        (2, [2, 1.5, 4 / 3, 1.5]),  # cut after round 2: 2 | 2, 1 | 2, 1, 1 | 2, 1, 1, 2
        (1, [1, 1, 1, 1]),
    ],
)
def test_mean_intervals_of_a_pattern(settings_of, cutoff, expected):
    """Rounds 3, 4, 6 and 7 of a client."""
    assert weights_along(settings_of, [3, 4, 6, 7], cutoff) == pytest.approx(expected)


@pytest.mark.parametrize("cutoff", [None, 1, 2, 5, 50])
def test_counting_round_by_round_gives_the_same(settings_of, cutoff):
    """The paper's Algorithm 2, which looks at every client in every round, on random attendance."""
    attended = np.random.default_rng(4).random(400) < 0.15
    expected, intervals, length = [], [], 0
    for present in attended:
        length += 1
        if present:
            expected.append(np.mean(intervals) if intervals else 1.0)
        if present or length == cutoff:
            intervals.append(length)
            length = 0
    assert weights_along(settings_of, np.flatnonzero(attended) + 1, cutoff) == pytest.approx(expected)


def test_changes_are_weighted_and_divided_by_all_clients(federation, play):
    """N = 2, η = 0.1, a = (0, 1), θ = 2. Round 1, client 0: 2 + ½(−0.2) = 1.9. Round 2 is empty and counts as missed. Round 3,
    both: ω = (1, 1), client 1's own interval of 3 not yet: 1.9 + ½(−0.19 − 0.09) = 1.76. Round 4, both: ω = ((1 + 2)/2, 3):
    1.76 + ½(−1.5·0.176 − 3·0.076) = 1.514."""
    two = federation([[0.0], [1.0]], start=[2.0])
    _, path = play(two, "fedau", [(0,), (), (0, 1), (0, 1)], lr=0.1, local_steps=1)
    np.testing.assert_allclose(path[:, 0], [1.9, 1.9, 1.76, 1.514], rtol=1e-6)


def test_server_step_scales_the_change(federation, play):
    two = federation([[0.0], [1.0]], start=[2.0])
    _, path = play(two, "fedau", [(0,)], lr=0.1, local_steps=1, server_lr=0.5)
    np.testing.assert_allclose(path, [[1.95]], rtol=1e-6)


def test_o02_a_rejected_reply_is_an_absence(federation, play):
    server, _ = play(federation([[0.0], [np.nan]]), "fedau", [(0, 1)] * 3)
    assert {name: book.tolist() for name, book in server.memory["intervals"].items()} == {
        "last": [3, 0], "sum": [3, 0], "count": [3, 0],
    }  # fmt: skip


def test_full_participation_is_fedavg_bit_for_bit(assert_fedavg):
    assert_fedavg("strategy=fedau", job=["ram=full", "num_clients=10"])


@pytest.mark.parametrize("cutoff", [None, 2])
def test_aims_at_the_plain_mean(federation, play, cutoff):
    """Attendance 0.8, 0.4 and 0.2, a = 0, 1, 5. In the long run client i weighs π_iω_i = 1 − (1 − π_i)^K: 1 without a cut-off,
    so the plain mean, 2; with K = 2 (0.96, 0.64, 0.36), so 1.24. Within four standard errors (batch means over 20 blocks of 50
    rounds, where iterates remember 5 to 8; t beyond 4 with 19 degrees of freedom: error rate 8·10⁻⁴), themselves at most 0.4.
    FedAvg's aim is 0.81."""
    attendance, centres = np.array([0.8, 0.4, 0.2]), np.array([0.0, 1.0, 5.0])
    draws = np.random.default_rng(5).random((1200, 3)) < attendance
    subsets = [np.flatnonzero(draw).tolist() for draw in draws]
    three = federation([[a] for a in centres], start=[1.5])
    _, path = play(three, "fedau", subsets, lr=0.2, local_steps=1, cutoff=cutoff)
    weight = np.ones(3) if cutoff is None else 1 - (1 - attendance) ** cutoff
    blocks = path[200:, 0].reshape(20, -1).mean(1)
    error = 4 * blocks.std(ddof=1) / np.sqrt(20)
    assert error < 0.4
    assert abs(blocks.mean() - weight @ centres / weight.sum()) < error
