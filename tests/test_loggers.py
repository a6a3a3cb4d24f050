"""Loggers: the same numbers as rounds.csv, without network; a missing package is one line before anything starts."""

import importlib.util
import math

import pandas as pd
import pytest

from fedrage_flwr import loggers
from fedrage_flwr.checkpoint import read_newest
from fedrage_flwr.command import main
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.loggers import LOGGERS, make_logger
from fedrage_flwr.parts import prepare_run
from fedrage_flwr.results import row_of
from fedrage_flwr.rounds import Outcome, Round
from fedrage_flwr.run import run
from fedrage_flwr.words import choices


def test_each_word_has_its_file():
    assert choices("logger") == sorted(LOGGERS)


@pytest.mark.parametrize("word", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_package_is_one_line_before_the_run(tmp_path, monkeypatch, capsys, word):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loggers, "find_spec", lambda name: None)
    assert main([f"logger={word}", "num_rounds=1"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"error: logger={word} needs the package {word}: pip install 'fedrage-flwr[{word}]'\n"
    assert list(tmp_path.iterdir()) == []


class Recorder(loggers.Logger):
    """Keeps what it is told."""

    def begin(self, first_round):
        self.told = [("begin", first_round)]

    def write(self, numbers, round):
        self.told.append((round, dict(numbers)))

    def end(self, finished):
        self.told.append(("end", finished))


def a_round(number, **evaluation):
    outcomes = [Outcome(0, "averaged"), Outcome(4, "late", "no reply in time")]
    return Round(number, None, {}, outcomes, [], {"train-loss": 0.5, "beta": math.nan}, 8, 16, 0.25, evaluation)


def test_numbers_are_those_of_the_row_and_the_rest_is_left_out(tmp_path):
    expected = {
        "train_loss": 0.5,
        "participants": 2,
        "rejected": 1,
        "bytes_up": 8,
        "bytes_down": 16,
        "round_seconds": 0.25,
    }
    with Recorder(None, tmp_path, {}) as logger:
        logger.after_round(a_round(7))
        logger.after_round(a_round(8, accuracy=0.75, rare_client_accuracy=None))
        logger.finish({"rounds_done": 8, "strategy": "fedavg", "polyak_accuracy": 0.5, "faa": None})
    assert logger.told == [
        ("begin", 7), (7, expected), (8, {**expected, "accuracy": 0.75}),
        (8, {"summary/rounds_done": 8.0, "summary/polyak_accuracy": 0.5}), ("end", True),
    ]  # fmt: skip
    assert row_of(a_round(7))["round"] == 7


def test_a_run_that_ends_badly_is_ended_as_failed_and_one_that_never_began_not_at_all(tmp_path):
    logger = Recorder(None, tmp_path, {})
    logger.after_round(a_round(1))
    with pytest.raises(ZeroDivisionError), logger:
        raise ZeroDivisionError
    assert logger.told[-1] == ("end", False)
    with Recorder(None, tmp_path, {}) as logger:
        logger.finish({"rounds_done": 3})
    assert not hasattr(logger, "told")


def test_settings_are_told_by_their_keys(tmp_path):
    config = validate(compose_config(["client.lr=0.125", "ram=uniform"]))
    told = make_logger(config, tmp_path).parameters
    assert (told["client.lr"], told["ram.name"], told["num_rounds"]) == (0.125, "uniform", 300)


def same_as_csv(folder, found, column="accuracy"):
    """Hold {round: value} to a column of rounds.csv; float32 in an event file."""
    table = pd.read_csv(folder / "rounds.csv").set_index("round")[column].dropna()
    assert found == pytest.approx(table.to_dict(), rel=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("tensorboard"), reason="needs pip install 'fedrage-flwr[tensorboard]'")
def test_tensorboard(simulate):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, summary = simulate("logger=tensorboard", "num_rounds=4", "eval_every=2")
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    for column in ("accuracy", "train_loss", "beta", "participants"):
        same_as_csv(folder, {event.step: event.value for event in events.Scalars(column)}, column)
    (last,) = events.Scalars("summary/polyak_accuracy")
    assert last.value == pytest.approx(summary["polyak_accuracy"])


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("tensorboard"), reason="needs pip install 'fedrage-flwr[tensorboard]'")
def test_tensorboard_shows_each_round_of_a_resumed_run_once(tmp_path):
    """Cut in round 6, behind the checkpoint of round 3: rounds 4 and 5 are written twice and shown once."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = validate(compose_config(["logger=tensorboard", "num_rounds=8", "eval_every=2", "checkpoint_every=3"]))
    prepared = prepare_run(config)
    draw = prepared.manager.law.sample
    prepared.manager.law.sample = lambda round: draw(round) if round < 6 else 1 // 0
    with pytest.raises(ZeroDivisionError):
        run(prepared, tmp_path)
    assert max(events_of(tmp_path, EventAccumulator, "train_loss")) == 5
    run(prepare_run(config), tmp_path, checkpoint=read_newest(tmp_path / "checkpoint")[0])
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    for column in ("accuracy", "train_loss", "beta", "participants"):
        same_as_csv(tmp_path, events_of(tmp_path, EventAccumulator, column), column)


def events_of(folder, reader, column):
    """{round: value} of an event folder, in which no round may come twice."""
    events = reader(str(folder / "tensorboard"))
    events.Reload()
    found = events.Scalars(column)
    values = {event.step: event.value for event in found}
    assert len(values) == len(found)
    return values


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("mlflow"), reason="needs pip install 'fedrage-flwr[mlflow]'")
def test_mlflow_in_a_local_database(simulate, tmp_path):
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path}/store/runs.db"
    folder, summary = simulate("logger=mlflow", f"logger.uri={uri}", "num_rounds=4", "eval_every=2")
    client = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("fedrage").experiment_id])
    assert run.info.run_id == (folder / "mlflow-run").read_text().strip()
    assert (run.info.status, run.info.run_name) == ("FINISHED", folder.name)
    assert run.data.params["client.alpha"] == "0.1"
    assert run.data.metrics["summary/polyak_accuracy"] == pytest.approx(summary["polyak_accuracy"])
    for column in ("accuracy", "train_loss"):
        same_as_csv(folder, {m.step: m.value for m in client.get_metric_history(run.info.run_id, column)}, column)


def log_records(data):
    """The records of a LevelDB log: a head of 7 bytes, then blocks of 32 KiB of (checksum, length, kind, bytes)."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("wandb"), reason="needs pip install 'fedrage-flwr[wandb]'")
def test_wandb_offline(simulate):
    import json

    import wandb
    from wandb.proto import wandb_internal_pb2

    folder, _ = simulate("logger=wandb", "num_rounds=4", "eval_every=2")
    wandb.teardown()  # waits for the process that writes, as the end of a command does
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    assert path.name == f"run-{(folder / 'wandb-run').read_text().strip()}.wandb"
    rows = []
    for data in log_records(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            rows.append({"".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item})
    same_as_csv(folder, {row["_step"]: row["accuracy"] for row in rows if "accuracy" in row})
