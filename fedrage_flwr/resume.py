"""``resume=FOLDER``: go on with a stopped run, or with ``-m`` with every job of a sweep.

The configuration is the one in the checkpoint. What is typed beside ``resume=`` is compared with it, and a difference refused
unless ``resume_force=[key,…]`` names it. The files Hydra wrote stay as they are; ``.hydra/resumes.log`` gets a line.

A run goes on where it began: one of Flower's nodes under ``flwr run``, any other on the command line.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import configure_log
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict

from fedrage_flwr.checkpoint import FOLDER, Checkpoint, files, read_newest
from fedrage_flwr.config import TABLES, Config, compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.parts import prepare_run
from fedrage_flwr.results import TABLES as CSV_FILES
from fedrage_flwr.run import run
from fedrage_flwr.words import choices, nearest

FIXED = ("strategy", "strategy.name", "client.name", "num_clients", "held_out_clients")
"""What the state in a checkpoint is made for."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """What was typed: the folder, the keys that may differ, and the other overrides."""

    folder: Path
    force: tuple[str, ...]
    overrides: tuple[str, ...]


def read_request(overrides: Sequence[str]) -> Request | None:
    """Take ``resume=`` and ``resume_force=`` out of the overrides; None where no folder is given.

    Raises:
        UserError: one of them cannot be read.
    """
    typed = {key: value for key, equals, value in (o.partition("=") for o in overrides) if equals}
    folder = typed.get("resume", "null").strip("'\"")
    if folder in ("null", ""):
        if "resume_force" in typed:
            raise UserError(f"resume_force={typed['resume_force']} goes with resume=FOLDER only")
        return None
    force = _parse(f"resume_force={typed.get('resume_force', '[]')}").value()
    if not isinstance(force, list):
        raise UserError(f"resume_force={force} must be a list: resume_force=[{force}]")
    others = tuple(o for o in overrides if o.partition("=")[0] not in ("resume", "resume_force"))
    return Request(Path(folder), tuple(map(str, force)), others)


def resume(request: Request, folder: Path, tell: Callable[[str], None], remote: Grid | None = None) -> dict[str, Any]:
    """Go on with one run; return its summary, the old one if it was finished.

    Args:
        request: what was typed.
        folder: of the run.
        tell: shows a line to the person at the prompt.
        remote: Flower's grid, for a run of Flower's nodes; it logs by itself.

    Raises:
        UserError: nothing to go on with, or something differs.
    """
    if not folder.is_dir():
        raise UserError(f"resume={folder}: there is no such folder")
    if remote is None:
        _log_into(folder)
    checkpoint, problems = read_newest(folder / FOLDER) if files(folder / FOLDER) else (None, {})
    stored = checkpoint.config if checkpoint else _first_config(folder)
    values, changed = merge(stored, request)
    summary = folder / "summary.json"
    if summary.exists() and not changed:
        finished: dict[str, Any] = json.loads(summary.read_text(encoding="utf-8"))
        tell(f"{folder} is finished: {finished['rounds_done']} of {finished['num_rounds']} rounds")
        return finished
    config = validate(OmegaConf.create(values))
    _check(config, checkpoint, folder, remote is not None)
    for problem in problems.values():
        tell(f"warning: {problem}; going back to round {checkpoint.round if checkpoint else 0}")
        log.warning("%s", problem)
    _note(folder, checkpoint, request)
    prepared = prepare_run(config, remote is not None)
    summary.unlink(missing_ok=True)
    where = f"going on after round {checkpoint.round}" if checkpoint else "it had done no round; beginning the first"
    tell(f"{folder}: {where} of {config.num_rounds}")
    return run(prepared, folder, remote, checkpoint)


def merge(stored: Mapping[str, Any], request: Request) -> tuple[dict[str, Any], list[str]]:
    """Return the stored values with the forced differences, and the keys that differ.

    Raises:
        UserError: an override that differs and is not forced, cannot be changed, or is none.
    """
    values = OmegaConf.create(dict(stored))
    changed: list[str] = []
    differences = [difference for text in request.overrides if (difference := _difference(values, text))]
    for key, typed, kept in differences:
        if key in FIXED:
            raise UserError(f"{key}={typed}: the run has {kept}, and its state fits nothing else; start a new run")
        if key not in request.force:
            raise UserError(
                f"{key}={typed}: the run has {kept}; leave it out to go on as before, or add resume_force=[{key}]"
            )
        if key in TABLES:
            values[key] = compose_config([f"{key}={typed}"])[key]
        else:
            OmegaConf.update(values, key, typed)
        changed.append(key)
    idle = [key for key in request.force if key not in {_parse(text).key_or_group for text in request.overrides}]
    if idle:
        raise UserError(f"resume_force=[{','.join(idle)}]: type the new value as well, as in {idle[0]}=…")
    plain = OmegaConf.to_container(values, resolve=False)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}, changed


def _difference(values: DictConfig, text: str) -> tuple[str, Any, Any] | None:
    """Key, value typed and value stored, where they differ."""
    parsed = _parse(text)
    key = parsed.key_or_group
    if (
        parsed.is_sweep_override()
        or parsed.is_add()
        or parsed.is_delete()
        or key.partition(".")[0] in ("experiment", "hydra")
    ):
        raise UserError(f"{text} cannot be typed beside resume=: only key=value of the run's own settings can")
    typed = parsed.value()
    if key in TABLES:
        if typed not in choices(key):
            raise UserError(f"{text}: no such {key}; known: {', '.join(choices(key))}")
        kept = values[key].name
    else:
        missing = object()
        kept = OmegaConf.select(values, key, default=missing)
        if kept is missing or isinstance(kept, DictConfig):
            raise UserError(f"{text}: no such key{nearest(key, _keys(values))}")
        kept = OmegaConf.to_container(kept) if OmegaConf.is_config(kept) else kept
    return None if typed == kept and isinstance(typed, bool) == isinstance(kept, bool) else (key, typed, kept)


def _keys(values: DictConfig, prefix: str = "") -> list[str]:
    keys = []
    for key, value in values.items():
        path = prefix + str(key)
        keys += [path, *(_keys(value, f"{path}.") if isinstance(value, DictConfig) else [])]
    return keys


def _parse(text: str) -> Override:
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise UserError(f"{text}: cannot be read; quote values that hold = or , twice") from error


def _check(config: Config, checkpoint: Checkpoint | None, folder: Path, remote: bool) -> None:
    if checkpoint is None:
        return
    if checkpoint.round > config.num_rounds:
        raise UserError(f"num_rounds={config.num_rounds}: {folder} has done {checkpoint.round} rounds already")
    if remote and "clients" in checkpoint.parts:
        raise UserError(f"{folder} was begun on the command line: go on with python -m fedrage_flwr resume={folder}")
    if not remote and "clients" not in checkpoint.parts:
        raise UserError(
            f"{folder}: the clients of this run are Flower's nodes: go on with"
            f" flwr run . --run-config 'overrides=\"resume={folder}\"'"
        )


def _first_config(folder: Path) -> dict[str, Any]:
    """The settings of a run that was stopped before its first checkpoint: it begins anew.

    Raises:
        UserError: the folder is none of a run, or holds rounds.
    """
    overrides = folder / ".hydra" / "overrides.yaml"
    if not overrides.is_file():
        raise UserError(f"resume={folder}: no run began in this folder")
    for name in (*CSV_FILES, "ledger"):
        table = folder / f"{name}.csv"
        if table.exists():
            if len(table.read_text(encoding="utf-8").splitlines()) > 1:
                raise UserError(f"resume={folder}: {table.name} has rows, and there is no checkpoint to go with them")
            table.unlink()
    cfg = compose_config([str(word) for word in OmegaConf.load(overrides)])
    plain = OmegaConf.to_container(
        OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"]), resolve=True
    )
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _log_into(folder: Path) -> None:
    """Log as Hydra would, to the same file.

    Raises:
        OSError: it cannot be written.
    """
    (folder / "run.log").open("a", encoding="utf-8").close()  # Hydra would wrap the error
    hydra = compose_config([]).hydra
    with open_dict(hydra):
        hydra.runtime.output_dir = str(folder.resolve())
    configure_log(hydra.job_logging, hydra.verbose)


def _note(folder: Path, checkpoint: Checkpoint | None, request: Request) -> None:
    (folder / ".hydra").mkdir(exist_ok=True)
    words = [*request.overrides, *([f"resume_force=[{','.join(request.force)}]"] if request.force else [])]
    with (folder / ".hydra" / "resumes.log").open("a", encoding="utf-8") as file:
        done = checkpoint.round if checkpoint else 0
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        file.write(" ".join([now, f"after round {done}", *words]) + "\n")
