"""Models by name. All but ``resnet18_gn`` are a plain ``nn.Sequential`` of standard layers, which an engine can walk.

No batch normalisation anywhere: its running statistics are neither parameters nor comparable between clients
(Hsieh et al., ICML 2020, use GroupNorm instead; so do we).
"""

from dataclasses import dataclass
from math import prod
from threading import Lock
from typing import Annotated, ClassVar, Literal, Protocol

import torch
from torch import nn

from fedrage_flwr.errors import UserError
from fedrage_flwr.randomness import Stream, integer_seed
from fedrage_flwr.settings import Ge, NameTable, lookup

__all__ = ["MODELS", "ModelSettings", "build_model"]

MODELS: NameTable = {
    "softmax": "fedrage_flwr.models:Softmax",
    "linear": "fedrage_flwr.models:LinearMap",
    "mlp": "fedrage_flwr.models:Mlp",
    "cnn": "fedrage_flwr.models:Cnn",
    "resnet18_gn": "fedrage_flwr.models:ResNet18GroupNorm",
    "custom": "fedrage_flwr.custom_model:CustomModel",
}


@dataclass(frozen=True)
class ModelSettings:
    """What every model is told. ``name`` is the word typed after ``model=``."""

    name: str


class Model(Protocol):
    """What ``MODELS`` lists: settings and how to build from them."""

    Settings: ClassVar[type[ModelSettings]]

    @staticmethod
    def build(settings: ModelSettings, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the model on the CPU, its parameters drawn from torch's generator."""


_GENERATOR = Lock()
"""Torch's layers draw from the one global generator, and replicas build their models in threads."""


def build_model(
    settings: ModelSettings, input_shape: tuple[int, ...], num_classes: int, seed: int, index: int = 0
) -> nn.Module:
    """Return the model with initial parameters that depend on ``seed`` and the arguments alone.

    Torch's global generator is as it was afterwards, on every device.

    Args:
        input_shape: of one example, (C, H, W) for images.
        num_classes: outputs; 1 in regression.
        index: which of several different random models.

    Returns:
        a float32 module on the CPU in training mode, from (n, *input_shape) to logits (n, num_classes).

    Raises:
        UserError: the model does not take inputs of this shape.
    """
    model: type[Model] = lookup(MODELS, settings.name)
    with _GENERATOR, torch.random.fork_rng(devices=[]), torch.device("cpu"):
        # not torch.manual_seed, which would seed the generators of the accelerators as well
        torch.default_generator.manual_seed(integer_seed(seed, Stream.MODEL, *([index] if index else [])))
        return model.build(settings, input_shape, num_classes)


class Softmax:
    """Multinomial logistic regression: the convex case the papers' theorems are about. Starts at zero as they do."""

    @dataclass(frozen=True)
    class Settings(ModelSettings):
        """No keys of its own."""

        name: Literal["softmax"]

    @staticmethod
    def build(settings: Settings, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return Flatten, Linear."""
        linear = nn.Linear(prod(input_shape), num_classes)
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
        return nn.Sequential(nn.Flatten(), linear)


class LinearMap:
    """θ·x without bias: with ``squared_error`` or ``absolute_error`` linear regression. Starts at zero."""

    @dataclass(frozen=True)
    class Settings(ModelSettings):
        """No keys of its own."""

        name: Literal["linear"]

    @staticmethod
    def build(settings: Settings, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return Flatten, Linear."""
        linear = nn.Linear(prod(input_shape), num_classes, bias=False)
        nn.init.zeros_(linear.weight)
        return nn.Sequential(nn.Flatten(), linear)


class Mlp:
    """Fully connected layers with ReLU between them."""

    @dataclass(frozen=True)
    class Settings(ModelSettings):
        """See ``conf/model/mlp.yaml``."""

        name: Literal["mlp"]
        hidden: list[Annotated[int, Ge(1)]]

    @staticmethod
    def build(settings: Settings, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return Flatten, (Linear, ReLU) for each hidden width, Linear."""
        layers: list[nn.Module] = [nn.Flatten()]
        width = prod(input_shape)
        for hidden in settings.hidden:
            layers += [nn.Linear(width, hidden), nn.ReLU()]
            width = hidden
        return nn.Sequential(*layers, nn.Linear(width, num_classes))


class Cnn:
    """Two 5×5 convolutions (32 and 64 channels), each with GroupNorm, ReLU and 2×2 max-pooling; then 128 units.

    The network of McMahan et al. (AISTATS 2017) with GroupNorm and a smaller head. Padding keeps height and width, so
    8×8, 28×28 and 32×32 images all fit.
    """

    @dataclass(frozen=True)
    class Settings(ModelSettings):
        """See ``conf/model/cnn.yaml``."""

        name: Literal["cnn"]
        groups: Literal[1, 2, 4, 8, 16, 32]

    @staticmethod
    def build(settings: Settings, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the layers; ``UserError`` unless the inputs are images of at least 4×4 pixels."""
        channels, height, width = _image_shape("cnn", input_shape)
        return nn.Sequential(
            nn.Conv2d(channels, 32, 5, padding=2),
            nn.GroupNorm(settings.groups, 32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.GroupNorm(settings.groups, 64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), 128),
            nn.ReLU(),
            nn.Linear(128, num_classes),
        )


class ResNet18GroupNorm:
    """Torchvision's ResNet-18 (He et al., CVPR 2016) with GroupNorm (Wu and He, ECCV 2018), not pretrained.

    Images up to 64 pixels wide get the small stem usual for CIFAR: a 3×3 convolution of stride 1, no pooling.
    """

    SMALL: ClassVar[int] = 64

    @dataclass(frozen=True)
    class Settings(ModelSettings):
        """See ``conf/model/resnet18_gn.yaml``."""

        name: Literal["resnet18_gn"]
        groups: Literal[1, 2, 4, 8, 16, 32, 64]

    @staticmethod
    def build(settings: Settings, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the network; ``UserError`` unless the inputs are images of at least 4×4 pixels."""
        from torchvision.models import resnet18  # three seconds of imports, paid by those who use it

        channels, height, width = _image_shape("resnet18_gn", input_shape)
        net: nn.Module = resnet18(
            num_classes=num_classes, norm_layer=lambda features: nn.GroupNorm(settings.groups, features)
        )
        small = max(height, width) <= ResNet18GroupNorm.SMALL
        kernel, stride, padding = (3, 1, 1) if small else (7, 2, 3)
        net.conv1 = nn.Conv2d(channels, 64, kernel, stride, padding, bias=False)
        nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")  # as torchvision does
        if small:
            net.maxpool = nn.Identity()
        return net


def _image_shape(name: str, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(input_shape) != 3 or min(input_shape[1:]) < 4:
        shape = "×".join(map(str, input_shape))
        raise UserError(f"model={name}: needs images of at least 4×4 pixels, the data set has inputs of shape {shape}")
    channels, height, width = input_shape
    return channels, height, width
