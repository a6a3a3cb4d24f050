"""The documentation as a site: every page is in it, it builds without a warning, and it fetches nothing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
CONFIG = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation():
    listed = re.findall(r"^ +- .*: (\S+\.md)$", CONFIG.partition("\nnav:\n")[2], re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (REPOSITORY / "docs").glob("*.md"))


@pytest.mark.slow
def test_it_builds_without_a_warning_and_fetches_nothing(tmp_path):
    pytest.importorskip("mkdocs", reason="needs pip install 'fedrage-flwr[docs]'")
    pytest.importorskip("material", reason="needs pip install 'fedrage-flwr[docs]'")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for path in [*tmp_path.rglob("*.html"), *tmp_path.rglob("*.css")]:
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r'(?:src|<link[^>]*href)="?(?:https?:)?//[^"]*|url\(["\']?(?:https?:)?//[^)]*', text), (
            path
        )
    concepts = (tmp_path / "concepts.html").read_text(encoding="utf-8")
    assert concepts.count("<math") > 30
    assert "arithmatex" not in concepts
