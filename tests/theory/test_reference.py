"""The solvers against problems solved by hand, against each other, and FedeRage against the solver."""

import numpy as np
import pytest

from fedrage_flwr.reference import Batches, batches, least_absolute_deviation, objective, softmax_regression


def test_batches_of_two():
    """Client 0 has examples 0, 1, 2 and p = 0.6: three pairs of 0.2 each; client 1 has 3, 4: one pair of 0.4."""
    q = batches(np.array([0, 0, 0, 1, 1]), np.array([0.6, 0.4]), 2)
    assert q.members.tolist() == [[0, 1], [0, 2], [1, 2], [3, 4]]
    np.testing.assert_allclose(q.probabilities, [0.2, 0.2, 0.2, 0.4])
    np.testing.assert_allclose(q.losses(np.array([1.0, 3.0, 5.0, 0.0, 4.0])), [2, 3, 4, 2])


ONES = np.ones((4, 1))  # fitting a constant: a weighted median
TARGETS = np.array([0.0, 1.0, 2.0, 10.0])
SINGLE = np.arange(4)[:, None]


def test_mean_is_the_weighted_median():
    """Mass 0.4 below 2 and 0.6 from 2 on: the median is 2 and costs 0.1·2 + 0.3·1 + 0 + 0.1·8."""
    found = least_absolute_deviation(ONES, TARGETS, Batches(SINGLE, np.array([0.1, 0.3, 0.5, 0.1])))
    np.testing.assert_allclose(found.theta, [2])
    assert found.value == pytest.approx(1.3)


def test_smallest_tail_is_the_midrange():
    """γ = 1 and α at most the smallest probability: the worst loss counts alone, smallest halfway between 0 and 10."""
    found = least_absolute_deviation(ONES, TARGETS, Batches(SINGLE, np.full(4, 0.25)), alpha=0.25, gamma=1)
    np.testing.assert_allclose(found.theta, [5])
    assert (found.value, found.beta) == pytest.approx((5, 5), abs=1e-9)  # losses 5, 4, 3, 5: half the mass lies above 4


def test_bound_holds():
    found = least_absolute_deviation(ONES, TARGETS, Batches(SINGLE, np.full(4, 0.25)), bound=0.5)
    np.testing.assert_allclose(found.theta, [0.5])


@pytest.mark.parametrize(("alpha", "gamma"), [(1.0, 0.0), (0.3, 0.5), (0.1, 1.0)])
@pytest.mark.parametrize("batch_size", [1, 2])
def test_nothing_near_the_optimum_is_better(lad, alpha, gamma, batch_size):
    """The value is that of θ*, recomputed from the definition of CVaR; 300 random neighbours are not lower (convexity:
    then nothing is)."""
    q = batches(lad.owner, lad.p, batch_size)

    def value(theta):
        return objective(q.losses(lad.losses(theta)), q.probabilities, alpha, gamma)

    found = least_absolute_deviation(lad.inputs, lad.targets, q, alpha, gamma)
    assert found.value == pytest.approx(value(found.theta), abs=1e-9)
    rng = np.random.default_rng(0)
    assert min(value(found.theta + 0.01 * rng.standard_normal(2)) for _ in range(300)) >= found.value - 1e-9
    joint = objective(q.losses(lad.losses(found.theta)), q.probabilities, alpha, gamma, found.beta)
    assert joint == pytest.approx(found.value, abs=1e-9)  # β is a minimiser


@pytest.fixture(scope="module")
def softmax_problem():
    """Three classes that overlap, so that a minimiser exists; three clients of ten examples."""
    rng = np.random.default_rng(2)
    labels = rng.integers(3, size=30)
    inputs = np.array([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])[labels] + rng.standard_normal((30, 2))
    return inputs, labels, batches(np.arange(30) // 10, np.array([0.5, 0.4, 0.1]), 1)


def cross_entropies(theta, inputs, labels):
    logits = inputs @ theta[:6].reshape(3, 2).T + theta[6:]
    return np.log(np.exp(logits).sum(1)) - logits[np.arange(len(labels)), labels]


@pytest.mark.parametrize(("alpha", "gamma"), [(1.0, 0.0), (0.3, 0.5), (0.2, 1.0)])
def test_softmax_optimum(softmax_problem, alpha, gamma):
    inputs, labels, q = softmax_problem

    def value(theta):
        return objective(cross_entropies(theta, inputs, labels), q.probabilities, alpha, gamma)

    found = softmax_regression(inputs, labels, q, 3, alpha, gamma)
    assert found.value == pytest.approx(value(found.theta), abs=1e-9)
    rng = np.random.default_rng(0)
    assert min(value(found.theta + s * rng.standard_normal(9)) for s in (0.001, 0.01, 0.1) for _ in range(200)) >= (
        found.value - 1e-6
    )


def test_softmax_at_alpha_one_is_the_mean(softmax_problem):
    inputs, labels, q = softmax_problem
    mean = softmax_regression(inputs, labels, q, 3)
    whole = softmax_regression(inputs, labels, q, 3, alpha=1.0, gamma=0.7)
    assert whole.value == pytest.approx(mean.value, abs=1e-7)


def test_softmax_agrees_with_scikit_learn(softmax_problem):
    """Weighted logistic regression without penalty is the same problem."""
    from sklearn.linear_model import LogisticRegression

    inputs, labels, q = softmax_problem
    model = LogisticRegression(C=1e8, tol=1e-10, max_iter=10_000).fit(inputs, labels, q.probabilities * 30)
    theirs = q.probabilities @ -model.predict_log_proba(inputs)[np.arange(30), labels]
    assert softmax_regression(inputs, labels, q, 3).value == pytest.approx(theirs, abs=1e-5)


@pytest.fixture
def long_run(lad, by_engine):
    """FedeRage, 800 rounds of two local steps from near the clients' models and β = 0, α = 0.2 and γ = ½ (κ = 3)."""
    return by_engine("federage", 800, 2, 0.02, start=(4.5, -3.0), alpha=0.2, gamma=0.5)


def test_value_at_the_averages_and_beta_a_quantile(lad, long_run):
    """At (θ̄, β̄) the mean-CVaR is within 2 % of the LP's optimum, which is well below the value at the start; and β̄ lies
    near a (1−α)-quantile of the loss under Q^b: no more than α (+ 0.05) of the mass is above β̄ + 0.1, no less than α (− 0.05)
    above β̄ − 0.1."""
    alpha, gamma, q = 0.2, 0.5, lad.batches.probabilities
    optimum = least_absolute_deviation(lad.inputs, lad.targets, lad.batches, alpha, gamma)
    theta, beta = long_run.theta[0], float(long_run.beta[0])
    losses = lad.losses(theta)
    start = objective(lad.losses(np.array([4.5, -3.0])), q, alpha, gamma)
    value = objective(losses, q, alpha, gamma, beta)
    assert optimum.value <= value <= 1.02 * optimum.value < 0.8 * start
    assert q[losses > beta + 0.1].sum() <= alpha + 0.05
    assert q[losses >= beta - 0.1].sum() >= alpha - 0.05
