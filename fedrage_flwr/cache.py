"""Files that can be made again: kept in one folder, replaced whole, and never needed."""

import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

log = logging.getLogger(__name__)


def cache_folder(setting: str) -> Path:
    """Return the folder a ``cache`` key names; ``~`` is allowed."""
    return Path(setting).expanduser().absolute()


def replace_file(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file under another name and rename it, so that nobody reads half of it. A failure costs a warning only."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                write(file)
                file.close()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        log.warning("%s is not kept for the next run (%s)", path, error)
