"""What watches the rounds: evaluation, the running average of the checkpoints, the end of a run that gets nowhere."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
from flwr.app import ArrayRecord

from fedrage_flwr.evaluation import Evaluation, Measure
from fedrage_flwr.metrics import client_measures, fairness
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.results import CsvLogger
from fedrage_flwr.rounds import Round

log = logging.getLogger(__name__)

LAST_ROUNDS = 10  # always evaluated; a run's reported accuracy is their mean


class PolyakAverage:
    """The running average of the T checkpoints (θ̂^1..θ̂^T; the start is not among them), of all records.

    The theorems speak of this average (FedeRage paper, Theorems 1 and 2). Sums are in float64. It begins anew when the arrays
    broadcast become others (one common start, then a model for each cluster). The average of the second half leaves out the
    first ⌊T/2⌋ checkpoints, in which the model is still on its way.

    Args:
        num_rounds: T.
    """

    def __init__(self, num_rounds: int) -> None:
        self.count = self._round = 0
        self._half = num_rounds // 2
        self._sums: dict[str, dict[str, np.ndarray]] = {}
        self._like: dict[str, dict[str, np.ndarray]] = {}
        self._first: dict[str, Any] | None = None  # round, count and sums at the end of the first half

    def after_round(self, round: Round) -> None:
        """Add one checkpoint; a round without a usable reply repeats the one before."""
        self._like = {name: to_arrays(record) for name, record in {"arrays": round.arrays, **round.records}.items()}
        if any(self._sums.get(name, {}).keys() != arrays.keys() for name, arrays in self._like.items()):
            self.count, self._sums, self._first = 0, {}, None
        for name, arrays in self._like.items():
            sums = self._sums.setdefault(name, {key: np.zeros(a.shape) for key, a in arrays.items()})
            for key, array in arrays.items():
                np.add(sums[key], array, out=sums[key])
        self.count, self._round = self.count + 1, round.number
        self._keep_first_half()

    def _keep_first_half(self) -> None:
        if self._round == self._half:
            sums = {name: {key: a.copy() for key, a in sums.items()} for name, sums in self._sums.items()}
            self._first = {"round": self._round, "count": self.count, "sums": sums}

    def records(self) -> dict[str, ArrayRecord]:
        """Return the averages in the dtypes of the records; integer arrays are the last ones seen."""
        return self._averages(self._sums, self.count)

    def second_half(self) -> dict[str, ArrayRecord] | None:
        """Return the same of the checkpoints ⌊T/2⌋ + 1..T; None where a run went on beyond an earlier end and had passed T/2."""
        if self._half == 0:
            return self.records()
        if self._first is None or self._first["round"] != self._half:
            return None
        sums = {
            name: {key: a - self._first["sums"][name][key] for key, a in sums.items()}
            for name, sums in self._sums.items()
        }
        return self._averages(sums, self.count - self._first["count"])

    def _averages(self, sums: Mapping[str, Mapping[str, np.ndarray]], count: int) -> dict[str, ArrayRecord]:
        def average(array: np.ndarray, like: np.ndarray) -> np.ndarray:
            return like if like.dtype.kind in "iub" else np.asarray(array / count).astype(like.dtype)

        return {
            name: to_record({key: average(sums[name][key], like) for key, like in arrays.items()})
            for name, arrays in self._like.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """See ``checkpoint.Stateful``."""
        return {
            "round": self._round,
            "count": self.count,
            "sums": self._sums,
            "like": self._like,
            "first": self._first,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See ``checkpoint.Stateful``."""
        self.count, self._sums, self._like = state["count"], state["sums"], state["like"]
        self._first, self._round = state.get("first"), state.get("round", 0)  # not in checkpoints of earlier versions
        self._keep_first_half()


class Evaluate:
    """Measures the model every ``every`` rounds and in each of the last ten.

    Args:
        measure: does the measuring.
        num_rounds: T.
        every: rounds between evaluations.
        rare: bool (N,). Further clients were held out of training: they are measured apart.
        tables: gets a row per client.
        optimum: per client, the loss attainable on its distribution, shape (N + held out,); None leaves FAA out.
    """

    def __init__(
        self,
        measure: Measure,
        num_rounds: int,
        every: int,
        rare: np.ndarray,
        tables: CsvLogger,
        optimum: np.ndarray | None = None,
    ) -> None:
        self._measure, self._tables = measure, tables
        self._num_rounds, self._every, self._rare, self._optimum = num_rounds, every, rare, optimum
        self.accuracies: dict[int, float] = {}
        self.last: Mapping[str, float | None] = {}
        self.last_evaluation: Evaluation | None = None

    def after_round(self, round: Round) -> None:
        """Evaluate if it is this round's turn."""
        if round.number % self._every and round.number <= self._num_rounds - LAST_ROUNDS:
            return
        evaluation = self._with_excess_risk(self._measure(round.arrays, round.number), round.number)
        round.evaluation = {
            "accuracy": evaluation.accuracy,
            "loss": evaluation.loss if evaluation.tested else None,
            **self._client_measures(evaluation),
            **evaluation.measures,
        }
        self.accuracies[round.number] = evaluation.accuracy
        self.last, self.last_evaluation = round.evaluation, evaluation
        self._tables.add_clients(round.number, evaluation)

    def _client_measures(self, evaluation: Evaluation) -> dict[str, float | None]:
        training = evaluation.clients < len(self._rare)
        ids = evaluation.clients[training]
        measures = client_measures(evaluation.client_accuracy[training], self._rare[ids])
        if not training.all():
            held_out = evaluation.client_accuracy[~training]
            measures["held_out_client_accuracy"] = client_measures(held_out, held_out < 0)["client_accuracy_mean"]
        if self._optimum is not None:
            risk = evaluation.extra["excess_risk"]
            measures["faa"] = fairness(risk[training])
            measures["excess_risks_below_zero"] = int((risk < 0).sum())
            if not training.all():
                measures["held_out_faa"] = fairness(risk[~training])
        return measures

    def _with_excess_risk(self, evaluation: Evaluation, round: int) -> Evaluation:
        if self._optimum is None:
            return evaluation
        risk = evaluation.client_loss - self._optimum[evaluation.clients]
        below = evaluation.clients[risk < 0]
        if len(below):
            log.info(
                "round %d: %d of %d excess risks are estimated below zero, the lowest %.4g for client %d",
                round, len(below), len(risk), np.nanmin(risk), evaluation.clients[np.nanargmin(risk)],
            )  # fmt: skip
        return replace(evaluation, extra={**evaluation.extra, "excess_risk": risk})

    def state_dict(self) -> dict[str, Any]:
        """See ``checkpoint.Stateful``."""
        last = self.last_evaluation
        return {
            "accuracies": list(self.accuracies.items()),
            "last": self.last,
            "last_evaluation": None if last is None else vars(last),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See ``checkpoint.Stateful``."""
        self.accuracies = dict(state["accuracies"])
        self.last = state["last"]
        self.last_evaluation = state["last_evaluation"] and Evaluation(**state["last_evaluation"])

    def last_accuracies(self) -> list[float]:
        """Accuracies of the last ten rounds."""
        return [accuracy for number, accuracy in self.accuracies.items() if number > self._num_rounds - LAST_ROUNDS]


class StopWhenEmpty:
    """Ends a run in which too many rounds in a row had no usable reply although clients were asked.

    Args:
        most: how many such rounds in a row end the run.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._in_a_row = 0
        self._reasons: Counter[str] = Counter()
        self.stopped: str | None = None

    def after_round(self, round: Round) -> None:
        """Count, and set ``round.stop`` when it is enough."""
        if round.updates:
            self._in_a_row = 0
            self._reasons.clear()
            return
        if not round.outcomes:
            return  # nobody was there: the law's doing, not a failure
        self._in_a_row += 1
        self._reasons.update(f"{outcome.outcome}: {outcome.reason}" for outcome in round.outcomes)
        if self._in_a_row >= self._most:
            round.stop = self.stopped = (
                f"ended after round {round.number}: {self._in_a_row} rounds in a row without a usable reply"
                f" (max_empty_rounds={self._most})"
            )

    def state_dict(self) -> dict[str, Any]:
        """See ``checkpoint.Stateful``."""
        return {"in_a_row": self._in_a_row, "reasons": self._reasons}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See ``checkpoint.Stateful``."""
        self._in_a_row, self._reasons = state["in_a_row"], Counter(state["reasons"])

    @property
    def overflown(self) -> bool:
        """Whether all those replies were refused because their numbers are not finite."""
        return bool(self._reasons) and all("not finite" in reason for reason in self._reasons)

    def most_common(self) -> str:
        """The most frequent reasons, with their counts."""
        return "; ".join(f"{count} × {reason}" for reason, count in self._reasons.most_common(3))


class StopWhenDiverged:
    """Ends a run whose training or test loss has left every reasonable bound.

    Args:
        most: the largest mean training loss, and test loss where the round was evaluated, that a round may have.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self.stopped: str | None = None

    def after_round(self, round: Round) -> None:
        """Compare, and set ``round.stop`` when it is too much."""
        for name, loss in (("training", round.metrics.get("train-loss")), ("test", round.evaluation.get("loss"))):
            if loss is not None and not loss <= self._most:
                beyond = f"{loss:.4g}, above max_loss={self._most:g}" if isfinite(loss) else "not finite"
                round.stop = self.stopped = f"ended after round {round.number}: the {name} loss is {beyond}"
                return


class Totals:
    """Counts what the summary reports."""

    def __init__(self) -> None:
        self.rounds = 0
        self.bytes_up = self.bytes_down = 0
        self.outcomes: dict[str, int] = {}
        self.seconds = 0.0

    def after_round(self, round: Round) -> None:
        """Add one round."""
        self.rounds += 1
        self.bytes_up += round.bytes_up
        self.bytes_down += round.bytes_down
        self.seconds += round.seconds
        for outcome in round.outcomes:
            self.outcomes[outcome.outcome] = self.outcomes.get(outcome.outcome, 0) + 1

    def state_dict(self) -> dict[str, Any]:
        """See ``checkpoint.Stateful``."""
        return dict(vars(self))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See ``checkpoint.Stateful``."""
        vars(self).update(state)

    @property
    def unusable(self) -> int:
        """Replies that were not averaged."""
        return sum(count for outcome, count in self.outcomes.items() if outcome != "averaged")
