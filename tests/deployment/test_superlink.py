"""SuperLink and SuperNodes on shares of a public data set: the command line with another grid, over TLS with a key each."""

import pytest

pytestmark = pytest.mark.deployment
JOB = "strategy=scaffold num_rounds=2 num_clients=3 rare_clients=1 ram=full partition=iid"
BITS = ("model.safetensors", "polyak.safetensors", "participation.csv", "clients.csv", "updates.csv")


def test_the_same_bits_as_the_inline_grid(federation, tmp_path, simulate):
    here = federation(3)
    for site in range(3):
        here.register(site)
        here.start_node(site, f'partition-id={site} num-partitions=3 state-dir="{tmp_path / f"state{site}"}"')
    text = here.run(JOB, tmp_path / "out")
    assert (tmp_path / "out" / "summary.json").exists(), text
    expected, _ = simulate(*JOB.split())
    for name in BITS:
        assert (tmp_path / "out" / name).read_bytes() == (expected / name).read_bytes(), name
    for site in range(3):  # c_i of both rounds, on the node's own disk
        assert sorted(path.name for path in (tmp_path / f"state{site}").rglob("*.npz")) == [
            "0000001.npz",
            "0000002.npz",
        ]
