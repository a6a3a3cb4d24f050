"""What ``python -m fedrage_flwr --help`` prints. What each word means stands on top of its file in ``conf/``."""

import re
import textwrap
from pathlib import Path

from omegaconf import OmegaConf

from fedrage_flwr.words import choices, conf_dir

WIDTH = 110  # characters

GROUPS = {
    "strategy": "the algorithm, server and client half",
    "ram": "the Random Access Model: who reaches the server",
    "dataset": "the data",
    "partition": "who holds which examples",
    "model": "what is trained",
    "backend": "where clients run",
    "logger": "where numbers go",
    "experiment": "settings of a paper's table or figure",
}

EXAMPLES = (
    ("python -m fedrage_flwr", "one run of the defaults: no download, seconds"),
    ("python -m fedrage_flwr strategy=scaffold ram=uniform num_rounds=50", "another method, another law"),
    ("python -m fedrage_flwr.info strategy=focus num_clients=100", "what would run, bytes, time: runs nothing"),
    ("python -m fedrage_flwr -m strategy=fedavg,federage 'seed=range(2)' num_rounds=30", "a sweep: four runs"),
    (
        "python -m fedrage_flwr client.gamma=0.9 client.alpha=0.05 hydra.run.dir=out",
        "keys of a group, a folder of one's own",
    ),
)

FURTHER = (
    ("info WORD …", "what would run: settings, data, devices, bytes, time"),
    ("explain FOLDER", "one run: who took part, who was weighed up, who was never seen"),
    ("compare A B …", "runs or sweeps: what differs in settings and in results"),
    ("report FOLDER …", "tables with their tests, figures, one HTML page"),
    ("prepare KIND SOURCE FILE", "one file for dataset=file, of a folder of images, a table or texts"),
    ("new strategy NAME", "an algorithm of your own: its files, which work and wait to be changed"),
    ("tune WORD …", "choose a method's settings for a cell of a paper's table"),
    ("experiment NAME", "the runs of a paper's table or figure, each once"),
)

FLAGS = (
    ("-m", "run every combination of values given with commas"),
    ("--cfg job", "every key with its value, without running"),
    ("--hydra-help", "Hydra's own help; --info is Hydra's too"),
)


def describe_file(path: Path) -> str:
    """Return the first sentence among the leading comment lines that are no directive and no command; empty if there is none."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("# ")
        if not text.startswith(("@package", "python -m", "flwr run")):
            return re.split(r"\.(?:\s+(?!\d)|$)", text)[0]  # not at "Fig. 1"
    return ""


def help_page() -> str:
    """Return the page."""
    defaults = _defaults()
    parts = ["Federated learning under hidden, uneven client availability.\n"]
    parts += [
        "Usage: python -m fedrage_flwr [-m] [GROUP=WORD …] [KEY=VALUE …]\n",
        "Examples",
        *_pairs(EXAMPLES, below=True),
    ]
    parts += ["", "Groups: GROUP=WORD; the word marked * is the default"]
    for group, meaning in GROUPS.items():
        words = choices(group)
        if words:
            parts += ["", f"  {group}: {meaning}"]
            described = (
                (_mark(word, defaults.get(group)), describe_file(conf_dir() / group / f"{word}.yaml")) for word in words
            )
            parts += _pairs(tuple(described), indent=4)
    parts += ["", "Keys: KEY=VALUE, with the default", *_pairs(_keys()), ""]
    parts += ["Flags", *_pairs(FLAGS), "", "Further commands: python -m fedrage_flwr.…", *_pairs(FURTHER), ""]
    return "\n".join(parts)


def _mark(word: str, default: object) -> str:
    return f"{word} *" if word == default else word


def _defaults() -> dict[str, object]:
    return {key: word for entry in OmegaConf.load(conf_dir() / "config.yaml").defaults if hasattr(entry, "items")
            for key, word in entry.items()}  # fmt: skip


def _keys() -> tuple[tuple[str, str], ...]:
    """The top-level keys of conf/config.yaml with their values and comments."""
    lines = (conf_dir() / "config.yaml").read_text(encoding="utf-8").splitlines()
    found = []
    for line in lines:
        setting, mark, comment = line.partition("  #")
        key, colon, value = setting.partition(":")
        if mark and colon and value.strip() and not line.startswith((" ", "#")):
            found.append((f"{key}={value.strip()}", comment.strip()))
    return tuple(found)


def _pairs(pairs: tuple[tuple[str, str], ...], indent: int = 2, below: bool = False) -> list[str]:
    """Two columns with hanging indent; ``below`` puts the second one under the first."""
    start = indent + (2 if below else max((len(name) for name, _ in pairs), default=0) + 2)
    lines = []
    for name, text in pairs:
        wrapped = textwrap.wrap(text, WIDTH - start) or [""]
        if below:
            lines += [" " * indent + name, *(" " * (start + 2) + line for line in wrapped)]
        else:
            first, *rest = wrapped
            lines += [(" " * indent + name).ljust(start) + first, *(" " * start + line for line in rest)]
    return [line.rstrip() for line in lines]
