"""`torch.compile` makes one graph of network, head and loss, with the plain step's gradients."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ens10.models.layers.smoe import track_loss
from ens10.models.losses import CRPSLoss
from ens10.models.matching import forecast_of
from ens10.models.statistical.base import StatisticalMethod

_SLOW, _LONG = ("unet_csg", "poet"), ("location_smoe", "unet_truncated", "poet_calibrated")
BENCHMARKS = str(Path(__file__).resolve().parents[2] / "benchmarks")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself
@pytest.mark.parametrize(
    "name",
    [
        "paper_unet",
        "location_unet",
        "transformer",
        "transformer_neighbours",
        "smoe_unet",
        *(pytest.param(name, marks=pytest.mark.slow) for name in _SLOW),
        *(pytest.param(name, marks=pytest.mark.long) for name in _LONG),
    ],
)
def test_one_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # fullgraph=True raises at a break of the graph
    monkeypatch.syspath_prepend(BENCHMARKS)
    import cuda_steps

    torch._dynamo.reset()
    network, head, _ = cuda_steps.model(name, (16, 24))
    batch = cuda_steps.date(network, (16, 24), 2)
    assert all(m.is_solved for m in head.modules() if isinstance(m, StatisticalMethod))

    def mean(batch: dict[str, Tensor]) -> Tensor:
        forecast = forecast_of(network, head, batch)
        return CRPSLoss().evaluate(forecast, batch["target"], batch["weights"]).mean()

    def step(loss: Tensor) -> list[Tensor]:
        loss = track_loss(loss, network)
        return list(torch.autograd.grad(loss, list(network.parameters()), allow_unused=True))

    plain = mean(batch)  # whose gradients come before another pass changes the running moments
    expected = step(plain)
    one = torch.compile(mean, backend="aot_eager", fullgraph=True)(batch)
    torch.testing.assert_close(one, plain, rtol=1e-6, atol=0)
    for got, wanted in zip(step(one), expected, strict=True):
        if wanted is not None:
            assert float((got - wanted).norm()) <= 1e-4 * float(wanted.norm()) + 1e-7
    sys.modules.pop("cuda_steps", None)
