"""Every code block of the pages for users runs, in order, in a copy of the project.

A block that begins with a comment ``# path`` is saved there; ``# path, in TABLE`` adds its lines to that table; other
python and bash blocks are run.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = (
    "quickstart", "resume", "own-data", "own-huggingface", "own-trace", "own-model", "own-algorithm", "own-metric",
)  # fmt: skip
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"# ([\w./-]+\.(?:py|yaml))(?:, in (\w+))?\n")


def blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((REPOSITORY / "docs" / f"{page}.md").read_text(encoding="utf-8"))


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
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    done = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, ""), f"{words[-1]}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs(copy, page):
    if page == "own-huggingface":
        pytest.importorskip("datasets", reason="needs pip install datasets")
    for kind, text in blocks(page):
        perform(kind, text, copy)


@pytest.mark.parametrize("page", PAGES)
def test_there_are_blocks_and_all_are_of_a_kind_that_is_performed(page):
    kinds = [kind for kind, _ in blocks(page)]
    assert "bash" in kinds
    assert set(kinds) <= {"bash", "python", "yaml"}
    text = (REPOSITORY / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(kinds)
    assert all(TITLE.match(body) for kind, body in blocks(page) if kind == "yaml")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (REPOSITORY / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (REPOSITORY / "docs" / target).is_file(), target
