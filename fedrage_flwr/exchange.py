"""Which reply belongs to which partition: identity is the partition id, node ids stay in manager and grid."""

from collections.abc import Iterable, Mapping, Sequence

from flwr.app import Message
from flwr.serverapp import Grid


def partitions_of(grid: Grid) -> Mapping[int, int]:
    """Node id → partition id on a grid that knows it; elsewhere a node stands for itself."""
    known: Mapping[int, int] | None = getattr(grid, "partitions", None)
    return known if known is not None else {node: node for node in grid.get_node_ids()}


def in_partition_order(
    messages: Sequence[Message], replies: Iterable[Message], partitions: Mapping[int, int]
) -> list[tuple[int, Message]]:
    """Pair replies with the partition their message went to, in partition order.

    The sender's id will not do: an error made on behalf of a dead node carries the SuperLink's. A reply to no message of
    this round is dropped.
    """
    asked = {m.metadata.message_id: partitions[m.metadata.dst_node_id] for m in messages}
    pairs = [(asked[r.metadata.reply_to_message_id], r) for r in replies if r.metadata.reply_to_message_id in asked]
    return sorted(pairs, key=lambda pair: pair[0])
