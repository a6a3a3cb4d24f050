"""``logger=csv|tensorboard|mlflow|wandb``: where numbers go besides the CSV files, which are always written.

Each round's numbers have the names of the columns of rounds.csv. What a logger needs is an optional package, looked for before a
run starts and imported in its first round.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from uuid import uuid4

from fedrage_flwr.errors import UserError
from fedrage_flwr.results import row_of
from fedrage_flwr.rounds import Round
from fedrage_flwr.settings import NameTable, lookup

if TYPE_CHECKING:
    from fedrage_flwr.config import Config

LOGGERS: NameTable = {
    "csv": "fedrage_flwr.loggers:Logger",
    "tensorboard": "fedrage_flwr.loggers:TensorBoard",
    "mlflow": "fedrage_flwr.loggers:Mlflow",
    "wandb": "fedrage_flwr.loggers:Wandb",
}
BATCH = 500  # numbers that MLflow is handed at once


@dataclass(frozen=True)
class CsvSettings:
    """The CSV files have nothing to set."""

    name: Literal["csv"]


class Logger:
    """Nothing besides the CSV files; the others override ``begin``, ``write`` and ``end``.

    Args:
        settings: values of the ``logger`` section.
        folder: of the run.
        parameters: every setting of the run by its key, as it is typed.
    """

    Settings: ClassVar[type[Any]] = CsvSettings
    package: ClassVar[str] = ""
    """Must be there; empty where none is needed."""

    def __init__(self, settings: Any, folder: Path, parameters: Mapping[str, Any]) -> None:
        self.settings, self.folder, self.parameters = settings, folder, parameters
        self._begun = False

    @classmethod
    def require(cls) -> None:
        """Raise ``UserError`` if the package is not installed."""
        if cls.package and find_spec(cls.package) is None:
            word = cls.__name__.lower()
            raise UserError(f"logger={word} needs the package {cls.package}: pip install 'fedrage-flwr[{word}]'")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._begun:
            self.end(finished=error is None)

    def after_round(self, round: Round) -> None:
        """Write the numbers of a round."""
        if not self._begun:
            self.begin(round.number)
            self._begun = True
        self.write(_finite(row_of(round)), round.number)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the numbers of the summary as ``summary/…``; nothing where no round was left to do."""
        if self._begun:
            self.write({f"summary/{name}": value for name, value in _finite(summary).items()}, summary["rounds_done"])

    def begin(self, first_round: int) -> None:
        """Open, before the first round of this process: round 1, or the one after the checkpoint a run goes on from."""

    def write(self, numbers: Mapping[str, float], round: int) -> None:
        """Write named numbers of a round."""

    def end(self, finished: bool) -> None:
        """Close; ``finished`` is false after an error or a signal."""


@dataclass(frozen=True)
class TensorBoardSettings:
    """TensorBoard has nothing to set."""

    name: Literal["tensorboard"]


class TensorBoard(Logger):
    """Event files in ``tensorboard/`` of the run's folder."""

    Settings = TensorBoardSettings
    package = "tensorboard"

    def begin(self, first_round: int) -> None:
        """A resumed run hides what it wrote after its checkpoint."""
        from torch.utils.tensorboard import SummaryWriter

        purge = first_round if first_round > 1 else None
        self._writer = SummaryWriter(self.folder / "tensorboard", purge_step=purge)
        text = "\n".join(f"    {name}: {value}" for name, value in self.parameters.items())
        self._writer.add_text("settings", text, first_round)

    def write(self, numbers: Mapping[str, float], round: int) -> None:
        """One scalar for each."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round)

    def end(self, finished: bool) -> None:
        """Flush."""
        self._writer.close()


@dataclass(frozen=True)
class MlflowSettings:
    """See ``conf/logger/mlflow.yaml``."""

    name: Literal["mlflow"]
    uri: str
    experiment: str


class Mlflow(Logger):
    """A run of an MLflow experiment; its id is kept in ``mlflow-run``, so that a resumed run goes on with it."""

    Settings = MlflowSettings
    package = "mlflow"

    def begin(self, first_round: int) -> None:
        """Make the run, or find it again."""
        from mlflow import MlflowClient
        from mlflow.entities import Param

        local = self.settings.uri.removeprefix("sqlite:///")
        if local != self.settings.uri:
            Path(local).parent.mkdir(parents=True, exist_ok=True)
        self._client = MlflowClient(self.settings.uri)
        known = self.folder / "mlflow-run"
        if known.exists():
            self._run = known.read_text(encoding="ascii").strip()
            self._client.update_run(self._run, status="RUNNING")
        else:
            found = self._client.get_experiment_by_name(self.settings.experiment)
            experiment = found.experiment_id if found else self._client.create_experiment(self.settings.experiment)
            self._run = self._client.create_run(experiment, run_name=self.folder.name).info.run_id
            known.write_text(f"{self._run}\n", encoding="ascii")
            self._client.log_batch(self._run, params=[Param(k, str(v)) for k, v in self.parameters.items()])
        self._waiting: list[Any] = []

    def write(self, numbers: Mapping[str, float], round: int) -> None:
        """Collect, and hand over when there is a batch."""
        import time

        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._waiting += [Metric(name, value, now, round) for name, value in numbers.items()]
        if len(self._waiting) >= BATCH:
            self._hand_over()

    def _hand_over(self) -> None:
        for start in range(0, len(self._waiting), BATCH):
            self._client.log_batch(self._run, metrics=self._waiting[start : start + BATCH])
        self._waiting.clear()

    def end(self, finished: bool) -> None:
        """Hand over the rest and say how it ended."""
        self._hand_over()
        self._client.set_terminated(self._run, "FINISHED" if finished else "FAILED")


@dataclass(frozen=True)
class WandbSettings:
    """See ``conf/logger/wandb.yaml``."""

    name: Literal["wandb"]
    project: str
    entity: str | None
    mode: Literal["offline", "online"]


class Wandb(Logger):
    """A run of Weights & Biases, below ``wandb/`` of the run's folder; its id is kept in ``wandb-run``."""

    Settings = WandbSettings
    package = "wandb"

    def begin(self, first_round: int) -> None:
        """Start the run, or go on with it."""
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        known = self.folder / "wandb-run"
        if not known.exists():
            known.write_text(f"{uuid4().hex[:16]}\n", encoding="ascii")
        online = self.settings.mode == "online"
        self._run = wandb.init(
            project=self.settings.project, entity=self.settings.entity, mode=self.settings.mode, dir=self.folder,
            name=self.folder.name, id=known.read_text(encoding="ascii").strip(), resume="allow" if online else None,
            config=dict(self.parameters), settings=wandb.Settings(console="off"),
        )  # fmt: skip

    def write(self, numbers: Mapping[str, float], round: int) -> None:
        """Hand the numbers over; they are sent, or written, beside the run."""
        self._run.log(dict(numbers), step=round)

    def end(self, finished: bool) -> None:
        """Finish the run."""
        self._run.finish(exit_code=0 if finished else 1)


def make_logger(config: "Config", folder: Path) -> Logger:
    """Return the logger that ``logger`` names; it opens nothing before the first round ends."""
    chosen: type[Logger] = lookup(LOGGERS, config.logger.name)
    return chosen(config.logger, folder, _flat(asdict(config)))


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among some values."""
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and name != "round" and math.isfinite(value)
    }
