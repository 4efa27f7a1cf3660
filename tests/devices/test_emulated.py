"""The emulated device finds the mistakes that CUDA would find, and computes what the CPU does."""

import emulated
import pytest
import torch


@pytest.fixture(autouse=True)
def _device():
    with emulated.accelerator():
        yield


def test_it_computes_and_differentiates():
    held = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = emulated.moved(held).requires_grad_()
    y = (x.exp() * torch.arange(4, device=x.device)).sum()
    y.backward()
    assert x.device.type == y.device.type == "meta"
    assert y.item() == (held.exp() * torch.arange(4)).sum().item()
    torch.testing.assert_close(x.grad.cpu(), held.exp() * torch.arange(4), rtol=0, atol=0)


def test_what_is_made_there_has_values():
    x = emulated.moved(torch.ones(3))
    for made in (
        torch.tensor([1.0, 2.0], device=x.device),
        torch.as_tensor([1.0, 2.0], device=x.device),
        x.new_tensor([1.0, 2.0]),
        torch.tensor([1.0, 2.0]).to(x.device),
        torch.linspace(1, 2, 2, device=x.device),
    ):
        assert made.device.type == "meta"
        assert made.cpu().tolist() == [1.0, 2.0]
    x[1:].mul_(5)
    assert x.cpu().tolist() == [1, 5, 5]
    there = torch.empty(3).copy_(x)
    assert there.device.type == "cpu"
    assert there.tolist() == [1, 5, 5]


@pytest.mark.parametrize(
    "mistake",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.where(x > 0, x, torch.zeros(3)),
        lambda x: torch.cat([x, torch.ones(1)]),
        lambda x: x.clone().mul_(torch.ones(3)),
        lambda x: x.gather(0, torch.tensor([0])),
        lambda x: x.detach().numpy(),
    ],
)
def test_mistakes_are_found(mistake):
    with pytest.raises((RuntimeError, TypeError)):
        mistake(emulated.moved(torch.ones(3)))


def test_a_module_moves_with_its_buffers_and_shared_parameters():
    inner = torch.nn.BatchNorm2d(2)
    module = emulated.moved(torch.nn.ModuleList([inner, inner, torch.nn.Conv2d(2, 2, 1)]))
    assert module[0].weight is module[1].weight
    held = [*module.parameters(), *module.buffers()]
    assert {t.device.type for t in held} == {"meta"}
    assert module[2](module[0](emulated.moved(torch.ones(1, 2, 3, 3)))).device.type == "meta"
