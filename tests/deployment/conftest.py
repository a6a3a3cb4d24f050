"""Flower processes of one test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment.federation import Processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    here = Processes(tmp_path)
    try:
        yield here
    finally:
        here.stop()
