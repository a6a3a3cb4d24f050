"""Server halves of the algorithms: Flower strategies, one file each."""

STRATEGIES = {
    "fedavg": "strategies.fedavg:FedAvg",
    "weighted_fedavg": "strategies.weighted_fedavg:WeightedFedAvg",
    "federage": "strategies.federage:FedeRage",
    "fedprox": "strategies.fedprox:FedProx",
    "scaffold": "strategies.scaffold:Scaffold",
    "oracle": "strategies.oracle:Oracle",
    "fedavg_ema": "strategies.fedavg_ema:FedAvgEma",
    "focus": "strategies.focus:Focus",
    "ifca": "strategies.ifca:Ifca",
    "ditto": "strategies.ditto:Ditto",
    "qffl": "strategies.qffl:QFFL",
    "afl": "strategies.afl:AFL",
    "delta_fl": "strategies.delta_fl:DeltaFL",
    "term": "strategies.term:TERM",
    "fedau": "strategies.fedau:FedAU",
    "mifa": "strategies.mifa:MIFA",
    "fedawe": "strategies.fedawe:FedAWE",
}
"""``strategy.name`` → class."""
