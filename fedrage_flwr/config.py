"""From words on the command line to typed, checked settings.

Hydra composes ``conf/``; every section is then checked against the settings dataclass of the piece it chooses. Each mistake
becomes one line (``UserError``) before anything starts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from clients import CLIENTS
from fedrage_flwr.availability import LAWS
from fedrage_flwr.data import DATASETS, PARTITIONS
from fedrage_flwr.errors import UserError, one_line
from fedrage_flwr.grids import GRIDS
from fedrage_flwr.loggers import LOGGERS
from fedrage_flwr.models import MODELS
from fedrage_flwr.schema import build, show
from fedrage_flwr.settings import Ge, Gt, Interval, NameTable, lookup
from fedrage_flwr.words import check_choices, conf_dir, explain, nearest
from strategies import STRATEGIES

TABLES: Mapping[str, NameTable] = {
    "strategy": STRATEGIES,
    "client": CLIENTS,
    "ram": LAWS,
    "dataset": DATASETS,
    "partition": PARTITIONS,
    "model": MODELS,
    "backend": GRIDS,
    "logger": LOGGERS,
}


@dataclass(frozen=True)
class EngineSettings:
    """How the arithmetic is done."""

    cohort: Literal["auto", "off"] | Annotated[int, Ge(1)]
    threads: Annotated[int, Ge(1)]
    compile: bool


@dataclass(frozen=True)
class EvaluateSettings:
    """What is measured."""

    split: Literal["test", "validation"]
    max_clients: Annotated[int, Ge(1)]
    faa: bool
    faa_by: Literal["client", "group"]
    faa_steps: Annotated[int, Ge(1)]
    faa_batch_size: Annotated[int, Ge(1)]
    faa_lrs: list[Annotated[float, Gt(0)]]
    cache: str
    metrics: list[str]

    def __post_init__(self) -> None:
        if not self.faa_lrs:
            raise ValueError("evaluate.faa_lrs=[]: give at least one step size")


@dataclass(frozen=True)
class PrivacySettings:
    """Differential privacy of clients (``strategies.private``)."""

    clip: Annotated[float, Gt(0)] | None
    clip_others: Annotated[float, Gt(0)]
    noise_multiplier: Annotated[float, Ge(0)]
    delta: Annotated[float, Interval(gt=0, lt=1)]

    def __post_init__(self) -> None:
        if self.noise_multiplier and self.clip is None:
            raise ValueError(
                f"privacy.noise_multiplier={self.noise_multiplier:g} needs privacy.clip, the bound it multiplies"
            )


@dataclass(frozen=True)
class TunedSettings:
    """Whether an experiment wants tuned settings, and where they come from."""

    wanted: bool
    note: str | None


@dataclass(frozen=True)
class Config:
    """Everything a run is made of; ``conf/config.yaml`` says what each key means."""

    seed: Annotated[int, Interval(ge=0, lt=2**63)]
    seeds: list[Annotated[int, Interval(ge=0, lt=2**63)]] | None
    num_clients: Annotated[int, Ge(1)]
    num_rounds: Annotated[int, Ge(1)]
    rare_clients: Annotated[int, Ge(0)]
    held_out_clients: Annotated[int, Ge(0)]
    eval_every: Annotated[int, Ge(1)]
    max_empty_rounds: Annotated[int, Ge(1)]
    max_loss: Annotated[float, Gt(0)]
    checkpoint_every: Annotated[int, Ge(1)]
    device: Literal["auto", "cpu", "cuda"]
    node_wait_s: Annotated[float, Gt(0)]
    deadline_s: Annotated[float, Gt(0)] | None
    resume: str | None
    resume_force: list[str]
    engine: EngineSettings
    tuned: TunedSettings
    evaluate: EvaluateSettings
    privacy: PrivacySettings
    strategy: Any
    client: Any
    ram: Any
    dataset: Any
    partition: Any
    model: Any
    backend: Any
    logger: Any

    @property
    def all_clients(self) -> int:
        """The N training clients and those held out, whose ids come after them."""
        return self.num_clients + self.held_out_clients

    def __post_init__(self) -> None:
        if self.resume is not None:  # the command line's door takes it out of what is typed
            raise ValueError(f"resume={self.resume}: only python -m fedrage_flwr resume=FOLDER can go on with a run")
        if self.seeds is not None and (not self.seeds or len(set(self.seeds)) < len(self.seeds)):
            raise ValueError(f"seeds={self.seeds} must be different seeds, at least one")
        if self.seeds is not None and self.backend.name != "inline":
            raise ValueError(
                f"seeds={self.seeds}: replicas share this process, so backend=inline; for backend={self.backend.name} sweep"
                " over seed instead: -m seed=0,1,2"
            )
        if self.rare_clients > self.num_clients:
            raise ValueError(f"rare_clients={self.rare_clients} must be at most num_clients={self.num_clients}")
        if self.held_out_clients and self.partition.name == "rare_classes":
            raise ValueError(
                f"held_out_clients={self.held_out_clients}: partition=rare_classes would give the held-out clients the rare"
                " classes; choose another partition, or held_out_clients=0"
            )


SECTIONS: Mapping[str, type[Any]] = {
    "engine": EngineSettings,
    "tuned": TunedSettings,
    "evaluate": EvaluateSettings,
    "privacy": PrivacySettings,
}


def write_config(cfg: DictConfig, overrides: Sequence[str], folder: Path) -> None:
    """Write what Hydra writes beside a run, the settings as composed and as typed, into ``folder/.hydra``."""
    hydra = folder / ".hydra"
    hydra.mkdir()
    own = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])
    OmegaConf.save(own, hydra / "config.yaml")
    OmegaConf.save(OmegaConf.create(list(overrides)), hydra / "overrides.yaml")


def compose_config(overrides: Sequence[str], mode: RunMode = RunMode.RUN) -> DictConfig:
    """Compose the configuration, Hydra's own section included.

    Args:
        overrides: as typed.
        mode: for a sweep, what Hydra composes before its jobs: values to sweep over are left out.

    Raises:
        UserError: an override that does not fit; one line, with the nearest name.
    """
    register_resolvers()
    check_choices(overrides)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        try:
            cfg: DictConfig = hydra.compose_config("config", list(overrides), mode, with_log_configuration=False)
        except (
            HydraException,
            OmegaConfBaseException,
            ValueError,
            TypeError,
        ) as error:  # Hydra raises bare ones as well
            raise UserError(explain(error, overrides, mode)) from error
        return cfg


def register_resolvers() -> None:
    """Resolvers that conf/config.yaml uses."""
    OmegaConf.register_new_resolver("slug", _slug, replace=True)


def validate(cfg: DictConfig) -> Config:
    """Check a composed configuration.

    Raises:
        UserError: the first thing that is not allowed.
    """
    try:
        values = OmegaConf.to_container(
            OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"]), resolve=True, throw_on_missing=True
        )
    except MissingMandatoryValue as error:
        raise UserError(f"{error.full_key} has no default and must be given: {error.full_key}=…") from error
    except OmegaConfBaseException as error:
        raise UserError(one_line(error)) from error
    assert isinstance(values, dict)
    typed = {str(name): value for name, value in values.items()}
    for name, table in TABLES.items():
        typed[name] = build(_chosen(name, table, typed.get(name)), typed[name], name)
    for name, settings in SECTIONS.items():
        typed[name] = build(settings, typed.get(name), name)
    config: Config = build(Config, typed)
    return config


def _chosen(section: str, table: NameTable, values: Any) -> type[Any]:
    if not isinstance(values, dict):
        raise UserError(f"{section}={show(values)} must be a section; its keys are typed as {section}.key=value")
    name = values.get("name")
    if not isinstance(name, str) or name not in table:
        raise UserError(
            f"{section}.name={name!r}: must be one of {', '.join(sorted(table))}{nearest(str(name), table)}"
        )
    settings: type[Any] = lookup(table, str(name)).Settings
    return settings


def _slug(text: str) -> str:
    """Make a folder name of overrides: no separators, no quoting, at most 120 characters."""
    kept = "".join(c if c.isalnum() or c in "=,.-_" else "_" for c in str(text))
    return kept[:120] or "run"
