"""Federated learning under hidden, uneven client availability.

``from fedrage_flwr import run`` is the Python API (``fedrage_flwr.api``). Nothing is imported before it is asked for: a Flower
node imports this package for every message.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedrage_flwr.api import Result as Result
    from fedrage_flwr.api import run as run

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import ``run`` and ``Result`` when they are first used."""
    if name not in ("run", "Result"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from fedrage_flwr.doors import set_switches

    set_switches()
    # The name `run` is taken by the module, which Python binds here as soon as anything imports it; it is callable.
    return import_module(f"{__name__}.run") if name == "run" else import_module(f"{__name__}.api").Result
