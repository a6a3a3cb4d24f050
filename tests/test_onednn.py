"""The products by oneDNN against plain ones, and when they are taken. Where torch has no oneDNN there is nothing to test."""

import pytest
import torch

from fedrage_flwr import onednn
from fedrage_flwr.linear_stack import LinearStack

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN for this processor"
)


@pytest.fixture
def processor(monkeypatch):
    """Say which processor this is."""

    def set_to(cpuinfo, capability):
        monkeypatch.setattr(onednn, "_processor", lambda: cpuinfo)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
        onednn.is_better_here.cache_clear()

    yield set_to
    onednn.is_better_here.cache_clear()


@pytest.mark.parametrize(
    ("cpuinfo", "capability", "wanted"),
    [
        ("vendor_id : AuthenticAMD", "AVX512", True),
        ("vendor_id : AuthenticAMD", "AVX2", False),
        ("vendor_id : GenuineIntel", "AVX512", False),
    ],
)
def test_only_where_mkl_leaves_the_processor_half_used(processor, cpuinfo, capability, wanted):
    processor(cpuinfo, capability)
    assert onednn.is_better_here() is wanted


def test_by_hand_on_whole_numbers():
    """(1 2 3) Wᵀ + b with W = (1 0 1; 0 1 0) is (4+10, 2+20); W + 2 δᵀx adds 2·δ_r·x_c. Exact in float32."""
    x, weight, bias = torch.tensor([[1.0, 2, 3]]), torch.tensor([[1.0, 0, 1], [0, 1, 0]]), torch.tensor([10.0, 20])
    assert onednn.affine(x, weight, bias).tolist() == [[14, 22]]
    assert onednn.affine(x, weight).tolist() == [[4, 2]]
    onednn.add_product_(weight, torch.tensor([[1.0, -1]]), x, 2.0)
    assert weight.tolist() == [[3, 4, 7], [-2, -3, -6]]


def test_large_products_are_counted_in_multiplications():
    assert onednn.is_large(torch.empty(32, 784), torch.empty(200, 784))  # 5.0 million
    assert not onednn.is_large(torch.empty(32, 784), torch.empty(10, 784))  # 0.25 million
    assert onednn.is_large(torch.empty(3, 32, 784), torch.empty(3, 200, 784))
    assert not onednn.is_large(torch.empty(30, 32, 784), torch.empty(30, 10, 784))  # of one model


@pytest.mark.parametrize("models", [None, 3])
def test_three_steps_with_it_and_without(processor, models):
    """784-200-200-10, whose first layers are large at 128 examples: the same to rounding."""
    torch.manual_seed(0)
    lead = () if models is None else (models,)
    shapes = [(200, 784), (200,), (200, 200), (200,), (10, 200), (10,)]
    start = [torch.randn(*lead, *shape) / shape[-1] ** 0.5 for shape in shapes]
    inputs, targets = torch.randn(3, *lead, 128, 784), torch.randint(0, 10, (3, *lead, 128))
    found = []
    for cpuinfo in ("AuthenticAMD", "GenuineIntel"):
        processor(cpuinfo, "AVX512")
        parameters = [p.clone() for p in start]
        stack = LinearStack(parameters)
        losses = []
        for x, y in zip(inputs, targets, strict=True):
            losses.append(stack.forward(x, y))
            stack.descend(None, 0.1)
        found.append((torch.stack(losses), parameters, stack.outputs(inputs[0])))
    (losses, parameters, outputs), (plain_losses, plain_parameters, plain_outputs) = found
    torch.testing.assert_close(losses, plain_losses, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(outputs, plain_outputs, rtol=1e-4, atol=1e-4)
    for a, b in zip(parameters, plain_parameters, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [32, 48, 128])
@pytest.mark.parametrize("models", [2, 5])
def test_a_model_in_a_stack_has_the_bits_it_has_alone(processor, batch, models):
    processor("AuthenticAMD", "AVX512")
    torch.manual_seed(batch)
    shapes = [(200, 784), (200,), (10, 200), (10,)]
    stacked = [torch.randn(models, *shape) / 28 for shape in shapes]
    single = [[p[m].clone() for p in stacked] for m in range(models)]
    together, alone = LinearStack(stacked), [LinearStack(own) for own in single]
    for _ in range(3):
        inputs, targets = torch.randn(models, batch, 784), torch.randint(0, 10, (models, batch))
        losses = together.forward(inputs, targets)
        together.descend(None, 0.1)
        for m, one in enumerate(alone):
            assert torch.equal(one.forward(inputs[m].clone(), targets[m]), losses[m])
            one.descend(None, 0.1)
    for m in range(models):
        assert all(torch.equal(a, b[m]) for a, b in zip(single[m], stacked, strict=True))
