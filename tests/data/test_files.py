"""Data sets kept in files: complete, missing, damaged, read-only, without network, wanted by two processes at once."""

import gzip
import hashlib
import os
import pickle
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch

from fedrage_flwr.data import Dataset, load_dataset, prepare
from fedrage_flwr.data import cifar as cifar_module
from fedrage_flwr.data.cifar import Cifar10
from fedrage_flwr.data.mnist import FashionMnist, Mnist, read_idx
from fedrage_flwr.errors import UserError

IMAGES = np.arange(3 * 28 * 28).reshape(3, 28, 28).astype(np.uint8)
LABELS = np.array([5, 0, 4], dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(n.to_bytes(4, "big") for n in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def write_mnist(root: Path, folder: str = "MNIST") -> Path:
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    for split in ("train", "t10k"):
        (raw / f"{split}-images-idx3-ubyte").write_bytes(idx(IMAGES))
        (raw / f"{split}-labels-idx1-ubyte").write_bytes(idx(LABELS))
    return raw


def write_cifar(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    sums = {}
    for position, name in enumerate(cifar_module.MD5):
        data = np.full((2, 3072), position, dtype=np.uint8)
        content = pickle.dumps({"data": data, "labels": [position, 9]})
        (folder / name).write_bytes(content)
        sums[name] = hashlib.md5(content).hexdigest()
    monkeypatch.setattr(cifar_module, "MD5", sums)
    return folder


def mnist(root: Path) -> Mnist.Settings:
    return Mnist.Settings("mnist", [5, 4], str(root))


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in [root, *root.rglob("*")]}


def no_network(*args: Any, **kwargs: Any) -> None:
    assert socket.getdefaulttimeout() == 15
    print("a progress bar", file=sys.stderr)
    raise URLError("Name or service not known")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torchvision's one way to the network."""
    monkeypatch.setattr("torchvision.datasets.utils._get_redirect_url", no_network)


def test_mnist_files(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    dataset = load_dataset(mnist(tmp_path))
    assert dataset.name == "mnist"
    assert dataset.rarest_classes == (5, 4)
    assert dataset.train.inputs.shape == (3, 1, 28, 28)
    assert np.array_equal(dataset.train.inputs[:, 0].numpy(), IMAGES)
    assert dataset.test.labels.tolist() == [5, 0, 4]
    assert dataset.test.labels.dtype == torch.int64


def test_fashion_mnist_has_its_own_folder(tmp_path: Path) -> None:
    write_mnist(tmp_path, "FashionMNIST")
    assert load_dataset(FashionMnist.Settings("fashion_mnist", None, str(tmp_path))).name == "fashion_mnist"


def test_cifar_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar(tmp_path, monkeypatch)
    dataset = load_dataset(Cifar10.Settings("cifar10", None, str(tmp_path)))
    assert dataset.train.inputs.shape == (10, 3, 32, 32)
    assert dataset.train.labels.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]
    assert dataset.train.inputs[::2, 2, 31, 31].tolist() == [0, 1, 2, 3, 4]
    assert dataset.test.labels.tolist() == [5, 9]


def test_o29_a_complete_read_only_folder_is_only_read(tmp_path: Path) -> None:
    raw = write_mnist(tmp_path)
    folders = (raw, raw.parent, tmp_path)
    for folder in folders:
        folder.chmod(0o555)
    before = snapshot(tmp_path)
    try:
        load_dataset(mnist(tmp_path))
        assert snapshot(tmp_path) == before
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_o29_without_network_one_line_at_once(tmp_path: Path, offline: None, capfd: pytest.CaptureFixture[str]) -> None:
    root, start = tmp_path / "data", time.perf_counter()
    with pytest.raises(UserError) as caught:
        prepare(mnist(root))
    assert time.perf_counter() - start < 10  # the import of torchvision
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"dataset=mnist: MNIST/raw/train-images-idx3-ubyte is missing in {root}")
    for part in ("Name or service not known", "dataset.root=", "FEDRAGE_DATA", "network"):
        assert part in message
    assert capfd.readouterr().err == ""
    assert socket.getdefaulttimeout() is None
    assert {p.name for p in root.rglob("*")} <= {".mnist.lock"}
    write_mnist(root)  # nothing is left in the way
    assert len(load_dataset(mnist(root)).train) == 3


def test_without_network_cifar(tmp_path: Path, offline: None) -> None:
    with pytest.raises(UserError, match=r"dataset=cifar10: cifar-10-batches-py/data_batch_1 is missing in "):
        prepare(Cifar10.Settings("cifar10", None, str(tmp_path / "data")))


def test_a_folder_that_cannot_be_made_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UserError, match=r"dataset=mnist: .* in .*file/data, and downloading failed \(NotADirectoryError"
    ):
        prepare(mnist(tmp_path / "file" / "data"))


@pytest.mark.parametrize("keep", [0, 10, 1000])
def test_o29_damaged_file_is_named(keep: int, tmp_path: Path, offline: None) -> None:
    raw = write_mnist(tmp_path)
    path = raw / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match="MNIST/raw/t10k-images-idx3-ubyte is damaged in"):
        load_dataset(mnist(tmp_path))
    assert (raw / "train-images-idx3-ubyte").read_bytes() == idx(IMAGES)  # the whole ones are kept


def test_o29_damaged_archive_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import MNIST

    contents = {f"{s}-images-idx3-ubyte.gz": gzip.compress(idx(IMAGES)) for s in ("train", "t10k")}
    contents |= {f"{s}-labels-idx1-ubyte.gz": gzip.compress(idx(LABELS)) for s in ("train", "t10k")}
    monkeypatch.setattr(MNIST, "resources", [(name, hashlib.md5(c).hexdigest()) for name, c in contents.items()])
    fetched: list[str] = []

    def serve(url: str, filename: str) -> None:
        fetched.append(Path(filename).name)
        Path(filename).write_bytes(contents[Path(filename).name])

    monkeypatch.setattr("torchvision.datasets.utils._get_redirect_url", lambda url, max_hops: url)
    monkeypatch.setattr("torchvision.datasets.utils._urlretrieve", serve)
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, content in contents.items():
        (raw / name).write_bytes(content[:20] if name.startswith("t10k-images") else content)
    (raw / "train-images-idx3-ubyte").write_bytes(idx(IMAGES)[:100])  # unpacking was interrupted
    dataset = load_dataset(mnist(tmp_path))
    assert fetched == ["t10k-images-idx3-ubyte.gz"]
    assert np.array_equal(dataset.train.inputs[:, 0].numpy(), IMAGES)


WORKER = """
import shutil, sys, time
from pathlib import Path
from fedrage_flwr.data import load_dataset
from fedrage_flwr.data.mnist import Mnist

here, name = Path(sys.argv[1]), sys.argv[2]

def fetch(self):
    with (here / "downloads").open("a") as log:
        log.write("x")
    time.sleep(0.5)
    shutil.copytree(here / "server" / "MNIST", self.root / "MNIST")

Mnist.fetch = fetch
(here / f"ready{name}").touch()
while len(list(here.glob("ready*"))) < 2:
    time.sleep(0.01)
print(len(load_dataset(Mnist.Settings("mnist", None, str(here / "data"))).train))
"""


def test_o29_two_processes_one_download(tmp_path: Path) -> None:
    write_mnist(tmp_path / "server")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    workers = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True, env=environment) for name in "ab"]
    assert [process.communicate(timeout=60)[0].strip() for process in workers] == ["3", "3"]
    assert (tmp_path / "downloads").read_text() == "x"


def test_not_an_idx_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"<html>")
    with pytest.raises(ValueError, match="is not an idx file"):
        read_idx(tmp_path / "x")


REAL = os.environ.get("FEDRAGE_DATA", "")
KINDS: dict[str, tuple[str, Any, tuple[int, ...]]] = {
    "MNIST": ("MNIST", Mnist.Settings("mnist", None, REAL), (1, 28, 28)),
    "FashionMNIST": ("FashionMNIST", FashionMnist.Settings("fashion_mnist", None, REAL), (1, 28, 28)),
    "CIFAR10": ("cifar-10-batches-py", Cifar10.Settings("cifar10", None, REAL), (3, 32, 32)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_real_data_is_what_torchvision_reads(kind: str) -> None:
    folder, settings, shape = KINDS[kind]
    if not REAL or not (Path(REAL) / folder).is_dir():
        get = f"python -c \"import torchvision; torchvision.datasets.{kind}('data', download=True)\""
        pytest.skip(f"needs {kind}: {get}, then FEDRAGE_DATA=data")
    from torchvision import datasets

    dataset: Dataset = load_dataset(settings)
    assert dataset.input_shape == shape
    for split, train in ((dataset.train, True), (dataset.test, False)):
        theirs = getattr(datasets, kind)(REAL, train=train)
        inputs = torch.as_tensor(theirs.data)
        inputs = inputs.unsqueeze(1) if kind != "CIFAR10" else inputs.permute(0, 3, 1, 2)
        assert torch.equal(split.inputs, inputs)
        assert torch.equal(split.labels, torch.as_tensor(theirs.targets))
    values = dataset.to_float(dataset.train.inputs)
    assert values.mean(dim=(0, 2, 3)).abs().max() < 1e-3
    assert (values.std(dim=(0, 2, 3)) - 1).abs().max() < 1e-3
