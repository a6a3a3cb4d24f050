"""Traces: a small matrix and a small file of intervals, read and averaged by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrage_flwr.errors import UserError

MATRIX = np.array([[1, 0, 1, -1], [0, 0, -1, -1], [1, 1, 1, 0]], dtype=np.int8)


@pytest.fixture
def matrix_file(tmp_path: Path) -> str:
    np.savez(tmp_path / "trace.npz", other=np.zeros(3), available=MATRIX)
    return str(tmp_path / "trace.npz")


def trace(make_law: Any, path: str, num_clients: int = 4, **changes: Any) -> Any:
    settings = {"slot_s": None, "unknown": "off", "clients_per_round": None, "clients": "first"} | changes
    seed = settings.pop("seed", 0)
    return make_law("trace", num_clients, seed=seed, path=path, **settings)


def test_rows_are_replayed_and_wrap(make_law: Any, matrix_file: str) -> None:
    law = trace(make_law, matrix_file)
    assert [law.sample(r).tolist() for r in range(5)] == [[0, 2], [], [0, 1, 2], [0, 2], []]
    assert law.sample(1).dtype == np.int64


def test_averages_by_hand(make_law: Any, matrix_file: str) -> None:
    law = trace(make_law, matrix_file)
    np.testing.assert_allclose(law.inclusion().values, [2 / 3, 1 / 3, 2 / 3, 0], rtol=1e-15)
    np.testing.assert_allclose(law.marginals().values, [5 / 12, 1 / 6, 5 / 12, 0], rtol=1e-15)  # (½+⅓)/2, (0+⅓)/2
    assert not law.inclusion().exact
    assert not law.marginals().exact


def test_two_of_those_available(make_law: Any, matrix_file: str) -> None:
    """Row 2 has three clients, each drawn with probability ⅔; p is the same as without M."""
    law = trace(make_law, matrix_file, clients_per_round=2)
    np.testing.assert_allclose(law.inclusion().values, [5 / 9, 2 / 9, 5 / 9, 0], rtol=1e-15)
    np.testing.assert_allclose(law.marginals().values, [5 / 12, 1 / 6, 5 / 12, 0], rtol=1e-15)
    assert law.sample(0).tolist() == [0, 2]
    pairs = [tuple(law.sample(r).tolist()) for r in range(2, 18_002, 3)]
    for pair in ((0, 1), (0, 2), (1, 2)):  # 6000 draws; five standard deviations: error rate 3 · 6e-7
        assert abs(pairs.count(pair) - 2000) < 5 * np.sqrt(6000 * 2 / 9)


def test_unknown_may_count_as_on(make_law: Any, matrix_file: str) -> None:
    law = trace(make_law, matrix_file, unknown="on")
    assert [law.sample(r).tolist() for r in range(3)] == [[0, 2, 3], [2, 3], [0, 1, 2]]


def test_choice_of_clients(make_law: Any, matrix_file: str) -> None:
    """Times on: 2, 1, 2, 0; the two most available are 0 and 2, then 1."""
    assert trace(make_law, matrix_file, 2).sample(0).tolist() == [0]
    law = trace(make_law, matrix_file, 3, clients="most_available")
    assert [law.sample(r).tolist() for r in range(3)] == [[0, 1], [], [0, 1, 2]]


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.float64])
def test_npy_and_unnamed_npz(make_law: Any, tmp_path: Path, dtype: Any) -> None:
    matrix = (MATRIX == 1).astype(dtype)
    np.save(tmp_path / "a.npy", matrix)
    np.savez(tmp_path / "b.npz", matrix)
    for name in ("a.npy", "b.npz"):
        assert trace(make_law, str(tmp_path / name)).sample(2).tolist() == [0, 1, 2]


def test_intervals_by_hand(make_law: Any, tmp_path: Path) -> None:
    """Slots start at 100, 160, 220, 280. b: [100, 161) holds 100, 160; a: [130, 160) none, [160, 300) 160, 220, 280; c: 280."""
    path = tmp_path / "trace.csv"
    path.write_text("client,from,to\nb,100,161\na,130,160\na,160,300\nc,280,280.5\n", encoding="utf-8")
    law = trace(make_law, str(path), 3, slot_s=60.0)
    assert [law.sample(r).tolist() for r in range(5)] == [[0], [0, 1], [1], [1, 2], [0]]
    np.testing.assert_allclose(law.inclusion().values, [0.5, 0.75, 0.25], rtol=1e-15)


def _write(path: Path, content: Any) -> str:
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        np.save(path, content, allow_pickle=True)
    return str(path)


@pytest.mark.parametrize(
    ("name", "content", "changes", "message"),
    [
        ("t.txt", "", {}, "ram.path={path} must end in .npz, .npy or .csv"),
        ("t.npy", "no array", {}, "ram.path={path} cannot be read as .npy without pickle: "),
        ("t.npz", "no archive", {}, "ram.path={path} cannot be read as .npz without pickle: "),
        ("t.npy", np.array([[{}]]), {}, "ram.path={path} cannot be read as .npy without pickle: "),
        ("t.npy", np.ones(3), {}, "ram.path={path} holds an array of shape (3,), must be (rounds, clients)"),
        (
            "t.npy",
            np.full((2, 3), 2),
            {},
            "ram.path={path} holds other values than 1 (available), 0 (not) and -1 (unknown)",
        ),
        ("t.npy", np.full((2, 3), np.nan), {}, "ram.path={path} holds other values than 1 (available), 0 (not) and -1"),
        ("t.npy", np.zeros((2, 3)), {}, "ram.path={path} has no round in which one of the 3 clients is available"),
        ("t.npy", np.ones((2, 2)), {}, "num_clients=3 must be at most 2, the clients of ram.path={path}"),
        ("t.npy", np.ones((2, 3)), {"clients_per_round": 4}, "ram.clients_per_round=4 must be at most num_clients=3"),
        ("t.csv", "client,from,to\n", {}, "ram.slot_s=null must be the seconds per round when ram.path is a csv file"),
        ("t.csv", "client,from,to\n", {"slot_s": 1.0}, "ram.path={path} holds no interval"),
        (
            "t.csv",
            "who,from,to\n",
            {"slot_s": 1.0},
            "ram.path={path} has the columns ['who', 'from', 'to'], must have client",
        ),
        ("t.csv", "client,from,to\na,1,2\na,5,4\n", {"slot_s": 1.0}, "ram.path={path} line 3 must have two numbers"),
        ("t.csv", "client,from,to\na,1\n", {"slot_s": 1.0}, "ram.path={path} line 2 must have two numbers of seconds"),
        (
            "t.csv",
            "client,from,to\na,x,2\n",
            {"slot_s": 1.0},
            "ram.path={path} line 2 must have two numbers of seconds",
        ),
    ],
)
def test_refusals(make_law: Any, tmp_path: Path, name: str, content: Any, changes: Any, message: str) -> None:
    path = _write(tmp_path / name, content)
    with pytest.raises(UserError) as refusal:
        trace(make_law, path, 3, **changes)
    assert str(refusal.value).startswith(message.format(path=path))
    assert "\n" not in str(refusal.value)


def test_absent_file(make_law: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        trace(make_law, str(tmp_path / "none.npz"))
    assert str(refusal.value) == f"ram.path={tmp_path / 'none.npz'} is not a file"
