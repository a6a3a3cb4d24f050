"""Every strategy gives the same bits on every grid, with and without cohorts: models, tables, participants, server memory, client
state. The reference is the inline grid that trains one client at a time.
"""

import numpy as np
import pytest
import torch

from fedrage_flwr.checkpoint import pack, read_newest
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.grids.ray import RayGrid
from fedrage_flwr.parts import WorkspaceFactory, prepare_run
from fedrage_flwr.run import run
from fedrage_flwr.same import differences
from fedrage_flwr.words import choices

CPU = torch.device("cpu")
JOB = (
    "num_clients=8",
    "rare_clients=2",
    "held_out_clients=1",
    "partition=iid",
    "client.local_steps=3",
    "ram.epsilon=0.5",
    "num_rounds=6",
)
REFERENCE = (0, "off")  # Ray actors (none: inline) and engine.cohort
CELLS = [(actors, cohort) for actors in (0, 1, 2) for cohort in ("off", "2") if (actors, cohort) != REFERENCE]
QUICK = [(2, "off")]


@pytest.fixture(scope="module")
def grids():
    """Makes a grid when it is first asked for; all strategies use it one after another: a grid knows nothing of the algorithm."""
    made = {}

    def grid(actors, cohort):
        if (actors, cohort) not in made:
            words = ["backend=ray", f"backend.num_actors={actors}", "backend.num_cpus=0.1"] if actors else []
            config = validate(compose_config([*JOB, *words, f"engine.cohort={cohort}"]))
            prepared = prepare_run(config)
            factory = WorkspaceFactory(config, prepared.dataset, prepared.partition)
            kind = RayGrid if actors else InlineGrid
            made[actors, cohort] = kind.create(config.backend, config.all_clients, factory, CPU)
        return made[actors, cohort]

    yield grid
    for one in reversed(made.values()):  # the first one started Ray
        one.close()


@pytest.fixture(scope="module")
def result_of(grids, tmp_path_factory):
    """Run the job of a strategy on a grid, once; returns its folder."""
    folders = {}

    def result(word, cell):
        if (word, cell) not in folders:
            folders[word, cell] = tmp_path_factory.mktemp("run")
            grid = grids(*cell)
            grid.restore_client_states({})
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("fedrage_flwr.run.make_grid", lambda *arguments: grid)
                patch.setattr(grid, "close", lambda: None)
                run(prepare_run(validate(compose_config([*JOB, f"strategy={word}"]))), folders[word, cell])
        return folders[word, cell]

    return result


def state(folder):
    """Everything a run remembers, split into plain values and arrays."""
    checkpoint, _ = read_newest(folder / "checkpoint")
    assert checkpoint.round == 6
    parts = dict(checkpoint.parts)
    parts.pop("totals")  # holds times; what it counts stands in the summary
    return pack({"arrays": checkpoint.arrays, **parts})


def agree(first, second):
    assert differences(first, second) == []
    (values, arrays), (other_values, other_arrays) = state(first), state(second)
    values.pop("tables"), other_values.pop("tables")  # bytes, with those of the seconds
    assert values == other_values
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(other_arrays[name], array, err_msg=name)


@pytest.mark.parametrize("word", choices("strategy"))
@pytest.mark.parametrize(
    "cell", [pytest.param(cell, marks=() if cell in QUICK else pytest.mark.slow) for cell in CELLS], ids=str
)
def test_same_bits_on_every_grid(result_of, cell, word):
    reference = result_of(word, REFERENCE)
    assert "averaged" in (reference / "participation.csv").read_text()
    agree(reference, result_of(word, cell))
