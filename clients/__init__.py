"""Client halves of the algorithms: one file each where the client differs from plain local SGD."""

CLIENTS = {
    "fedavg": "clients.fedavg:FedAvgClient",
    "federage": "clients.federage:FedeRageClient",
}
"""``client.name`` → class."""
