"""Shapes, parameter counts, and where the initial parameters come from."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from pydantic import TypeAdapter, ValidationError
from torch import nn

from fedrage_flwr.errors import UserError
from fedrage_flwr.models import MODELS, build_model
from fedrage_flwr.settings import lookup

BUILT_IN = sorted(MODELS.keys() - {"custom"})  # tests/test_custom_model.py has the other one
SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32)]


def settings(name: str, **changes: Any) -> Any:
    """Return the settings in ``conf/model``."""
    config: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).parents[1] / "conf" / "model" / f"{name}.yaml"))
    kind = lookup(MODELS, name).Settings
    assert set(config) == {field.name for field in fields(kind)}
    return TypeAdapter(kind).validate_python(config | changes)


def build(name: str, shape: tuple[int, ...] = (1, 28, 28), seed: int = 0, **changes: Any) -> nn.Module:
    return build_model(settings(name, **changes), shape, 10, seed)


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", BUILT_IN)
def test_logits_for_every_data_set(name: str, shape: tuple[int, ...]) -> None:
    model = build(name, shape)
    assert model(torch.randn(2, *shape)).shape == (2, 10)
    assert not list(model.buffers())  # nothing but parameters to average
    assert all(p.dtype == torch.float32 and p.device.type == "cpu" for p in model.parameters())


def test_parameter_counts() -> None:
    assert size(build("softmax")) == 784 * 10 + 10
    assert size(build("mlp")) == 784 * 200 + 200 + 200 * 10 + 10
    assert size(build("mlp", hidden=[])) == 784 * 10 + 10
    convolutions = 25 * 32 + 32 + 2 * 32 + 25 * 32 * 64 + 64 + 2 * 64
    assert size(build("cnn")) == convolutions + 64 * 7 * 7 * 128 + 128 + 128 * 10 + 10
    # torchvision's resnet18 has 11,689,512 with a 7×7 stem of 3 channels and 1000 classes
    assert size(build("resnet18_gn", (3, 32, 32))) == 11_689_512 - 3 * 64 * (49 - 9) - 990 * 513


@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet18_gn"])
def test_initial_parameters_come_from_the_seed(name: str) -> None:
    torch.manual_seed(1)
    first = flat(build(name, (1, 8, 8), seed=3))
    torch.manual_seed(2)
    assert torch.equal(flat(build(name, (1, 8, 8), seed=3)), first)
    assert not torch.equal(flat(build(name, (1, 8, 8), seed=4)), first)


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_global_generator_is_untouched(name: str) -> None:
    before = torch.get_rng_state()
    build(name, (1, 8, 8))
    assert torch.equal(torch.get_rng_state(), before)


def test_building_seeds_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("seeds CUDA"))
    build("mlp")


def test_softmax_starts_at_zero() -> None:
    assert not flat(build("softmax", seed=5)).any()


@pytest.mark.parametrize("name", ["softmax", "mlp", "cnn"])
def test_plain_sequence_of_standard_layers(name: str) -> None:
    model = build(name)
    assert type(model) is nn.Sequential
    kinds = {nn.Flatten, nn.Linear, nn.ReLU, nn.Conv2d, nn.GroupNorm, nn.MaxPool2d}
    assert all(type(layer) in kinds for layer in model)


def test_resnet_stem_follows_the_image_size() -> None:
    small, large = (build("resnet18_gn", (3, side, side)) for side in (64, 96))
    assert isinstance(small.conv1, nn.Conv2d)
    assert isinstance(large.conv1, nn.Conv2d)
    assert (small.conv1.kernel_size, type(small.maxpool)) == ((3, 3), nn.Identity)
    assert (large.conv1.kernel_size, type(large.maxpool)) == ((7, 7), nn.MaxPool2d)
    assert large(torch.randn(1, 3, 96, 96)).shape == (1, 10)


@pytest.mark.parametrize("name", ["cnn", "resnet18_gn"])
def test_convolutions_want_images(name: str) -> None:
    with pytest.raises(UserError, match=rf"model={name}: needs images of at least 4×4 pixels, .* shape 13"):
        build(name, (13,))


@pytest.mark.parametrize(("name", "changes"), [("mlp", {"hidden": [0]}), ("cnn", {"groups": 3})])
def test_settings_out_of_range(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(name, **changes)


@pytest.mark.parametrize("name", ["softmax", "linear", "mlp"])
def test_vectors_are_inputs_too(name: str) -> None:
    assert build(name, (5,))(torch.randn(3, 5)).shape == (3, 10)


def test_linear_is_a_matrix_that_starts_at_zero() -> None:
    model = build_model(settings("linear"), (3,), 1, seed=0)
    assert [(n, tuple(p.shape)) for n, p in model.named_parameters()] == [("1.weight", (1, 3))]
    assert flat(model).tolist() == [0, 0, 0]


def test_threads_do_not_draw_from_each_others_generator() -> None:
    """Replicas build their models in threads, and torch's layers draw from one global generator."""
    expected = [flat(build("mlp", seed=seed)) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            found = pool.map(lambda seed: flat(build("mlp", seed=seed)), range(8))
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
