"""Reference optima of convex problems, by solvers: what the federated methods are measured against.

    min_{θ, β}  (1−γ) E f(θ; ξ) + γ [β + E(f(θ; ξ) − β)₊ / α],    ξ ~ Q^b = Σ_i p_i Q_i^b

(FedeRage paper, eq. 14; γ = 0 is Σ p_i f_i.) Q^b is finite: ξ is a mini-batch, its loss the mean over its examples. With one
example a batch it is given by the examples' probabilities alone.

Mean and CVaR are convex and never fall when a loss rises, so each loss may be replaced by a variable that bounds it from
above (Rockafellar and Uryasev 2000): a linear programme for the absolute error, a smooth one for softmax regression.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from fedrage_flwr.metrics import cvar, value_at_risk

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Batches:
    """Q^b written out.

    Attributes:
        members: examples of each mini-batch, (m, b).
        probabilities: of each, (m,), summing to 1.
    """

    members: Indices
    probabilities: Floats

    def losses(self, example_losses: Floats) -> Floats:
        """Return f(θ; ξ) of each mini-batch, (m,)."""
        means: Floats = example_losses[self.members].mean(axis=1)
        return means


@dataclass(frozen=True, eq=False)
class Optimum:
    """A minimiser ``theta``, a minimising ``beta`` (the (1 − α)-quantile of the batch losses there) and the ``value``."""

    theta: Floats
    beta: float
    value: float


def batches(owner: Indices, p: Floats, batch_size: int) -> Batches:
    """Write out Q^b: a client by ``p``, then a mini-batch of its examples uniformly without replacement.

    Args:
        owner: client of each example, (n,).
        p: weight of each client, summing to 1.
        batch_size: b; a client with fewer examples has one batch, all of them. All batches must come out equally large.
    """
    members: list[tuple[int, ...]] = []
    probabilities: list[float] = []
    for client, weight in enumerate(p):
        own = np.flatnonzero(owner == client).tolist()
        chosen = list(combinations(own, min(batch_size, len(own))))
        members += chosen
        probabilities += [weight / len(chosen)] * len(chosen)
    return Batches(np.array(members, np.int64), np.array(probabilities))


def objective(
    batch_losses: Floats, probabilities: Floats, alpha: float, gamma: float, beta: float | None = None
) -> float:
    """Return (1−γ) E f + γ CVaR_α f; with ``beta`` the joint function of (θ, β), never smaller (eq. 14)."""
    if beta is None:
        risk = cvar(batch_losses, alpha, probabilities)
    else:
        risk = beta + float(probabilities @ np.maximum(batch_losses - beta, 0)) / alpha
    return (1 - gamma) * float(probabilities @ batch_losses) + gamma * risk


def least_absolute_deviation(
    inputs: Floats, targets: Floats, of: Batches, alpha: float = 1.0, gamma: float = 0.0, bound: float | None = None
) -> Optimum:
    """Minimise over θ with example losses |x·θ − y|, by SciPy's HiGHS.

    Args:
        inputs: (n, d).
        targets: (n,).
        of: Q^b over these examples.
        bound: every |θ_k| is at most this; None leaves θ free.

    Raises:
        RuntimeError: the solver found no optimum.
    """
    from scipy.optimize import linprog  # type: ignore[import-untyped]
    from scipy.sparse import bmat, coo_matrix, identity  # type: ignore[import-untyped]

    (n, d), (m, b) = inputs.shape, of.members.shape
    mean = coo_matrix((np.full(m * b, 1 / b), (np.repeat(np.arange(m), b), of.members.ravel())), shape=(m, n))
    # variables θ, u ≥ |residual|, β, v ≥ (batch mean of u) − β
    one, eye = np.ones((m, 1)), identity(n)
    rows = bmat([[inputs, -eye, None, None], [-inputs, -eye, None, None], [None, mean, -one, -identity(m)]])
    free, positive = (None, None), (0, None)
    found = linprog(
        c=np.concatenate(
            [np.zeros(d), (1 - gamma) * (mean.T @ of.probabilities), [gamma], gamma / alpha * of.probabilities]
        ),
        A_ub=rows.tocsc(),
        b_ub=np.concatenate([targets, -targets, np.zeros(m)]),
        bounds=[free if bound is None else (-bound, bound)] * d + [positive] * n + [free] + [positive] * m,
        method="highs",
    )
    if not found.success:
        raise RuntimeError(f"HiGHS: {found.message}")
    theta = found.x[:d]
    return _optimum(theta, of.losses(np.abs(inputs @ theta - targets)), of, alpha, gamma)


def softmax_regression(
    inputs: Floats, labels: Indices, of: Batches, num_classes: int, alpha: float = 1.0, gamma: float = 0.0
) -> Optimum:
    """Minimise over θ with the cross-entropy of softmax(Wx + c), by L-BFGS (γ = 0) or SLSQP on the smooth form.

    The data must not be separable, or there is no minimiser. θ is W row by row, then c: torch's order.

    Args:
        inputs: (n, d).
        labels: (n,), 0..num_classes-1.
        of: Q^b over these examples; SLSQP needs it small (some hundred batches).

    Raises:
        RuntimeError: the solver found no optimum.
    """
    from scipy.optimize import minimize

    m, size = len(of.probabilities), num_classes * (inputs.shape[1] + 1)

    def batch_losses(theta: Floats) -> tuple[Floats, Floats]:
        """f of each batch (m,) and its gradient (m, size)."""
        losses, gradients = _cross_entropy(theta, inputs, labels, num_classes)
        return of.losses(losses), gradients[of.members].mean(axis=1)

    def mean(theta: Floats) -> tuple[float, Floats]:
        losses, gradients = batch_losses(theta)
        return float(of.probabilities @ losses), of.probabilities @ gradients

    exact = {"maxiter": 10_000, "gtol": 1e-10, "ftol": 1e-15}
    found = minimize(mean, np.zeros(size), jac=True, method="L-BFGS-B", options=exact)
    if gamma > 0:
        # variables θ, β, v ≥ f − β; the constraint below is what has to be ≥ 0
        losses, _ = batch_losses(found.x)
        beta = value_at_risk(losses, alpha, of.probabilities)

        def smooth(z: Floats) -> tuple[float, Floats]:
            value, gradient = mean(z[:size])
            linear = np.concatenate([[gamma], gamma / alpha * of.probabilities])
            return (1 - gamma) * value + float(linear @ z[size:]), np.concatenate([(1 - gamma) * gradient, linear])

        found = minimize(
            smooth,
            np.concatenate([found.x, [beta], np.maximum(losses - beta, 0)]),
            jac=True,
            method="SLSQP",
            bounds=[(None, None)] * (size + 1) + [(0, None)] * m,
            constraints={
                "type": "ineq",
                "fun": lambda z: z[size + 1 :] + z[size] - batch_losses(z[:size])[0],
                "jac": lambda z: np.hstack([-batch_losses(z[:size])[1], np.ones((m, 1)), np.eye(m)]),
            },
            options={"maxiter": 1000, "ftol": 1e-12},
        )
    if not found.success:
        raise RuntimeError(f"SciPy: {found.message}")
    theta = found.x[:size]
    return _optimum(theta, batch_losses(theta)[0], of, alpha, gamma)


def _cross_entropy(theta: Floats, inputs: Floats, labels: Indices, num_classes: int) -> tuple[Floats, Floats]:
    """Loss of each example (n,) and its gradient (n, size)."""
    n, d = inputs.shape
    weight, bias = theta[: num_classes * d].reshape(num_classes, d), theta[num_classes * d :]
    logits = inputs @ weight.T + bias
    logits = logits - logits.max(axis=1, keepdims=True)
    log_probability = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    error = np.exp(log_probability)
    error[np.arange(n), labels] -= 1
    gradients = np.concatenate([(error[:, :, None] * inputs[:, None, :]).reshape(n, -1), error], axis=1)
    return -log_probability[np.arange(n), labels], gradients


def _optimum(theta: Floats, batch_losses: Floats, of: Batches, alpha: float, gamma: float) -> Optimum:
    beta = value_at_risk(batch_losses, alpha, of.probabilities)
    return Optimum(theta, beta, objective(batch_losses, of.probabilities, alpha, gamma))
