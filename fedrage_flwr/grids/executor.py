"""How one process executes the messages of several of its clients: one by one through the app, or trained in cohorts."""

from collections.abc import Sequence

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedrage_flwr.client_app import train_together
from fedrage_flwr.grids.base import raised, run_client, working_copy
from fedrage_flwr.workspace import Workspace

Job = tuple[Message, Context]


class Executor:
    """Acts as clients.

    Args:
        app: answers any message.
        workspace: what the app works with; its ``cohort`` says how many clients are trained at once. None: one by one.
    """

    def __init__(self, app: ClientApp, workspace: Workspace | None = None) -> None:
        self._app, self._workspace = app, workspace

    def run(self, jobs: Sequence[Job]) -> list[tuple[Message, RecordDict]]:
        """Return every client's reply, errors included, and its state: as it was where the client raised."""
        workspace = self._workspace
        if workspace is None or workspace.cohort.size == 1 or any(m.metadata.message_type != "train" for m, _ in jobs):
            return [run_client(self._app, *job) for job in jobs]
        copies = [working_copy(context) for _, context in jobs]
        messages = [message for message, _ in jobs]
        replies = train_together(list(zip(messages, copies, strict=True)), workspace)
        return [
            (raised(*job, reply), job[1].state) if isinstance(reply, Exception) else (reply, working.state)
            for job, working, reply in zip(jobs, copies, replies, strict=True)
        ]
