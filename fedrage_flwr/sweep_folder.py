"""The jobs in a folder, for ``-m resume=FOLDER``: of a sweep, those that began and those it was stopped before; of
``seeds=``, the replicas.

Hydra keeps what was typed in ``multirun.yaml``. A job that never began gets the folder and the ``.hydra/`` that Hydra would have
given it, and then goes on like any run that was stopped before its first checkpoint.
"""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf, open_dict

from fedrage_flwr.config import compose_config
from fedrage_flwr.errors import UserError
from fedrage_flwr.sweep_words import split_words

LAST_WRITTEN = Path(".hydra") / "overrides.yaml"  # of the files that Hydra writes when a job begins


def jobs_of(sweep: Path) -> list[Path]:
    """Return the folders of the jobs, in their order; those that had not begun are made.

    Raises:
        UserError: there are none, or one cannot be composed any more.
    """
    if alone := replicas(sweep):
        return alone
    begun = [path for path in (sweep.iterdir() if sweep.is_dir() else []) if (path / LAST_WRITTEN).is_file()]
    jobs = {OmegaConf.load(path / ".hydra" / "hydra.yaml").hydra.job.num: path for path in begun}
    for number, words in enumerate(cells(sweep)):
        if number not in jobs:
            jobs[number] = _lay_out(sweep, number, words)
    if not jobs:
        raise UserError(f"resume={sweep} with -m: there is no job of a sweep in this folder")
    return [job for number in sorted(jobs) for job in replicas(jobs[number]) or [jobs[number]]]


def replicas(folder: Path) -> list[Path]:
    """Return the folders that ``seeds=`` made in this one, by seed."""
    found = [path for path in folder.glob("seed=*") if (path / LAST_WRITTEN).is_file()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("seed=")))


def cells(sweep: Path) -> list[list[str]]:
    """Return the overrides of each job, those of Hydra's own settings included; none where nothing was kept."""
    if not (sweep / "multirun.yaml").is_file():
        return []
    return split_words(OmegaConf.load(sweep / "multirun.yaml").hydra)


def _lay_out(sweep: Path, number: int, words: Sequence[str]) -> Path:
    cfg = compose_config(words)
    with open_dict(cfg):
        cfg.hydra.job.num = number
        cfg.hydra.job.id = str(number)
    folder = sweep / str(cfg.hydra.sweep.subdir)
    (folder / ".hydra").mkdir(parents=True, exist_ok=True)
    own = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])
    for name, part in (("config", own), ("hydra", OmegaConf.masked_copy(cfg, "hydra"))):
        OmegaConf.save(part, folder / ".hydra" / f"{name}.yaml")
    OmegaConf.save(cfg.hydra.overrides.task, folder / LAST_WRITTEN)
    return folder
