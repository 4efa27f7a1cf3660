"""The devices that the tests of this folder run on."""

from dataclasses import dataclass

import emulated
import pytest
import torch

HAS_CUDA = torch.cuda.is_available()
_NEEDS_CUDA = [
    pytest.mark.cuda,
    pytest.mark.skipif(not HAS_CUDA, reason="needs an NVIDIA GPU that torch can use"),
]


@dataclass(frozen=True)
class Device:
    """Where a test's subject runs; what it is compared with is on the CPU."""

    name: str

    def __call__(self, value):
        """A tensor, module or dictionary of tensors on this device."""
        if self.name == "emulated":
            return emulated.moved(value)
        if isinstance(value, dict):
            return {key: self(one) for key, one in value.items()}
        return value.to(self.name)

    @property
    def type(self):
        """What tensors of this device report."""
        return "meta" if self.name == "emulated" else self.name


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=_NEEDS_CUDA)])
def device(request):
    """A device that is not the CPU: CUDA, or what stands for it on machines without."""
    if request.param == "emulated":
        with emulated.accelerator():
            yield Device("emulated")
    else:
        yield Device(request.param)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=_NEEDS_CUDA)])
def real_device(request):
    """Without the emulated device, for what torch does not do on it."""
    return Device(request.param)
