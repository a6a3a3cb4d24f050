"""What Ray's actors take: one thread each, and disk where the object store is too small for the clients' states."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict

from clients.base import write_settings
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.grids.actor import GROUP
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.grids.ray import RayGrid
from fedrage_flwr.parts import WorkspaceFactory, make_local_model, prepare_run
from fedrage_flwr.records import nbytes, to_record

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")
STORE = 80_000_000  # bytes; Ray takes no less than 75 MB
CLIENTS, BATCH = 100, 20
JOB = ("strategy=scaffold", "dataset=synthetic", "partition=natural", f"num_clients={CLIENTS}", "ram=uniform",
       "model.hidden=[6000]", "client.local_steps=1", "backend=ray", "backend.num_actors=1")  # fmt: skip


class Counting(WorkspaceFactory):
    """Leaves the number of torch threads, and of those OpenMP may have, in a file of each actor."""

    folder: str

    def __call__(self, device):
        workspace = super().__call__(device)
        (Path(self.folder) / str(os.getpid())).write_text(f"{torch.get_num_threads()} {os.environ['OMP_NUM_THREADS']}")
        return workspace


@pytest.fixture
def store(tmp_path):
    """Ray of two CPUs with a small object store; the folder it spills to."""
    ray = pytest.importorskip("ray")
    folder = tmp_path / "spilled"
    ray.init(
        num_cpus=2,
        object_store_memory=STORE,
        object_spilling_directory=str(folder),
        include_dashboard=False,
        log_to_driver=False,
    )
    yield folder
    ray.shutdown()


def ask(grid, config, prepared, clients, round):
    start = make_local_model(config, prepared.dataset, CPU).arrays()
    records = {
        name: to_record({k: np.full_like(a, round / 100) for k, a in start.items()}) for name in ("arrays", "control")
    }
    settings = {"seed": 0, "server-round": round, **write_settings(config.client)}
    content = RecordDict({**records, "config": ConfigRecord(settings)})
    nodes = list(grid.partitions)
    return list(grid.send_and_receive([Message(content, nodes[i], "train") for i in clients]))


def test_states_that_do_not_fit_are_spilled_and_come_back_to_the_bit(store):
    config = validate(compose_config(JOB))
    prepared = prepare_run(config)
    factory = WorkspaceFactory(config, prepared.dataset, prepared.partition)
    grid, inline = (make(config.backend, CLIENTS, factory, CPU) for make in (RayGrid, InlineGrid.create))
    for round in (1, 2):  # in the second round every state is read again, the spilled ones too
        for first in range(0, CLIENTS, BATCH):
            clients = range(first, first + BATCH)
            for one in (grid, inline):
                assert not any(reply.has_error() for reply in ask(one, config, prepared, clients, round))
    total = sum(nbytes(record) for state in inline.client_states().values() for record in state.values())
    assert total > 2 * STORE
    assert sum(path.stat().st_size for path in store.rglob("*") if path.is_file()) > 0
    references = list(dict.fromkeys(grid._states.values()))
    assert len(references) == CLIENTS / BATCH * -(-BATCH // GROUP)  # groups, and no object for each client
    wanted = inline.state_dict()
    import ray

    for reference in references:  # not all at once: they do not fit
        for client, state in ray.get(reference).items():
            for key, array in state["control"].items():
                np.testing.assert_array_equal(array.numpy(), wanted[str(client)]["control"][key])
    grid.close()


def test_an_actor_has_one_thread(store, tmp_path):
    config = validate(compose_config(["backend=ray", "backend.num_actors=2", "dataset=synthetic", "partition=natural"]))
    prepared = prepare_run(config)
    factory = Counting(config, prepared.dataset, prepared.partition)
    folder = tmp_path / "threads"
    folder.mkdir()
    object.__setattr__(factory, "folder", str(folder))
    grid = RayGrid(config.backend, config.num_clients, factory, CPU)
    fedavg = validate(compose_config(["strategy=fedavg"]))
    assert not any(reply.has_error() for reply in ask(grid, fedavg, prepared, [0, 1], 1))
    grid.close()
    assert [path.read_text() for path in folder.iterdir()] == ["1 1", "1 1"]
