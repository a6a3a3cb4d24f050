"""Data sets and how they are shared out among clients.

This package is on the client path: it imports neither torchvision nor scikit-learn nor pandas.
"""

from fedrage_flwr.data.dataset import Dataset, DatasetSettings, Split
from fedrage_flwr.data.partition.base import ClientIndices, Partition, PartitionSettings, on_validation
from fedrage_flwr.errors import UserError
from fedrage_flwr.settings import NameTable, lookup

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "ClientIndices",
    "Dataset",
    "Partition",
    "Split",
    "load_dataset",
    "on_validation",
    "partition",
    "prepare",
]

DATASETS: NameTable = {
    "digits": "fedrage_flwr.data.digits:Digits",
    "mnist": "fedrage_flwr.data.mnist:Mnist",
    "fashion_mnist": "fedrage_flwr.data.mnist:FashionMnist",
    "cifar10": "fedrage_flwr.data.cifar:Cifar10",
    "rotated_mnist": "fedrage_flwr.data.rotated:RotatedMnist",
    "rotated_fashion_mnist": "fedrage_flwr.data.rotated:RotatedFashionMnist",
    "rotated_cifar10": "fedrage_flwr.data.rotated:RotatedCifar10",
    "linear_gaussian": "fedrage_flwr.data.linear_gaussian:LinearGaussian",
    "toy2d": "fedrage_flwr.data.toy2d:Toy2d",
    "text_sentiment": "fedrage_flwr.data.text_sentiment:TextSentiment",
    "synthetic": "fedrage_flwr.data.synthetic:Synthetic",
    "private": "fedrage_flwr.data.private:Private",
    "file": "fedrage_flwr.data.npz:NpzFile",
}

PARTITIONS: NameTable = {
    "iid": "fedrage_flwr.data.partition.iid:Iid",
    "pathological": "fedrage_flwr.data.partition.pathological:Pathological",
    "dirichlet": "fedrage_flwr.data.partition.dirichlet:Dirichlet",
    "rare_classes": "fedrage_flwr.data.partition.rare_classes:RareClasses",
    "quantity": "fedrage_flwr.data.partition.quantity:Quantity",
    "natural": "fedrage_flwr.data.partition.natural:Natural",
    "local": "fedrage_flwr.data.partition.local:Local",
}


def prepare(settings: DatasetSettings) -> None:
    """Make sure the files of a data set are there, downloading them once if need be (one process does, others wait).

    Raises:
        UserError: they are not there and cannot be had; said within seconds where there is no network.
    """
    lookup(DATASETS, settings.name)(settings).prepare()


def load_dataset(settings: DatasetSettings) -> Dataset:
    """Return the data set in memory, after :func:`prepare`."""
    dataset: Dataset = lookup(DATASETS, settings.name)(settings).load()
    return dataset


# The function has the name of the sub-package, and wins: the sub-package is imported above, before it is defined.
def partition(settings: PartitionSettings, dataset: Dataset, num_clients: int, rare_clients: int) -> Partition:
    """Share the examples of ``dataset`` out among clients 0..num_clients-1; the last ``rare_clients`` ones are rare.

    A function of its arguments alone: equal arguments give equal partitions in every process.

    Raises:
        UserError: the numbers do not fit the data set.
    """
    if (dataset.name == "private") != (settings.name == "local"):
        raise UserError(
            f"dataset={dataset.name} partition={settings.name}: dataset=private and partition=local go together"
        )
    shared: Partition = lookup(PARTITIONS, settings.name)(settings).share(dataset, num_clients, rare_clients)
    return shared
