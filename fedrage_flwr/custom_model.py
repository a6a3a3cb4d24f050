"""``model=custom``: a ``torch.nn.Module`` of the user's, named by import path on the command line.

The path goes from the configuration to this process and to the processes of its own grid. It is never part of a message, so
nobody can make a node import something: what a node trains stands in the node's own configuration.
"""

import inspect
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from fedrage_flwr.errors import UserError, one_line
from fedrage_flwr.models import ModelSettings


class CustomModel:
    """Imports the class and calls it; ``input_shape`` and ``num_classes`` are passed if it takes them."""

    @dataclass(frozen=True)
    class Settings(ModelSettings):
        """See ``conf/model/custom.yaml``."""

        name: Literal["custom"]
        path: str
        arguments: dict[str, Any] | None

    @staticmethod
    def build(settings: Settings, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the module, tried on two examples of zeros.

        Raises:
            UserError: it cannot be imported or made, or its outputs are not of shape (n, num_classes).
        """
        made = import_path(settings.path, f"model.path={settings.path}")
        arguments = settings.arguments or {}
        known = {"input_shape": input_shape, "num_classes": num_classes}
        try:
            module = made(**{**_taken(made, known), **arguments})
        except Exception as error:
            raise UserError(f"model.path={settings.path} with model.arguments={arguments}: {_say(error)}") from error
        if not isinstance(module, nn.Module):
            raise UserError(f"model.path={settings.path}: makes a {type(module).__name__}, must be a torch.nn.Module")
        _check_dtypes(module, settings.path)
        _try(module, settings.path, input_shape, num_classes)
        return module


def import_path(path: str, typed: str) -> Any:
    """Import what ``path`` names.

    Args:
        path: ``package.module:Name``.
        typed: how the user has said it.

    Raises:
        UserError: there is no such thing.
    """
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise UserError(f"{typed}: must be package.module:Name")
    here = str(Path.cwd())
    if here not in sys.path:  # as python -m has it; a worker process of a grid may not
        sys.path.append(here)
    try:
        return getattr(import_module(module), name)
    except Exception as error:
        raise UserError(f"{typed}: {_say(error)}; it must be importable from {here} or installed") from error


def _taken(made: Any, known: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(made).parameters
    return {name: value for name, value in known.items() if name in parameters}


def _check_dtypes(module: nn.Module, path: str) -> None:
    for name, tensor in module.state_dict().items():
        try:
            tensor.new_empty(0).numpy()
        except TypeError as error:
            raise UserError(
                f"model.path={path}: {name} is {tensor.dtype}, which NumPy does not know, so it cannot be sent or saved;"
                " use float16, float32 or float64"
            ) from error


@torch.no_grad()
def _try(module: nn.Module, path: str, input_shape: tuple[int, ...], num_classes: int) -> None:
    module.eval()  # nothing that training would move, such as running means
    try:
        shape = tuple(module(torch.zeros(2, *input_shape)).shape)
    except Exception as error:
        raise UserError(f"model.path={path}: fails on inputs of shape {(2, *input_shape)}: {_say(error)}") from error
    finally:
        module.train()
    if shape != (2, num_classes):
        raise UserError(f"model.path={path}: turns inputs {(2, *input_shape)} into {shape}, must be {(2, num_classes)}")


def _say(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)}"
