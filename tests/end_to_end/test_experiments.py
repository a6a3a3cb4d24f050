"""Every experiment file, at toy size, through the real command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.words import choices, conf_dir

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("FEDRAGE_DATA", REPOSITORY / "data")).resolve()
TEXT = [
    "dataset.reviews=reviews",
    "dataset.sentences=sentences",
    "dataset.root=.",
    "dataset.dimension=64",
    "evaluate.faa=false",
]
WITH_OWN_DATA = {  # what is not a setting of Table I
    "toy2d": [],
    "focus_linear": ["evaluate.faa=false"],
    "focus_rotated": ["evaluate.faa=false"],
    "focus_clusters": ["evaluate.faa=false"],
    "focus_partial": ["evaluate.faa=false"],
    "focus_rotated_cifar10": ["evaluate.faa=false", "dataset.max_examples=40", "model=softmax"],
    "focus_text": [*TEXT, "dataset.cache=cache"],
}
FOLDERS = {"rotated_mnist": "MNIST", "rotated_cifar10": "cifar-10-batches-py"}
OF_TABLE_1 = sorted(set(choices("experiment")) - set(WITH_OWN_DATA))


def command(folder: Path, *words: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "FEDRAGE_DATA": str(DATA)}
    done = subprocess.run(
        [sys.executable, "-m", "fedrage_flwr", *words, "num_rounds=2"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_experiments_in_the_setting_of_table_1(tmp_path):
    """One sweep over them all: a process for each would spend its time on imports."""
    command(tmp_path, "-m", f"experiment={','.join(OF_TABLE_1)}", "dataset=digits", "hydra.sweep.dir=sweep")
    assert len(list(tmp_path.glob("sweep/*/summary.json"))) == len(OF_TABLE_1)


@pytest.mark.parametrize("word", sorted(WITH_OWN_DATA))
def test_the_experiments_with_data_of_their_own(tmp_path, word):
    images = FOLDERS.get(str(compose_config([f"experiment={word}"]).dataset.name))
    if images and not (DATA / images).is_dir():
        pytest.skip(f"needs {images}: FEDRAGE_DATA names the folder")
    for name in ("reviews", "sentences"):
        rows = "".join(f"{'good' if i % 2 else 'bad'} text {name} {i},{i % 2}\n" for i in range(400))
        (tmp_path / f"{name}.csv").write_text("text,label\n" + rows)
    command(tmp_path, f"experiment={word}", "hydra.run.dir=run", *WITH_OWN_DATA[word])
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize("word", choices("experiment"))
def test_the_command_stands_on_top_and_what_it_sweeps_can_be_typed(word):
    """Line 1 is Hydra's, which reads it only there; line 2 is the command."""
    first, second, *_ = (conf_dir() / "experiment" / f"{word}.yaml").read_text(encoding="utf-8").splitlines()
    assert (first, second) == ("# @package _global_", f"# python -m fedrage_flwr -m experiment={word}")
    params = OmegaConf.to_container(compose_config([f"experiment={word}"]).hydra.sweeper.params)
    ends = [{key: str(value).split(",")[end].replace("range(5)", "0").replace("range(3)", "0").replace("range(10)", "0")
             for key, value in params.items()} for end in (0, -1)]  # fmt: skip
    for values in ends:
        validate(compose_config([f"experiment={word}", *(f"{key}={value}" for key, value in values.items())]))
