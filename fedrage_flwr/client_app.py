"""The Flower ClientApp: routes messages to the client algorithm they name.

``app`` is what a Flower node runs: it prepares its own data. Simulated grids make theirs with ``make_client_app``.
Algorithms are looked up by name in ``clients.CLIENTS``; nothing a message carries is imported or instantiated by path.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.app.typing import MetricRecordValues
from flwr.clientapp import ClientApp

from clients import CLIENTS
from clients.base import ClientAlgorithm
from clients.base import evaluate as evaluate_client
from clients.base import train as train_client
from fedrage_flwr.cohort import Process, run_alone, run_together
from fedrage_flwr.node import node_workspace, own_partition
from fedrage_flwr.node_state import NodeState
from fedrage_flwr.settings import lookup
from fedrage_flwr.workspace import Workspace


def make_client_app(workspace: Workspace) -> ClientApp:
    """Return the app that answers for every client of ``workspace``."""
    return _make_app(lambda message, context: workspace)


def train_together(messages: Sequence[tuple[Message, Context]], workspace: Workspace) -> list[Message | Exception]:
    """Answer the training messages of several clients, their local trainings stacked as ``workspace.cohort`` says.

    Returns:
        One reply each, in order; an exception in the place of a client that raised. Contexts are changed as ``train`` does.
    """

    def process(message: Message, context: Context) -> Process[Message]:
        return (yield from train_client(_algorithm(message), message, context, workspace))

    return run_together([process(*pair) for pair in messages], workspace)


def _make_app(workspace_for: Callable[[Message, Context], Workspace]) -> ClientApp:
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        """Tell the server which partition this node holds, once its data is known to fit the run."""
        partition = own_partition(_config(message), context.node_config)
        workspace_for(message, context).client(partition)
        forgets = _algorithm(message).keeps_state and not context.node_config.get("state-dir")
        identity: dict[str, MetricRecordValues] = {"partition-id": partition, "forgets": int(forgets)}
        return Message(RecordDict({"identity": MetricRecord(identity)}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        """Train locally and reply with the model."""
        workspace = workspace_for(message, context)
        kept = _node_state(message, context)
        if kept is not None:
            context.state = kept.restore()
        reply = run_alone(train_client(_algorithm(message), message, context, workspace), workspace)
        if kept is not None:
            kept.commit(context.state)
        return reply

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        """Measure on the client's own test part and reply with numbers."""
        kept = _node_state(message, context)
        if kept is not None:
            context.state = kept.before(int(cast(int, _config(message)["server-round"])) + 1)
        return evaluate_client(_algorithm(message), message, context, workspace_for(message, context))

    return app


def _node_state(message: Message, context: Context) -> NodeState | None:
    """The client's files, on a node that keeps some."""
    folder = context.node_config.get("state-dir")
    if not folder:
        return None
    config = _config(message)
    return NodeState(Path(str(folder)).expanduser(), config, own_partition(config, context.node_config))


def _config(message: Message) -> ConfigRecord:
    return cast(ConfigRecord, message.content["config"])


def _algorithm(message: Message) -> type[ClientAlgorithm]:
    name = _config(message).get("client.name")
    if name not in CLIENTS:
        raise ValueError(f"this client knows no algorithm {name!r}; it knows {', '.join(sorted(CLIENTS))}")
    return cast(type[ClientAlgorithm], lookup(CLIENTS, str(name)))


app = _make_app(lambda message, context: node_workspace(_config(message), context.node_config))
