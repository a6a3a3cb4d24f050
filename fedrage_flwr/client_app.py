"""The Flower ClientApp: routes messages to the client algorithm they name.

Algorithms are looked up by name in ``clients.CLIENTS``; nothing a message carries is imported or instantiated by path.
"""

from typing import cast

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.app.typing import MetricRecordValues
from flwr.clientapp import ClientApp

from clients import CLIENTS
from clients.base import ClientAlgorithm
from clients.base import evaluate as evaluate_client
from clients.base import train as train_client
from fedrage_flwr.settings import lookup
from fedrage_flwr.workspace import Workspace


def make_client_app(workspace: Workspace) -> ClientApp:
    """Return the app that answers for every client of ``workspace``."""
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        """Tell the server which partition this node holds."""
        identity: dict[str, MetricRecordValues] = {
            name: int(context.node_config[name]) for name in ("partition-id", "num-partitions")
        }
        return Message(RecordDict({"identity": MetricRecord(identity)}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        """Train locally and reply with the model."""
        return train_client(_algorithm(message), message, context, workspace)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        """Measure on the client's own test part and reply with numbers."""
        return evaluate_client(_algorithm(message), message, context, workspace)

    return app


def _algorithm(message: Message) -> type[ClientAlgorithm]:
    name = cast(ConfigRecord, message.content["config"]).get("client.name")
    if name not in CLIENTS:
        raise ValueError(f"this client knows no algorithm {name!r}; it knows {', '.join(sorted(CLIENTS))}")
    return cast(type[ClientAlgorithm], lookup(CLIENTS, str(name)))
