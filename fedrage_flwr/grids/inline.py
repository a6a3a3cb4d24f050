"""Clients in this process, one after another: the default, and the reference for every other grid."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

from fedrage_flwr.client_app import make_client_app
from fedrage_flwr.grids.base import SimulatedGrid, WorkspaceFactory
from fedrage_flwr.grids.executor import Executor, Job
from fedrage_flwr.workspace import Workspace


@dataclass(frozen=True)
class InlineSettings:
    """The inline grid has nothing to set."""

    name: Literal["inline"]


class InProcessGrid(SimulatedGrid):
    """Executes clients in the process, without serialising anything.

    Args:
        execute: runs jobs and returns replies and states, see ``Executor.run``.
        num_clients: N.
    """

    def __init__(self, execute: Callable[[Sequence[Job]], list[tuple[Message, RecordDict]]], num_clients: int) -> None:
        super().__init__(num_clients)
        self._execute = execute

    def run_clients(self, messages: Sequence[tuple[int, Message]]) -> list[Message]:
        """See ``SimulatedGrid``."""
        contexts = [self.context(partition) for partition, _ in messages]
        jobs = [(message, context) for (_, message), context in zip(messages, contexts, strict=True)]
        replies = []
        for context, (reply, state) in zip(contexts, self._execute(jobs), strict=True):
            context.state = state
            replies.append(reply)
        return replies


class InlineGrid(InProcessGrid):
    """Executes a ClientApp.

    Args:
        app: the app every node runs.
        num_clients: N.
        workspace: what the app works with, for training clients together; None runs them one by one.
    """

    Settings = InlineSettings

    def __init__(self, app: ClientApp, num_clients: int, workspace: Workspace | None = None) -> None:
        super().__init__(Executor(app, workspace).run, num_clients)

    @classmethod
    def create(
        cls, settings: InlineSettings, num_clients: int, make_workspace: WorkspaceFactory, device: torch.device
    ) -> "InlineGrid":
        """Make the grid of a run."""
        workspace = make_workspace(device)
        return cls(make_client_app(workspace), num_clients, workspace)
