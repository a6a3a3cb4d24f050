"""What docs/deployment.md tells a person to type, typed: on 127.0.0.1 instead of three machines, and for a round or two.

Its first block is that of ``test_local.py``.
"""

import json
import re
import socket

import numpy as np
import pytest
from PIL import Image

from tests.deployment.federation import PATIENCE, REPOSITORY, free_port
from tests.test_docs import blocks, replaced

pytestmark = pytest.mark.deployment
PAGE = "docs/deployment.md"
SITES = 3


def test_the_simulation_runtime(processes, tmp_path):
    _, runtime, *_ = (text for _, text in blocks(PAGE))
    processes.call("bash", "-euc", replaced(
        runtime, ("num-supernodes=30", "num-supernodes=4"), ("/abs/results", f"{tmp_path}/results"),
        ("num_rounds=20", "num_rounds=2 num_clients=4 rare_clients=1 ram=uniform partition=iid"),
    ))  # fmt: skip
    assert (tmp_path / "results" / "summary.json").exists()


def test_from_nothing_to_three_sites(processes, tmp_path):
    _, _, superlink, connection, site, submit, resume = (text for _, text in blocks(PAGE))
    keys, register = re.findall(
        r"`((?:bash deploy/keys|flwr supernode register)[^`]*)`", (REPOSITORY / PAGE).read_text()
    )
    port = free_port()
    here = ("server.example.org:8000", f"127.0.0.1:{port}")
    processes.call("bash", "-euc", replaced(keys, ("deploy", f"{REPOSITORY}/deploy"), (" keys ", f" {tmp_path}/keys ")))
    server = replaced(superlink, ("0.0.0.0 --port 8000", f"127.0.0.1 --port {port}"))
    processes.start("superlink", "bash", "-euc", server)
    processes.wait_for(lambda: listening(port), "the SuperLink listens")
    (processes.home / "config.toml").write_text(replaced(connection, here, ("/abs/keys", f"{tmp_path}/keys")))
    for number in range(SITES):
        photos(tmp_path / f"photos{number}", number)
        processes.call("bash", "-euc", replaced(register, ("keys/", f"{tmp_path}/keys/"), ("site0", f"site{number}")))
        node = replaced(
            site, here, ("/data/photos", f"photos{number}"), ("/data/site.npz", f"{tmp_path}/{number}.npz"),
            ("--root-certificates ca.crt", f"--port {free_port()} --root-certificates keys/ca.crt"),
            ("key site0", f"key keys/site{number}"), ("partition-id=0", f"partition-id={number}"),
            ("/var/lib/fedrage", f"{tmp_path}/state{number}"),
        )  # fmt: skip
        processes.start(f"node{number}", "bash", "-euc", node)
    results = ("/abs/results", f"{tmp_path}/results")
    shorter = ("num_rounds=50", f"num_rounds=1 node_wait_s={60 * PATIENCE:g}")
    processes.call("bash", "-euc", replaced(submit, results, shorter))
    assert summary(tmp_path)["never_contributed"] == []
    processes.call("bash", "-euc", replaced(
        resume, ("resume=/abs/results", "resume=/abs/results num_rounds=2 resume_force=[num_rounds]"), results
    ))  # fmt: skip
    assert summary(tmp_path)["rounds_done"] == 2


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def photos(folder, seed):
    """A folder for each class, as the page's ``prepare`` wants it."""
    rng = np.random.default_rng(seed)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(10):
            Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(folder / name / f"{number}.png")


def summary(folder):
    return json.loads((folder / "results" / "summary.json").read_text())
