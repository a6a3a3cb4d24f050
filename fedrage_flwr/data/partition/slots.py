"""Class slots: which client holds which classes, every class in as equal a number of clients as divides."""

import numpy as np
import numpy.typing as npt

from fedrage_flwr.data.partition.sharing import Indices
from fedrage_flwr.errors import UserError

KEY = "partition.classes_per_client"


def draw_slots(
    classes: Indices, class_sizes: Indices, num_clients: int, per_client: int, rng: np.random.Generator, whom: str
) -> npt.NDArray[np.bool_]:
    """Draw which of ``classes`` each client holds.

    Every client holds exactly ``per_client`` different classes, and the numbers of holders of two classes differ by at
    most one: each client in turn takes the classes held by fewest so far, ties at random.

    Args:
        classes: the class ids to share, ascending.
        class_sizes: training examples of every class of the data set.
        whom: how an error names the clients, such as "27 common clients".

    Returns:
        (num_clients, len(classes)) bool.

    Raises:
        UserError: more classes per client than there are; a class without a client; fewer examples than holders.
    """
    if per_client > len(classes):
        raise UserError(f"{KEY}={per_client}: the {whom} share {len(classes)} classes; give 1 to {len(classes)}")
    holds = np.zeros((num_clients, len(classes)), dtype=np.bool_)
    holders = np.zeros(len(classes), dtype=np.int64)
    ties = rng.random(holds.shape)  # in [0, 1): decides between equal numbers only
    for client in range(num_clients):
        taken = np.argpartition(holders + ties[client], per_client - 1)[:per_client]
        holds[client, taken] = True
        holders[taken] += 1
    _refuse_unheld(classes, class_sizes, holders, num_clients, per_client, whom)
    _refuse_scarce(classes, class_sizes, holders, per_client)
    return holds


def _refuse_unheld(
    classes: Indices, class_sizes: Indices, holders: Indices, num_clients: int, per_client: int, whom: str
) -> None:
    unheld = [f"{label} ({class_sizes[label]} examples)" for label in classes[holders == 0]]
    if unheld:
        enough = -(-len(classes) // num_clients)
        raise UserError(
            f"{KEY}={per_client}: the {whom} have {num_clients * per_client} slots for {len(classes)} classes, which "
            f"leaves without a client: class {', '.join(unheld)}; give {enough} or more, or more clients"
        )


def _refuse_scarce(classes: Indices, class_sizes: Indices, holders: Indices, per_client: int) -> None:
    scarce = [
        f"class {k} has {class_sizes[k]} training examples for {s} clients"
        for k, s in zip(classes, holders, strict=True)
        if class_sizes[k] < s
    ]
    if scarce:
        raise UserError(f"{KEY}={per_client}: {'; '.join(scarce)}; give fewer classes per client or fewer num_clients")
