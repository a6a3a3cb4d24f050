"""An existing Ray cluster of two nodes, really started here: ``ray start --head``, a second node, and then one of them goes."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict

from clients.base import write_settings
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.grids.ray import RayGrid
from fedrage_flwr.parts import WorkspaceFactory, make_local_model, prepare_run
from fedrage_flwr.records import to_arrays, to_record

pytestmark = pytest.mark.deployment
CPU = torch.device("cpu")
PATIENCE = 120  # seconds
JOB = ("strategy=scaffold", "backend=ray", "model.hidden=[600]")  # states under 100 kB would stay with this process


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(*options):
    ray = Path(sys.executable).with_name("ray")
    command = [str(ray), "start", "--block", "--num-cpus=1", "--node-ip-address=127.0.0.1", "--disable-usage-stats"]
    return subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(happened):
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture
def cluster(tmp_path_factory, monkeypatch):
    """The address of a head of one CPU, and a second node of one CPU; on ports of their own, stopped afterwards."""
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    address = f"127.0.0.1:{free_port()}"
    folder = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / f"ray{os.getpid()}"  # short: sockets have short names
    head = start("--head", f"--port={address.rpartition(':')[2]}", "--include-dashboard=false", f"--temp-dir={folder}")
    nodes = [head]
    try:
        wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))) == 0)
        nodes.append(start(f"--address={address}"))
        yield ray, address, nodes[1]
    finally:
        if ray.is_initialized():
            ray.shutdown()
        for node in reversed(nodes):
            node.terminate()
        for node in nodes:
            node.wait(PATIENCE)


def ask(grid, config, round):
    start = make_local_model(config, prepare_run(config).dataset, CPU).arrays()
    records = {
        name: to_record({k: np.full_like(a, round / 100) for k, a in start.items()}) for name in ("arrays", "control")
    }
    settings = {"seed": 0, "server-round": round, **write_settings(config.client)}
    content = RecordDict({**records, "config": ConfigRecord(settings)})
    return list(grid.send_and_receive([Message(content, node, "train") for node in list(grid.partitions)[:6]]))


def same(found, wanted):
    for name in ("arrays", "control"):
        for key, array in to_arrays(wanted.content[name]).items():
            np.testing.assert_array_equal(to_arrays(found.content[name])[key], array)


def test_clients_on_two_nodes_and_what_is_left_when_one_goes(cluster):
    """Two actors, one on each node: the bits of the inline grid. Then the second node dies with the states it held: its clients
    are reported once, start anew on the first node, and the others have lost nothing."""
    ray, address, second = cluster
    config = validate(compose_config([*JOB, f"backend.address='{address}'"]))
    prepared = prepare_run(config)
    factory = WorkspaceFactory(config, prepared.dataset, prepared.partition)
    ray.init(address=address, log_to_driver=False)
    wait_for(lambda: ray.cluster_resources().get("CPU", 0) == 2)
    grid = RayGrid(config.backend, config.num_clients, factory, CPU)
    inline = InlineGrid.create(None, config.num_clients, factory, CPU)
    assert grid._layout.actors == 2
    for found, wanted in zip(ask(grid, config, 1), ask(inline, config, 1), strict=True):
        same(found, wanted)
    held = {p: ray.experimental.get_object_locations([s]) for p, s in grid._states.items()}
    assert len({node for where in held.values() for place in where.values() for node in place["node_ids"]}) == 2
    second.terminate()
    second.wait(PATIENCE)
    wait_for(lambda: ray.cluster_resources().get("CPU", 0) == 1)
    replies = ask(grid, config, 2)
    lost = [i for i, reply in enumerate(replies) if reply.has_error()]
    assert lost in ([0, 2, 4], [1, 3, 5]), [reply.error.reason for reply in replies if reply.has_error()]
    wanted = ask(inline, config, 2)
    for i in set(range(6)) - set(lost):
        same(replies[i], wanted[i])
    assert not any(reply.has_error() for reply in ask(grid, config, 3))
    grid.close()
