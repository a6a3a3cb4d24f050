"""Gradients written by hand against autograd, and by hand on one number."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedrage_flwr.linear_stack import LinearStack, is_linear_stack, same_bits_stacked
from fedrage_flwr.losses import cross_entropy, squared_error


def chain(*widths):
    layers = [nn.Flatten()]
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@pytest.mark.parametrize("widths", [(6, 4), (6, 5, 4), (6, 7, 5, 4)])
@pytest.mark.parametrize("weight", [None, 2.5])
def test_one_model_against_autograd(widths, weight):
    torch.manual_seed(0)
    module, lr = chain(*widths).double(), 0.3
    inputs, targets = torch.randn(8, 2, 3, dtype=torch.double), torch.randint(0, 4, (8,))
    loss = functional.cross_entropy(module(inputs), targets)
    gradients = torch.autograd.grad(loss, list(module.parameters()))
    expected = [p.detach() - lr * (weight or 1) * g for p, g in zip(module.parameters(), gradients, strict=True)]
    stack = LinearStack(list(module.parameters()))
    assert stack.forward(inputs, targets).item() == pytest.approx(loss.item())
    stack.descend(None if weight is None else torch.tensor(weight, dtype=torch.double), lr)
    for found, wanted in zip(module.parameters(), expected, strict=True):
        np.testing.assert_allclose(found.detach(), wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shared", [True, False])
def test_stacked_models_against_one_at_a_time(shared):
    torch.manual_seed(0)
    modules = [chain(6, 5, 4).double() for _ in range(3)]
    inputs = torch.randn(1 if shared else 3, 8, 6, dtype=torch.double)
    targets = torch.randint(0, 4, (1 if shared else 3, 8)).expand(3, 8)
    weights = torch.tensor([0.5, 1.0, 3.0], dtype=torch.double)
    stacked = [torch.stack([p.detach() for p in ps]) for ps in zip(*(m.parameters() for m in modules), strict=True)]
    stack = LinearStack(stacked)
    losses = stack.forward(inputs, targets)
    stack.descend(weights, 0.3)
    for m, module in enumerate(modules):
        single = LinearStack(list(module.parameters()))
        assert single.forward(inputs[0 if shared else m], targets[m]).item() == pytest.approx(losses[m].item())
        single.descend(weights[m], 0.3)
        for found, wanted in zip(stacked, module.parameters(), strict=True):
            np.testing.assert_allclose(found[m], wanted.detach(), rtol=1e-12, atol=1e-14)


SIZES = (1, 2, 3, 4, 8, 10, 16, 20, 32, 50, 64, 100, 128)


@pytest.mark.parametrize("seed", range(12))
def test_where_it_says_so_a_stack_has_the_bits_of_single_models(seed):
    """Random widths, batch sizes and numbers of models: three weighted steps, all parameters and losses."""
    rng = np.random.default_rng(seed)
    tried = 0
    while tried < 8:
        widths = [int(rng.choice([*SIZES, 256, 784])), *rng.choice(SIZES, rng.integers(1, 3)).tolist()]
        batch, models = int(rng.choice(SIZES)), int(rng.choice([2, 3, 5, 10, 30]))
        torch.manual_seed(int(rng.integers(1 << 31)))
        shapes = [s for a, b in itertools.pairwise(widths) for s in ((b, a), (b,))]
        if not same_bits_stacked([torch.empty(shape) for shape in shapes], batch):
            continue
        tried += 1
        stacked = [torch.randn(models, *shape) / widths[0] ** 0.5 for shape in shapes]
        inputs, targets = torch.randn(3, models, batch, widths[0]), torch.randint(0, widths[-1], (3, models, batch))
        weights = torch.rand(models)
        single = [[p[m].clone() for p in stacked] for m in range(models)]
        together, alone = LinearStack(stacked), [LinearStack(own) for own in single]
        for step in range(3):
            losses = together.forward(inputs[step], targets[step])
            together.descend(weights, 0.1)
            for m, one in enumerate(alone):
                assert torch.equal(one.forward(inputs[step, m].clone(), targets[step, m]), losses[m]), (widths, batch)
                one.descend(weights[m], 0.1)
        for m in range(models):
            assert all(torch.equal(a, b[m]) for a, b in zip(single[m], stacked, strict=True)), (widths, batch, models)


def test_which_shapes_are_stacked():
    """Every matrix a multiple of 16 numbers, no vectors, every product at least 400 multiplications."""
    mlp = [torch.empty(shape) for shape in ((200, 784), (200,), (10, 200), (10,))]
    assert same_bits_stacked(mlp, 32)
    assert same_bits_stacked(mlp, 8)  # 8·10 = 5·16
    assert not same_bits_stacked(mlp, 31)  # 31·10
    assert not same_bits_stacked(mlp, 4)  # 4·10
    assert not same_bits_stacked([torch.empty(4, 8), torch.empty(4)], 8)  # 8·4·8 = 256
    assert not same_bits_stacked([torch.empty(16, 64), torch.empty(16)], 1)  # products with a vector
    assert not same_bits_stacked([torch.empty(1, 64), torch.empty(1)], 16)


def test_one_step_by_hand():
    """Softmax regression at zero: p = ½ each, f = ln 2; the gradient of a row is (p − y)x, here ∓½·(2, 4)."""
    module = chain(2, 2)
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    stack = LinearStack(list(module.parameters()))
    assert stack.forward(torch.tensor([[2.0, 4.0]]), torch.tensor([0])).item() == pytest.approx(np.log(2))
    stack.descend(None, 0.1)
    np.testing.assert_allclose(module[1].weight.detach(), [[0.1, 0.2], [-0.1, -0.2]], rtol=1e-6)
    np.testing.assert_allclose(module[1].bias.detach(), [0.05, -0.05], rtol=1e-6)


def test_a_weight_of_one_changes_no_bit():
    torch.manual_seed(0)
    inputs, targets = torch.randn(8, 6), torch.randint(0, 4, (8,))
    results = []
    for weight in (None, torch.tensor(1.0)):
        torch.manual_seed(1)
        module = chain(6, 5, 4)
        stack = LinearStack(list(module.parameters()))
        stack.forward(inputs, targets)
        stack.descend(weight, 0.3)
        results.append([p.detach().clone() for p in module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_which_modules_qualify():
    assert is_linear_stack(chain(6, 5, 4), cross_entropy)
    assert is_linear_stack(chain(6, 4), cross_entropy)
    assert not is_linear_stack(chain(6, 4), squared_error)
    assert not is_linear_stack(nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 4)), cross_entropy)
    assert not is_linear_stack(nn.Sequential(nn.Flatten(), nn.Linear(6, 4, bias=False)), cross_entropy)
    assert not is_linear_stack(nn.Linear(6, 4), cross_entropy)
