"""A run that was stopped and went on ends with the files of one that was not, to the bit."""

import json
import signal

import numpy as np
import pandas as pd
import pytest

from fedrage_flwr.checkpoint import files, read_newest
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import Interrupted, UserError
from fedrage_flwr.parts import prepare_run
from fedrage_flwr.run import run
from fedrage_flwr.same import differences
from fedrage_flwr.words import choices

JOB = ("num_clients=8", "rare_clients=2", "num_rounds=9", "eval_every=2", "checkpoint_every=3", "client.local_steps=2",
       "partition=iid")  # fmt: skip
LAWS = {
    **{word: [] for word in choices("ram") if word != "natural"},
    "trace": ["ram.path=trace.npy"],
    "weighted": ["ram.weights=[1,2,3,4,5,6,7,8]"],
    "subsets": ["ram.subsets=[[0,1,2],[3,4,5],[6,7]]", "ram.probabilities=[0.5,0.3,0.2]"],
}


@pytest.fixture
def stop_and_go(tmp_path, simulate):
    """Run a job to its end, and the same job with a stop in the round given; returns both folders."""

    def go(*overrides, stop):
        whole, _ = simulate(*JOB, *overrides)
        folder = tmp_path / "stopped"
        folder.mkdir()
        prepared = prepare_run(validate(compose_config([*JOB, *overrides])))
        draw = prepared.manager.law.sample

        def sample(round):
            if round == stop:
                signal.raise_signal(signal.SIGTERM)
            return draw(round)

        prepared.manager.law.sample = sample
        with pytest.raises(Interrupted, match=rf"SIGTERM: stopped after round {stop} of 9.*resume={folder}") as error:
            run(prepared, folder)
        assert error.value.code == 128 + signal.SIGTERM
        assert not (folder / "summary.json").exists()
        again = prepare_run(validate(compose_config([*JOB, *overrides])))
        run(again, folder, checkpoint=read_newest(folder / "checkpoint")[0])
        return whole, folder

    return go


@pytest.mark.parametrize("word", choices("strategy"))
def test_every_strategy(stop_and_go, word):
    assert differences(*stop_and_go(f"strategy={word}", stop=4)) == []


@pytest.mark.parametrize("word", LAWS)
def test_every_law(stop_and_go, word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("trace.npy", np.random.default_rng(0).integers(0, 2, (4, 8)))
    assert differences(*stop_and_go(f"ram={word}", *LAWS[word], stop=5)) == []


@pytest.mark.slow
def test_on_ray(stop_and_go):
    """Client state comes back from the checkpoint to whichever actor works for the client."""
    whole, stopped = stop_and_go("strategy=scaffold", "backend=ray", "backend.num_actors=2", stop=4)
    assert differences(whole, stopped) == []


@pytest.mark.parametrize("optimizer", ["momentum", "adam", "yogi"])
def test_the_servers_moments(stop_and_go, optimizer):
    assert differences(*stop_and_go(f"strategy.server_optimizer={optimizer}", "strategy=fedavg", stop=4)) == []


def test_rows_behind_the_checkpoint_are_cut_off(simulate, tmp_path):
    """What a kill leaves behind the last checkpoint is done again: every round stands once (O24 b)."""
    folder, _ = simulate(*JOB)
    kept = pd.read_csv(folder / "rounds.csv")
    for path in files(folder / "checkpoint")[1:]:  # the newest is round 9; back to round 6
        path.unlink()
    with (folder / "updates.csv").open("a") as file:
        file.write("7,3,0.5")  # and half a row
    checkpoint, _ = read_newest(folder / "checkpoint")
    assert checkpoint.round == 6
    run(prepare_run(validate(compose_config(JOB))), folder, checkpoint=checkpoint)
    rounds = pd.read_csv(folder / "rounds.csv")
    assert rounds["round"].tolist() == list(range(1, 10))
    pd.testing.assert_frame_equal(rounds.drop(columns="round_seconds"), kept.drop(columns="round_seconds"))
    assert pd.read_csv(folder / "updates.csv").groupby("round")["client"].nunique().tolist() == [3] * 9


def test_missing_rows_are_not_passed_over(simulate):
    folder, _ = simulate(*JOB)
    (folder / "clients.csv").write_text((folder / "clients.csv").read_text()[:200])
    with pytest.raises(UserError, match=r"clients.csv has 200 bytes where the checkpoint counts"):
        run(prepare_run(validate(compose_config(JOB))), folder, checkpoint=read_newest(folder / "checkpoint")[0])


def test_a_run_is_one_process_at_a_time(simulate, tmp_path):
    from fedrage_flwr.checkpoint import lock

    folder, _ = simulate(*JOB)
    held = lock(folder)
    with pytest.raises(UserError, match="another process is at work on this run"):
        run(prepare_run(validate(compose_config(JOB))), folder, checkpoint=read_newest(folder / "checkpoint")[0])
    held.release()


def test_o23_another_architecture_is_named(simulate):
    folder, _ = simulate(*JOB)
    other = prepare_run(validate(compose_config([*JOB, "model=softmax"])))
    with pytest.raises(UserError, match=r"another model than model=softmax: unexpected .*3\.weight"):
        run(other, folder, checkpoint=read_newest(folder / "checkpoint")[0])


def test_the_summary_counts_the_time_of_all_sittings(stop_and_go):
    _, stopped = stop_and_go(stop=4)
    summary = json.loads((stopped / "summary.json").read_text())
    assert summary["rounds_done"] == 9
    assert summary["wall_seconds"] > read_newest(stopped / "checkpoint")[0].seconds > 0
