"""Server halves of the algorithms: Flower strategies, one file each."""

STRATEGIES = {
    "fedavg": "strategies.fedavg:FedAvg",
    "weighted_fedavg": "strategies.weighted_fedavg:WeightedFedAvg",
    "federage": "strategies.federage:FedeRage",
}
"""``strategy.name`` → class."""
