"""The one loop over rounds.

It is Flower's ``Strategy.start`` with three things added: the client manager decides who is on the grid of each round,
callbacks see each finished round, and any of them can end the run. It drives every Flower strategy that trains on all
the nodes it sees.
"""

import time
from collections.abc import Sequence

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.exchange import in_partition_order, partitions_of
from fedrage_flwr.records import payload_bytes
from fedrage_flwr.rounds import Callback, Outcome, Round


def run_rounds(
    strategy: Strategy,
    grid: Grid,
    arrays: ArrayRecord,
    num_rounds: int,
    *,
    manager: RandomAccessClientManager | None = None,
    train_config: ConfigRecord | None = None,
    timeout: float | None = None,
    callbacks: Sequence[Callback] = (),
    first_round: int = 1,
) -> Result:
    """Run rounds ``first_round``..``num_rounds``; returns the last model.

    Args:
        strategy: any Flower strategy that trains on all the nodes it sees.
        grid: where clients are.
        arrays: θ̂ before the first round.
        num_rounds: T.
        manager: decides who reaches the server; None leaves the whole grid visible.
        train_config: sent with every training message.
        timeout: seconds to wait for replies; None waits for all.
        callbacks: called after every round.
        first_round: where to start (after a resume).
    """
    result = Result(arrays=arrays)
    config = train_config or ConfigRecord()
    if manager is not None:
        manager.connect(grid)
    for number in range(first_round, num_rounds + 1):
        started = time.perf_counter()
        view = grid if manager is None else manager.admit(grid, number)
        messages, replies = _exchange(strategy, view, number, result.arrays, config, timeout)
        new_arrays, metrics = strategy.aggregate_train(number, replies) if messages else (None, None)
        if new_arrays is not None:
            result.arrays = new_arrays
        if metrics is not None:
            result.train_metrics_clientapp[number] = metrics
        answered = {reply.metadata.reply_to_message_id for reply in replies}
        finished = Round(
            number=number,
            arrays=result.arrays,
            records=getattr(strategy, "records", {}),
            outcomes=_outcomes(strategy, messages, replies, view) if messages else [],
            updates=getattr(strategy, "updates", []) if messages else [],
            metrics={name: float(value) for name, value in (metrics or {}).items() if not isinstance(value, list)},
            bytes_up=sum(payload_bytes(reply.content) for reply in replies if not reply.has_error()),
            bytes_down=sum(payload_bytes(m.content) for m in messages if m.metadata.message_id in answered),
            seconds=time.perf_counter() - started,
        )
        for callback in callbacks:
            callback.after_round(finished)
        if finished.stop is not None:
            break
    return result


def _exchange(
    strategy: Strategy, view: Grid, number: int, arrays: ArrayRecord, config: ConfigRecord, timeout: float | None
) -> tuple[list[Message], list[Message]]:
    if not list(view.get_node_ids()):  # nobody reached the server: Flower's own strategies would wait for ever
        return [], []
    messages = list(strategy.configure_train(number, arrays, config, view))
    replies = view.send_and_receive(messages, timeout=timeout)
    return messages, [reply for _, reply in in_partition_order(messages, replies, partitions_of(view))]


def _outcomes(strategy: Strategy, messages: list[Message], replies: list[Message], view: Grid) -> Sequence[Outcome]:
    judged: Sequence[Outcome] | None = getattr(strategy, "outcomes", None)
    if judged is None:  # one of Flower's own strategies: it says nothing about single replies
        pairs = in_partition_order(messages, replies, partitions_of(view))
        judged = [
            Outcome(client, "failed", reply.error.reason or "") if reply.has_error() else Outcome(client, "averaged")
            for client, reply in pairs
        ]
    return judged
