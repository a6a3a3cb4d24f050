"""The least number of examples a client may have, for partitioners that draw sizes at random."""

from fedrage_flwr.data.partition.base import Draw, PartitionSettings, Task
from fedrage_flwr.data.partition.sharing import Indices, top_up
from fedrage_flwr.errors import UserError


def refuse_too_few(task: Task, minimum: int) -> None:
    """Raise ``UserError`` if there are not ``minimum`` training examples for every client."""
    available = len(task.labels)
    if task.num_clients * minimum > available:
        raise UserError(
            f"partition.min_examples={minimum}: {task.num_clients} clients × {minimum} is more than the {available} "
            f"training examples; give at most {available // task.num_clients}, or fewer num_clients"
        )


def with_minimum(
    owner: Indices, task: Task, minimum: int, settings: PartitionSettings
) -> tuple[Indices, tuple[str, ...]]:
    """Give every client ``minimum`` training examples (validation included), taken from the largest clients.

    Our choice. Drawing again until all are large enough, as is common, may never end and changes the law.
    """
    owner, moved, clients = top_up(owner, minimum, task.num_clients, settings.generator(Draw.MOVES))
    if moved == 0:
        return owner, ()
    return owner, (f"{settings.name}: {moved:,} examples moved to {clients:,} clients below min_examples={minimum}",)
