"""Clients in this process, one after another: the default, and the reference for every other grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from flwr.app import Message
from flwr.clientapp import ClientApp

from fedrage_flwr.client_app import make_client_app
from fedrage_flwr.grids.base import SimulatedGrid, WorkspaceFactory, run_client


@dataclass(frozen=True)
class InlineSettings:
    """The inline grid has nothing to set."""

    name: Literal["inline"]


class InlineGrid(SimulatedGrid):
    """Executes a ClientApp in the process, without serialising anything.

    Args:
        app: the app every node runs.
        num_clients: N.
    """

    Settings = InlineSettings

    def __init__(self, app: ClientApp, num_clients: int) -> None:
        super().__init__(num_clients)
        self._app = app

    @classmethod
    def create(
        cls, settings: InlineSettings, num_clients: int, make_workspace: WorkspaceFactory, device: torch.device
    ) -> "InlineGrid":
        """Make the grid of a run."""
        return cls(make_client_app(make_workspace(device)), num_clients)

    def run_clients(self, messages: Sequence[tuple[int, Message]]) -> list[Message]:
        """See ``SimulatedGrid``."""
        return [self._run_client(partition, message) for partition, message in messages]

    def _run_client(self, partition: int, message: Message) -> Message:
        context = self.context(partition)
        reply, context.state = run_client(self._app, message, context)
        return reply
