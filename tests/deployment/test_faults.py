"""What goes wrong between machines, with real processes on one SuperLink (TLS, a key per site).

Five sites: 0, 1 and 2 hold points on a line, labelled by their sign; the file of site 3 is not there, and site 4 has a column too
many. All five can work on their share of a public data set. ``FEDRAGE_TEST_PATIENCE`` stretches every wait on a slow machine.
"""

import contextlib
import json
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedrage_flwr.prepare import main as prepare
from tests.deployment.federation import PATIENCE, REPOSITORY, Federation, left_behind

pytestmark = pytest.mark.deployment
SITES = 5
PRIVATE = (
    "dataset=private partition=local dataset.classes=[left,right] dataset.input_shape=[2] model=softmax ram=natural"
    f" num_clients={SITES} rare_clients=0 client.lr=0.5"
)
PUBLIC = (
    f"strategy=scaffold num_clients={SITES} rare_clients=1 partition=iid ram=uniform ram.clients_per_round=2"
    " checkpoint_every=2 num_rounds=4 eval_every=4"
)
BITS = ("model.safetensors", "polyak.safetensors", "participation.csv", "clients.csv", "updates.csv")
DEADLINE = 30 * PATIENCE  # seconds: plenty for three sites; Flower gives a node up 36 to 60 after it fell silent


class Sites(Federation):
    """The five, with the folders and processes of each."""

    def __init__(self, folder: Path) -> None:
        self.nodes = {}
        super().__init__(folder, sites=SITES + 1)

    def begin(self, site, key=None, **options):
        """Start the node of a site; ``key`` makes it another node that says it is this site."""
        config = f'partition-id={site} num-partitions={SITES} data-path="{self.folder / f"{site}.npz"}"'
        config += f' state-dir="{self.folder / f"state{site}"}"' if key is None else ""
        self.nodes[key or site] = self.start_node(site, config, key, **options)

    def send(self, site, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.nodes[site].pid, number)

    def submit(self, overrides, output):
        """Run in the background; returns the thread."""
        run = threading.Thread(target=self.run, args=(overrides, output, 400))
        run.start()
        return run

    def wait_for_round(self, output, number):
        path = output / "ledger.csv"
        self.wait_for(lambda: path.exists() and f"\n{number},{SITES - 1}," in path.read_text(), f"round {number}", 150)


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    here = object.__new__(Sites)  # known to us before its processes start
    try:
        here.__init__(tmp_path_factory.mktemp("sites"))
        for site in range(SITES + 1):
            here.register(site)
        for site in (0, 1, 2, 4):
            _write(here.folder, site, columns=3 if site == 4 else 2)
        for site in range(SITES):
            here.begin(site)
        yield here
    finally:
        here.stop()


def _write(folder, site, columns):
    points = np.random.default_rng(site).normal(size=(60 + 20 * site, columns))
    table = pd.DataFrame(points, columns=[f"x{i}" for i in range(columns)])
    table["side"] = np.where(points[:, 0] > 0, "right", "left")
    table.to_csv(folder / f"{site}.csv", index=False)
    assert prepare(["table", str(folder / f"{site}.csv"), str(folder / f"{site}.npz"), "--label", "side"]) == 0


def test_a_node_with_a_key_that_nobody_registered_is_turned_away(sites):
    sites.call("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(sites.keys / "stranger"))
    sites.begin(0, key="stranger")
    assert sites.nodes["stranger"].wait(60 * PATIENCE) != 0
    assert "Connected" not in sites.log("nodestranger")


def test_a_node_does_not_talk_to_a_server_that_its_ca_does_not_vouch_for(sites):
    sites.call("bash", str(REPOSITORY / "deploy" / "keys.sh"), str(sites.folder / "others"), "1")
    sites.begin(0, key="site5", ca=sites.folder / "others" / "ca.crt")
    sites.wait_for(
        lambda: "CERTIFICATE_VERIFY_FAILED" in sites.log("nodesite5") or sites.nodes["site5"].poll() is not None,
        "the certificate is refused",
    )  # fmt: skip
    sites.send("site5", signal.SIGKILL)
    assert "SuperNode ID" not in sites.log("nodesite5")


def test_sites_that_do_not_fit_die_are_slow_come_twice_and_come_back(sites):
    """Round 1: all that fit. Round 2: site 1 is killed at work and site 2 is frozen. Then a second site 0 turns up, site 2 thaws
    and site 1 is started again under its old key."""
    output = sites.folder / "faults"
    run = sites.submit(
        f"{PRIVATE} strategy=scaffold num_rounds=6 node_wait_s={45 * PATIENCE:g} ram.deadline_s={DEADLINE:g}", output
    )
    sites.wait_for_round(output, 1)
    for site, number in ((2, signal.SIGSTOP), (1, signal.SIGKILL)):
        sites.wait_for(lambda site=site: sites.log(f"node{site}").count("Receiving: train ") == 2, f"{site} is at work")
        sites.send(site, number)
    sites.wait_for_round(output, 2)
    sites.send(2, signal.SIGCONT)
    sites.begin(0, key="site5")
    sites.begin(1, supervised=True)  # the server turns its key away until it has given the old process up
    run.join(400 * PATIENCE)
    sites.send("site5", signal.SIGTERM)
    assert not run.is_alive()

    ledger = pd.read_csv(output / "ledger.csv").pivot(index="round", columns="site", values="status")
    assert ledger[0].tolist() == ["averaged"] * 6
    assert ledger[1][[1, 6]].tolist() == ["averaged", "averaged"]
    assert ledger[1][2] in ("late", "failed")  # whichever comes first, our deadline or Flower's
    assert ledger[2][2] == "late" if PATIENCE == 1 else ledger[2][2] in ("late", "failed")
    assert ledger[2].drop(2).tolist() == ["averaged"] * 5
    assert (ledger[[3, 4]] == "never_seen").all(axis=None)
    kept = sorted(int(path.stem) for path in (sites.folder / "state1").rglob("*.npz"))
    assert kept == [round for round, status in ledger[1].items() if status == "averaged"]  # c_1 moved in no other round

    summary = json.loads((output / "summary.json").read_text())
    assert summary["never_contributed"] == [3, 4]
    problems = "\n".join(summary["node_problems"])
    assert "3.npz" in problems
    assert "input_shape is [3] in the file" in problems
    assert "another node says it holds partition-id=0" in problems
    clients = pd.read_csv(output / "clients.csv")
    assert clients.groupby("client")["examples"].first().to_dict() == {0: 12, 1: 16, 2: 20}  # a fifth of 60, 80, 100
    assert summary["accuracy_mean_last10"] > 0.8


def test_a_serverapp_that_is_killed_goes_on_to_the_same_bits(sites, simulate):
    """Killed behind round 3, back to the checkpoint of round 2, the nodes with it; under a law that draws, with a deadline."""
    output = sites.folder / "killed"
    run = sites.submit(f"{PUBLIC} node_wait_s={200 * PATIENCE:g} deadline_s={4 * DEADLINE:g}", output)
    sites.wait_for_round(output, 3)
    for pid in left_behind(sites.home):
        with contextlib.suppress(OSError):
            if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    assert not (output / "summary.json").exists()
    text = sites.call(
        "flwr", "run", ".", "here", "--stream", "--run-config", f'overrides="resume={output}"', seconds=330
    )
    assert "going on after round 2 of 4" in text
    run.join(300 * PATIENCE)
    expected, _ = simulate(*PUBLIC.split())
    for name in BITS:
        assert (output / name).read_bytes() == (expected / name).read_bytes(), name
    assert pd.read_csv(output / "ledger.csv")["round"].tolist() == sorted([1, 2, 3, 4] * SITES)


def test_two_nodes_of_one_site_at_the_start_end_the_run_in_one_line(sites):
    sites.begin(0, key="site5", supervised=True)
    sites.wait_for(lambda: "SuperNode ID" in sites.log("nodesite5").rsplit("Starting", 1)[-1], "it is connected", 90)
    text = sites.run(f"{PUBLIC} node_wait_s={200 * PATIENCE:g}", sites.folder / "twice")
    assert "two nodes say they hold partition-id=0: give each its own in --node-config" in text
