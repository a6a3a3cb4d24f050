"""Every code block of the pages runs, in order, in a copy of the project; those of docs/deployment.md in tests/deployment.

A block that begins with a comment ``# path`` is saved there; ``# path, in TABLE`` adds its lines to that table; other
python and bash blocks are run, as they are but for the words that ``INSTEAD`` names.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deployment.federation import PATIENCE

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for folder in (REPOSITORY, REPOSITORY / "docs")
    for path in folder.glob("*.md")
    if "```" in path.read_text(encoding="utf-8")
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"# ([\w./-]+\.(?:py|yaml))(?:, in (\w+))?\n")

ELSEWHERE = {
    ("README.md", "git clone"): "installs torch from the network: the first thing that .ci/run does",
    ("docs/deployment.md", "bash deploy/local.sh"): "tests/deployment/test_local.py",
    ("docs/deployment.md", "export FLWR_DISABLE"): "tests/deployment/test_page.py",
    ("docs/deployment.md", "flower-superlink"): "tests/deployment/test_page.py",
    ("docs/deployment.md", "[superlink.ours]"): "tests/deployment/test_page.py",
    ("docs/deployment.md", "python -m fedrage_flwr.prepare"): "tests/deployment/test_page.py",
    ("docs/deployment.md", "job="): "tests/deployment/test_page.py",
    ("docs/deployment.md", "flwr run . ours --stream --run-config 'overrides"): "tests/deployment/test_page.py",
}
"""What is not run here, by page and how the block begins: why, or where it is run. Its syntax is checked all the same."""

FEW_ROUNDS = ("conf/config.yaml", "num_rounds: 300 ", "num_rounds: 4 ")
INSTALLED = "pip install fedrage-flwr"  # pip finds it there; tests/end_to_end/test_install.py installs
INSTEAD: dict[str, tuple[tuple[str, str, str], ...]] = {
    "README.md": (
        FEW_ROUNDS,
        ("README.md", "pip install . ", INSTALLED),
        ("README.md", "\npytest\n", "\npytest --collect-only -q tests/test_docs.py\n"),
        ("README.md", "dataset=fashion_mnist", "dataset=digits"),  # here and below: nothing to fetch
        ("README.md", "dataset=mnist", "dataset=digits"),
        ("README.md", "num_rounds=200", "num_rounds=4"),
        ("README.md", "compare outputs/… outputs/…", "compare outputs/2*/*"),
        ("README.md", "report outputs/…", "report outputs/2*/*"),
        ("README.md", "explain outputs/…", 'explain "$(ls -d outputs/2*/* | head -n 1)"'),
        ("README.md", "resume=outputs/…", 'resume="$(ls -d outputs/2*/* | head -n 1)" 2> resumed.txt'),  # it says so there
    ),
    "CONTRIBUTING.md": (("CONTRIBUTING.md", "make ", "make -n "),),  # what they would do, which .ci/run does
    "docs/choose.md": (
        ("conf/experiment/choose.yaml", "num_rounds: 400", "num_rounds: 2"),
        ("conf/experiment/choose.yaml", "range(10)", "range(2)"),
    ),
    "docs/experiments.md": (
        ("docs/experiments.md", "dataset=fashion_mnist ram=inclusion strategy=fedavg\n",
         "dataset=digits ram=inclusion strategy=fedavg\n"),
        ("docs/experiments.md", "table1 dataset=fashion_mnist", "table1 dataset=digits"),
        ("docs/experiments.md", "'seed=range(5)'", "'seed=range(1)' 2> untuned.txt"),  # says that federage was not tuned
        ("conf/experiment/table1.yaml", "num_rounds: 10000", "num_rounds: 4"),
        ("conf/experiment/tuning/_budget.yaml", "min_participations: 15 ", "min_participations: 0.01 "),
        ("conf/experiment/tuning/_budget.yaml", "extra_trials: 8 ", "extra_trials: 1 "),
        ("conf/experiment/tuning/fedavg.yaml", "lr: [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]", "lr: [0.05, 0.1]"),
        ("conf/experiment/tuning/fedavg.yaml", "server_lr: [0.5, 1.0, 1.5]", "server_lr: [1.0]"),
    ),
    "docs/index.md": (FEW_ROUNDS, ("docs/index.md", "pip install .\n", f"{INSTALLED}\n")),
    "docs/performance.md": (
        ("docs/performance.md", "python -m benchmarks  ", "python -m benchmarks 2> load.txt  "),  # where the load is said
        ("docs/performance.md", "--flower ", "--flower --help "),  # Flower gives its own processes 15 s to start
        ("benchmarks/__main__.py", '"--turns", type=int, default=7', '"--turns", type=int, default=1'),
        ("benchmarks/__main__.py", "\n\n\ndef machine", "\nCASES = CASES[:1]\n\n\ndef machine"),
        ("benchmarks/__main__.py", "(30, 100_000)", "(30,)"),
        ("benchmarks/floor.py", "default=300", "default=10"),
    ),
    "docs/privacy.md": (
        FEW_ROUNDS,
        ("docs/privacy.md", "dataset=mnist", "dataset=digits"),
        ("docs/privacy.md", "num_clients=1000 ram.clients_per_round=300 num_rounds=30",
         "num_clients=100 ram.clients_per_round=30 num_rounds=4"),
    ),
    "docs/report.md": (
        ("docs/report.md", "FOLDER…  ", "results/toy2d  "),
        ("fedrage_flwr/report/rates.py", "10_000, 31_623, 100_000)", ")"),
        ("fedrage_flwr/report/rates.py", "SEEDS = 20", "SEEDS = 2"),
    ),
    "docs/scale.md": (("conf/config.yaml", "num_rounds: 300 ", "num_rounds: 1 "),),
    "docs/sweeps.md": (
        FEW_ROUNDS,
        ("docs/sweeps.md", "range(5)", "range(2)"),
        ("docs/sweeps.md", "range(8)", "range(2)"),
        ("docs/sweeps.md", "hydra/launcher=ray ", "hydra/launcher=ray 2> ray.txt "),  # where Ray and Optuna tell what they do
        ("docs/sweeps.md", "hydra/sweeper=optuna ", "hydra/sweeper=optuna 2> optuna.txt "),
        ("docs/sweeps.md", "init.address=auto", "init.address=local"),  # no Ray cluster is running
        ("docs/sweeps.md", "-m hydra/launcher=submitit_slurm 'seed=range(20)' strategy=fedavg,federage",
         "--cfg hydra hydra/launcher=submitit_slurm"),  # no Slurm: the settings are composed
        ("docs/sweeps.md", "n_trials=30", "n_trials=2"),
    ),
}  # fmt: skip
"""By page, what is replaced in a file of the copy before its blocks run: shorter work, or what does not exist here."""


def sentiment(home: Path) -> None:
    """What docs/data.md begins with: reviews in aclImdb/, sentences in sentences/."""
    for split, count in (("train", 1250), ("test", 625)):
        for name in ("pos", "neg"):
            folder = home / "aclImdb" / split / name
            folder.mkdir(parents=True)
            for number in range(2 * count):
                (folder / f"{number}.txt").write_text(f"a {name} film", encoding="utf-8")
    (home / "sentences").mkdir()
    for name in ("amazon_cells", "imdb", "yelp"):
        (home / "sentences" / f"{name}_labelled.txt").write_text("good\t1\nbad\t0\n" * 10, encoding="utf-8")


def nothing_tuned(home: Path) -> None:
    """What docs/experiments.md begins with: no trials of the whole search space, which is made smaller for it."""
    for name in ("tuning", "table1"):
        shutil.rmtree(home / "results" / name)


GIVEN: dict[str, Callable[[Path], None]] = {"docs/data.md": sentiment, "docs/experiments.md": nothing_tuned}
NEEDS = {
    "docs/own-huggingface.md": ("datasets",),
    "docs/report.md": ("plotly",),
    "docs/experiments.md": ("plotly",),
    "README.md": ("plotly",),
    "docs/sweeps.md": tuple(f"hydra_plugins.hydra_{name}" for name in
                            ("joblib_launcher", "ray_launcher", "submitit_launcher", "optuna_sweeper")),
}  # fmt: skip
"""Packages that a page says must be installed."""


def blocks(page: str, home: Path = REPOSITORY) -> list[tuple[str, str]]:
    return BLOCK.findall((home / page).read_text(encoding="utf-8"))


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """The text with words replaced, each of which it must have."""
    for words, instead in pairs:
        assert words in text, f"the text does not say {words}\n{text}"
        text = text.replace(words, instead)
    return text


def place(page: str, text: str) -> list[tuple[str, str]]:
    """The entries of ``ELSEWHERE`` for a block."""
    return [(where, start) for where, start in ELSEWHERE if where == page and text.startswith(start)]


def perform(kind: str, text: str, home: Path) -> None:
    title = TITLE.match(text)
    if title is None:
        run([sys.executable, "-c", text] if kind == "python" else ["bash", "-euc", text], home)
        return
    path, body = home / title[1], text[title.end() :]
    if title[2] is None:
        assert not path.exists(), f"{path} exists already"
        path.write_text(body, encoding="utf-8")
        return
    table = re.compile(rf"^({title[2]}\b[^\n]*= {{\n)", re.MULTILINE)
    changed, count = table.subn(lambda found: found[1] + body, path.read_text(encoding="utf-8"))
    assert count == 1, f"{title[1]} has no table {title[2]}"
    path.write_text(changed, encoding="utf-8")


def run(words: list[str], home: Path) -> None:
    python = home / ".bin" / "python"  # this one, whatever is called so here
    python.parent.mkdir(exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    path = os.pathsep.join([str(python.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    environment |= {"PIP_DRY_RUN": "1", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}  # is it there?
    done = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, timeout=600 * PATIENCE)
    assert (done.returncode, done.stderr) == (0, ""), f"{words[-1]}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.fixture
def home(copy):
    """The copy, with what else lies in the project."""
    pages = (path.name for path in REPOSITORY.glob("*.md"))
    for name in ("benchmarks", "docs", "results", "Makefile", "LICENSE", ".gitignore", *pages):
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/deployment.md"])
def test_every_block_runs(home, page):
    for package in NEEDS.get(page, ()):
        pytest.importorskip(package, reason=f"needs {package}: pip install '.[dev]'")
    for name, words, instead in INSTEAD.get(page, ()):
        path = home / name
        path.write_text(replaced(path.read_text(encoding="utf-8"), (words, instead)), encoding="utf-8")
    GIVEN.get(page, lambda _: None)(home)
    for kind, text in blocks(page, home):
        if not place(page, text):
            perform(kind, text, home)


@pytest.mark.parametrize("page", PAGES)
def test_all_blocks_are_of_a_kind_that_is_performed(page):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(blocks(page))
    for kind, body in blocks(page):
        assert kind in {"bash", "python", "yaml"} or place(page, body)
        assert kind != "yaml" or TITLE.match(body)
        if kind == "bash":
            subprocess.run(["bash", "-n", "-c", body], check=True)


def test_what_runs_elsewhere_is_one_block_each():
    found = [entry for page in PAGES for _, text in blocks(page) for entry in place(page, text)]
    assert sorted(found) == sorted(ELSEWHERE)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (REPOSITORY / page).parent.joinpath(target).is_file(), target
