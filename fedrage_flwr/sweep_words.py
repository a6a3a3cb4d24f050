"""What was typed for a sweep: split into jobs the way Hydra splits it, and checked before the first job begins."""

from typing import Any

from hydra import initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from fedrage_flwr.config import compose_config
from fedrage_flwr.errors import UserError
from fedrage_flwr.words import check_choices, conf_dir, groups


def check_words(hydra: DictConfig) -> None:
    """Refuse a word or key that some job cannot be composed with: Hydra composes all before the first, and would begin none.

    Args:
        hydra: Hydra's own section of the sweep.

    Raises:
        UserError: the first of them, or there is no job.
    """
    if hydra.runtime.choices["hydra/sweeper"] != "basic":  # a tuner says later which of the values it takes
        for override in _parse(hydra):
            if override.is_discrete_sweep():
                check_choices([f"{override.get_key_element()}={word}" for word in override.sweep_string_iterator()])
        return
    jobs = split_words(hydra)
    if not jobs:
        raise UserError("there is no job in this sweep: one of its keys is given no value")
    first = {_kind(job): job for job in reversed(jobs)}
    for job in reversed(first.values()):
        compose_config(job)


def split_words(hydra: DictConfig) -> list[list[str]]:
    """Return the overrides of each job, those of Hydra's own settings included.

    Raises:
        UserError: a range of real numbers, which only a tuner can take.
    """
    try:
        (jobs,) = BasicSweeper.split_arguments(_parse(hydra), max_batch_size=None)
    except HydraException as error:
        raise UserError(f"{error}; give values with commas between them, or a tuner as hydra/sweeper") from error
    return [[*_plain(hydra, "overrides.hydra"), *job] for job in jobs]


def _parse(hydra: DictConfig) -> list[Override]:
    """What the sweeper is given: its own parameters, then what was typed."""
    params = _plain(hydra, "sweeper.params") or {}
    words = [*(f"{key}={value}" for key, value in params.items()), *_plain(hydra, "overrides.task")]
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):  # glob(…) asks for the words of a group
        parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
        return parser.parse_overrides(words)


def _plain(hydra: DictConfig, key: str) -> Any:
    """A value as it was written: ``${…}`` in it is for the jobs."""
    tree: Any = OmegaConf.to_container(hydra, resolve=False)
    for name in key.split("."):
        tree = tree.get(name)
    return tree


def _kind(job: list[str]) -> tuple[str, ...]:
    """What decides whether a job can be composed: the words of its groups, and the names of its keys."""
    known = groups()
    keys = [word.partition("=")[0] for word in job]
    return tuple(word if key.partition("/")[0] in known else key for key, word in zip(keys, job, strict=True))
