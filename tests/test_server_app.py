"""The ServerApp without Flower's processes: nodes that run the real ClientApp, behind a grid that does not say who is who."""

import json

import pandas as pd
import pytest
from flwr.app import Context, RecordDict

from fedrage_flwr.client_app import app
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.parts import prepare_run
from fedrage_flwr.resume import read_request, resume
from fedrage_flwr.server_app import _run, output_folder, split_overrides

JOB = "num_clients=4 rare_clients=1 partition=iid model=softmax ram=uniform ram.clients_per_round=2 num_rounds=6 eval_every=6"
BITS = ("model.safetensors", "polyak.safetensors", "participation.csv", "clients.csv", "updates.csv")


class Nodes(InlineGrid):
    """Four nodes with a folder of their own; the server's process ends when round ``dies`` is sent."""

    def __init__(self, folder, dies=-1):
        super().__init__(app, 4)
        self.nodes, self.dies = self.partitions, dies
        del self.partitions
        for node, i in self.nodes.items():
            config = {"partition-id": i, "num-partitions": 4, "state-dir": str(folder / f"node{i}")}
            self.contexts[i] = Context(1, node, config, RecordDict(), {})

    def get_node_ids(self):
        return list(self.nodes)

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if any(message.content["config"].get("server-round") == self.dies for message in messages):
            raise RuntimeError("killed")
        self.partitions = self.nodes
        try:
            return super().send_and_receive(messages)
        finally:
            del self.partitions


def submit(grid, overrides, output=""):
    _run(grid, Context(1, 1, {}, RecordDict(), {"overrides": overrides, "output-dir": str(output)}))


@pytest.mark.parametrize("word", ["scaffold", "federage"])
def test_a_run_that_was_killed_goes_on_to_the_same_bits(tmp_path, simulate, word):
    """Killed in round 6, back to round 4. The nodes have been through round 5, and are new processes with empty memories."""
    job, output = f"{JOB} strategy={word} checkpoint_every=2", tmp_path / "out"
    with pytest.raises(RuntimeError, match="killed"):
        submit(Nodes(tmp_path, dies=6), job, output)
    assert not (output / "summary.json").exists()
    submit(Nodes(tmp_path), f"resume={output}")
    expected, _ = simulate(*job.split())
    for name in BITS:
        assert (output / name).read_bytes() == (expected / name).read_bytes(), name
    assert pd.read_csv(output / "ledger.csv")["round"].tolist() == sorted([*range(1, 7)] * 4)
    assert "after round 4" in (output / ".hydra" / "resumes.log").read_text()


def test_a_run_goes_on_where_it_began(tmp_path, simulate):
    remote = tmp_path / "out"
    with pytest.raises(RuntimeError):
        submit(Nodes(tmp_path, dies=3), f"{JOB} strategy=fedavg", remote)
    with pytest.raises(UserError, match=r"are Flower's nodes: go on with flwr run \. --run-config"):
        resume(read_request([f"resume={remote}"]), remote, print)
    here, _ = simulate(*JOB.split(), "strategy=fedavg")
    (here / "summary.json").unlink()
    with pytest.raises(UserError, match="go on with python -m fedrage_flwr resume="):
        submit(Nodes(tmp_path), f"resume={here}")


@pytest.mark.parametrize(
    ("overrides", "output", "message"),
    [
        ("resume=out", "", "must be the absolute path of a run's folder"),
        ("resume=/nowhere/at/all", "", "must be the absolute path of a run's folder"),
        ("resume={}", "/another", "goes with a new run"),
        (
            f"{JOB} strategy=fedavg ram=natural deadline_s=3".replace("ram.clients_per_round=2", ""),
            "",
            "has ram.deadline_s",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path, overrides, output, message):
    with pytest.raises(UserError, match=message):
        submit(Nodes(tmp_path), overrides.format(tmp_path), output)


def test_a_deadline_is_for_nodes():
    with pytest.raises(UserError, match=r"deadline_s=3: is for Flower's nodes \(flwr run\)"):
        prepare_run(validate(compose_config(["deadline_s=3"])))


PRIVATE = f"{JOB} strategy=fedavg privacy.clip=1.0 privacy.noise_multiplier=2.0 checkpoint_every=1"


def test_privacy_noise_on_nodes_comes_from_a_secret(tmp_path):
    """Two runs with the same seed, which every node is told, differ by noise alone."""
    for name in ("a", "b"):
        submit(Nodes(tmp_path / f"nodes-{name}"), PRIVATE, tmp_path / name)
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b"))
    assert one != other


def test_a_private_run_that_goes_on_counts_the_release_that_may_be_lost(tmp_path):
    output = tmp_path / "out"
    with pytest.raises(RuntimeError):
        submit(Nodes(tmp_path, dies=6), PRIVATE, output)
    submit(Nodes(tmp_path), f"resume={output}")
    most = pd.read_csv(output / "participation.csv")["client"].value_counts().max()
    assert json.loads((output / "summary.json").read_text())["privacy_releases"] == most + 1


def test_words_are_split_as_a_shell_would():
    assert split_overrides("a=1 'b=[1, 2]'") == ["a=1", "b=[1, 2]"]
    for text, message in (("a='1", "cannot be split"), ("-m a=1", "-m is an option of the command line")):
        with pytest.raises(UserError, match=message):
            split_overrides(text)


def test_results_go_to_a_new_absolute_folder(tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    for setting, message in ((str(tmp_path / "used"), "is not empty"), ("relative", "must be absolute")):
        with pytest.raises(UserError, match=message):
            output_folder(setting, 1)
