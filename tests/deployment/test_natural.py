"""Availability as it is: a site that is not there, one that is too slow, one that never comes."""

import json
import os
import signal
import threading

import pandas as pd
import pytest

pytestmark = pytest.mark.deployment
JOB = "num_clients=3 rare_clients=0 partition=iid ram=natural model=softmax eval_every=1 node_wait_s=30 num_rounds=2"


def test_a_site_that_never_comes_is_called_out(federation, tmp_path):
    here = federation(3, insecure=True)
    for site in range(2):
        here.start_node(site, f"partition-id={site} num-partitions=3")
    text = here.run(f"{JOB} ram.min_sites=2 ram.deadline_s=60", tmp_path / "out")
    assert "NEVER CONTRIBUTED" in text
    assert "sites 2" in text
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["never_contributed"] == [2]
    assert summary["contributions"] == [2, 2, 0]
    assert summary["marginals_estimated"] == [0.5, 0.5, 0.0]
    ledger = pd.read_csv(tmp_path / "out" / "ledger.csv")
    assert ledger["status"].tolist() == ["averaged", "averaged", "never_seen"] * 2


def test_a_site_that_stops_answering_is_late_and_the_others_go_on(federation, tmp_path):
    """Its processes are frozen after the first round: it stays connected for a while, but nothing comes from it."""
    here = federation(2, insecure=True)
    here.start_node(0, "partition-id=0 num-partitions=2")
    frozen = here.start_node(1, "partition-id=1 num-partitions=2")
    output, job = tmp_path / "out", JOB.replace("num_clients=3", "num_clients=2")
    run = threading.Thread(target=here.run, args=(f"{job} ram.deadline_s=30", output))
    run.start()
    try:
        here.wait_for(
            lambda: (output / "ledger.csv").exists() and "\n1,1," in (output / "ledger.csv").read_text(), "round 1", 120
        )
        os.killpg(frozen.pid, signal.SIGSTOP)
        run.join(240)
    finally:
        os.killpg(frozen.pid, signal.SIGCONT)
    assert not run.is_alive()
    ledger = pd.read_csv(output / "ledger.csv").set_index(["round", "site"])["status"].to_dict()
    assert ledger == {(1, 0): "averaged", (1, 1): "averaged", (2, 0): "averaged", (2, 1): "late"}
    assert json.loads((output / "summary.json").read_text())["late_replies"] == [0, 1]
