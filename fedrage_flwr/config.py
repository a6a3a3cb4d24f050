"""From words on the command line to typed, checked settings.

Hydra composes ``conf/``; every section is then checked against the settings dataclass of the piece it chooses. Each mistake
becomes one line (``UserError``) before anything starts.
"""

import difflib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from pydantic import ConfigDict, TypeAdapter, ValidationError

from clients import CLIENTS
from fedrage_flwr.availability import LAWS
from fedrage_flwr.data import DATASETS, PARTITIONS
from fedrage_flwr.errors import UserError
from fedrage_flwr.grids import GRIDS
from fedrage_flwr.loggers import LOGGERS
from fedrage_flwr.models import MODELS
from fedrage_flwr.settings import Ge, Gt, Interval, NameTable, lookup
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


STRICT = ConfigDict(strict=True, allow_inf_nan=False)
SECTIONS: Mapping[str, type[Any]] = {
    "engine": EngineSettings,
    "tuned": TunedSettings,
    "evaluate": EvaluateSettings,
    "privacy": PrivacySettings,
}


def conf_dir() -> Path:
    """Return the folder of the YAML files: inside the package when installed, beside it in a checkout."""
    here = Path(__file__).resolve().parent
    for folder in (here / "conf", here.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise UserError(f"the conf folder is missing beside {here}: install fedrage-flwr again")


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
            raise UserError(_explain(error, overrides, mode)) from error
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
        raise UserError(_one_line(error)) from error
    assert isinstance(values, dict)
    typed = {str(name): value for name, value in values.items()}
    for name, table in TABLES.items():
        typed[name] = build(_chosen(name, table, typed.get(name)), typed[name], name)
    for name, settings in SECTIONS.items():
        typed[name] = build(settings, typed.get(name), name)
    config: Config = build(Config, typed)
    return config


def build(settings: type[Any], values: Any, section: str = "") -> Any:
    """Make a settings dataclass of plain values, field by field and without conversions.

    Raises:
        UserError: an unknown or missing key, or a value that is not allowed.
    """
    prefix = f"{section}." if section else ""
    unknown = [key for key in values if key not in _names(settings)]
    if unknown:
        raise UserError(f"{prefix}{unknown[0]}: no such key{nearest(unknown[0], _names(settings))}")
    hints = typing.get_type_hints(settings, include_extras=True)
    checked = {}
    for name in _names(settings):
        if name not in values:
            raise UserError(f"{prefix}{name} is missing")
        checked[name] = _check(f"{prefix}{name}", hints[name], values[name])
    try:
        return settings(**checked)
    except ValueError as error:
        raise UserError(_one_line(error)) from error


def _check(path: str, hint: Any, value: Any) -> Any:
    if hint is Any or is_dataclass(hint):  # sections, checked already
        return value
    try:
        return TypeAdapter(hint, config=STRICT).validate_python(value)
    except ValidationError as error:
        raise UserError(f"{path}={_show(value)} is not allowed: must be {describe(hint)}") from error


def describe(hint: Any) -> str:
    """Say in words what a type annotation allows, e.g. ``a number in (0, 1]``."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return f"{describe(arguments[0])}{_interval(arguments[1:])}"
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments)) if len(arguments) > 1 else str(arguments[0])
    if origin in (types.UnionType, typing.Union):
        return " or ".join(describe(a) for a in arguments)
    if origin in (list, Sequence):
        return f"a list, each {describe(arguments[0])}"
    if origin is dict:
        return "names with values, {name: value, …}"
    words = {int: "an integer", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    return words.get(hint, str(hint))


def _interval(constraints: Iterable[Any]) -> str:
    lower, upper = ("(", "-∞"), ("∞", ")")
    for c in constraints:
        if (v := getattr(c, "gt", None)) is not None:
            lower = ("(", f"{v:g}" if abs(v) < 1e6 else str(v))
        if (v := getattr(c, "ge", None)) is not None:
            lower = ("[", f"{v:g}" if abs(v) < 1e6 else str(v))
        if (v := getattr(c, "lt", None)) is not None:
            upper = (f"{v:g}" if abs(v) < 1e6 else str(v), ")")
        if (v := getattr(c, "le", None)) is not None:
            upper = (f"{v:g}" if abs(v) < 1e6 else str(v), "]")
    return f" in {lower[0]}{lower[1]}, {upper[0]}{upper[1]}"


def _chosen(section: str, table: NameTable, values: Any) -> type[Any]:
    if not isinstance(values, dict):
        raise UserError(f"{section}={_show(values)} must be a section; its keys are typed as {section}.key=value")
    name = values.get("name")
    if name not in table:
        raise UserError(
            f"{section}.name={name!r}: must be one of {', '.join(sorted(table))}{nearest(str(name), table)}"
        )
    settings: type[Any] = lookup(table, str(name)).Settings
    return settings


def _names(settings: type[Any]) -> list[str]:
    return [field.name for field in fields(settings)]


def choices(group: str) -> list[str]:
    """Return the words that can be typed for a config group."""
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml") if not path.stem.startswith("_"))


def groups() -> set[str]:
    """Return the names of the config groups."""
    return {path.name for path in conf_dir().iterdir() if path.is_dir()}


def check_choices(overrides: Sequence[str]) -> None:
    """Raise ``UserError`` if a group is given a word that it has not."""
    known_groups = groups()
    for override in overrides:
        group, equals, word = override.partition("=")
        name = group.lstrip("+")
        if name in known_groups and word.startswith("["):
            raise UserError(f"{override}: one {name}, not a list; known: {', '.join(choices(name))}")
        if not equals or group not in known_groups or not word or "," in word or "(" in word or word == "~":
            continue
        known = choices(group)
        if word not in known and (group, word) != ("experiment", "null"):
            raise UserError(f"{override}: no such {group}{nearest(word, known)}; known: {', '.join(known)}")


def _explain(error: Exception, overrides: Sequence[str], mode: RunMode) -> str:
    """Turn one of Hydra's messages into a line that helps."""
    for override in overrides:
        try:
            parsed = OverridesParser.create().parse_override(override)
        except HydraException:
            key, equals, value = override.partition("=")
            hint = f"; quote values that hold = or , twice, as in '{key}=\"{value}\"'" if equals else ""
            return f"{override}: cannot be read{hint}"
        if parsed.is_sweep_override() and mode is RunMode.RUN:
            return (
                f"{override} names several values: add -m to run them all, write [..] for a list,"
                f" or quote twice for text with a comma, as in '{parsed.key_or_group}=\"…\"'"
            )
        if parsed.key_or_group and f"Could not override '{parsed.key_or_group}'" in str(error):
            return f"{override}: no such key{_where(parsed, mode)}"
    if isinstance(error, TypeError):  # Hydra takes a list for names
        return (
            f"{' '.join(override for override in overrides if '=[' in override)}: a list of something else than names"
        )
    return _one_line(error)


def _where(override: Override, mode: RunMode) -> str:
    """Say which words a key goes with, or which key was probably meant."""
    key, known = str(override.key_or_group), _known_keys()
    if key not in known:
        return nearest(key, known)
    quoted = f"{key}=choice({override.get_value_element_as_str()})"
    swept = f"; where those are swept over, type '{quoted}'" if mode is RunMode.MULTIRUN else ""
    return f" with these words; it goes with {', '.join(known[key])}{swept}"


def _known_keys() -> dict[str, list[str]]:
    """Return every key of a run, with the words that bring it along."""

    def walk(node: Any, prefix: str) -> Iterable[str]:
        for key, value in node.items():
            yield prefix + str(key)
            if isinstance(value, dict):
                yield from walk(value, f"{prefix}{key}.")

    keys: dict[str, list[str]] = {}
    for path in sorted(conf_dir().rglob("*.yaml")):
        if path.parent.name == "tuning":  # spaces to search, no settings of a run
            continue
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        group = (
            path.parent.name
            if path.parent != conf_dir() and path.parent.name not in ("strategy", "experiment", "tuned")
            else ""
        )
        if isinstance(content, dict):
            content.pop("defaults", None)
            content.pop("hydra", None)
            words = [f"{path.parent.name}={path.stem}"] if path.parent.name in TABLES else []
            for key in walk(content, f"{group}." if group else ""):
                keys.setdefault(key, []).extend(words)
    return keys


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known word was probably meant; nothing if none is near."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def _show(value: Any) -> str:
    return repr(value) if isinstance(value, str) else "null" if value is None else str(value)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _slug(text: str) -> str:
    """Make a folder name of overrides: no separators, no quoting, at most 120 characters."""
    kept = "".join(c if c.isalnum() or c in "=,.-_" else "_" for c in str(text))
    return kept[:120] or "run"
