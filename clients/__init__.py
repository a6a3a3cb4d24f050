"""Client halves of the algorithms: one file each where the client differs from plain local SGD."""

CLIENTS = {
    "fedavg": "clients.fedavg:FedAvgClient",
    "federage": "clients.federage:FedeRageClient",
    "fedprox": "clients.fedprox:FedProxClient",
    "scaffold": "clients.scaffold:ScaffoldClient",
    "focus": "clients.focus:FocusClient",
    "ifca": "clients.ifca:IfcaClient",
    "ditto": "clients.ditto:DittoClient",
    "loss_first": "clients.loss_first:LossFirstClient",
}
"""``client.name`` → class."""
