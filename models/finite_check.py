"""Whether losses and gradients of a training are finite, kept on the device and read later."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from ens10.errors import ArgumentError

# the arguments of an `ArgumentError`: plain texts, which processes exchange
Fault = tuple[str, str, str]


class StepReport(NamedTuple):
    """What an error says of one step.

    Attributes:
        sums: sums of the losses, one for each date.
        describe: returns the fault of a loss that is not finite, or of gradients if all of `sums`
            are finite. It holds the batch.
    """

    sums: Tensor
    describe: Callable[[], Fault]


class FiniteCheck:
    """The check of training steps without waiting for the device within a step.

    A flag on the device is 1 from the first loss or gradient on that is not finite, in any of the
    processes. The fused optimiser reads it there and then leaves the weights as they are; running
    moments of normalisations get the values back that they had before the batch. The host reads the
    flag of a step during the next one, when the device has other work to do, and by `read` before a
    checkpoint, a validation and the end of an epoch.

    Call `start` before the forward pass, `add` for each loss, and `finish` after the backward pass.

    Args:
        model: whose running moments are kept.
        optimizer: fused; see `is_possible`.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._parameters = _parameters_of(optimizer)
        self.flag = torch.zeros((), dtype=torch.float32, device=self._parameters[0].device)
        self._copy, self._copied = _host_copy(self.flag)
        self._moments = _RunningMoments(model)
        self._reports: list[StepReport] = []
        self._is_pending = False
        self._optimizer = optimizer
        vars(optimizer)["found_inf"] = self.flag  # what torch's fused optimisers look for

    def start(self) -> None:
        """Keep the running moments as they are before a batch."""
        self._moments.keep()

    def add(self, report: StepReport) -> None:
        """Add the loss of a batch to the flag; read the flag of the batch before.

        Raises:
            ArgumentError: the batch before had a loss or gradients that are not finite.
        """
        self.read()
        self._reports.append(report)
        self._set(report.sums)

    def finish(self) -> None:
        """Set the flag for bad gradients, here or elsewhere; restore the moments after a bad batch.

        The flag's copy to the host starts, and is not waited for.
        """
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if gradients:
            # the largest absolute value, which is NaN if one is
            self._set(nn.utils.get_total_norm(gradients, torch.inf))
        if _processes() > 1:
            dist.all_reduce(self.flag, dist.ReduceOp.MAX)
        self._moments.restore(self.flag > 0)
        self._copy.copy_(self.flag, non_blocking=True)
        if self._copied is not None:
            self._copied.record()
        self._is_pending = True

    def read(self) -> None:
        """Wait for the flag of the last step; all processes raise the same error.

        Raises:
            ArgumentError: a loss or gradients are not finite.
        """
        if not self._is_pending:
            return
        self._is_pending = False
        if self._copied is not None:
            self._copied.synchronize()
        reports, self._reports = self._reports, []
        if bool(self._copy):
            self._moments.restore(self.flag > 0)  # without the batch whose step has begun
            raise ArgumentError(*_fault_of_all(_bad(reports).describe()))

    def read_loss(self) -> None:
        """Read this process's losses of a step whose backward pass failed.

        Raises:
            ArgumentError: one of them is not finite.
        """
        report = _bad(self._reports)
        if not bool(report.sums.isfinite().all()):
            raise ArgumentError(*report.describe())

    def end(self) -> None:
        """Take the flag away from the optimiser."""
        vars(self._optimizer).pop("found_inf", None)

    def _set(self, values: Tensor) -> None:
        """Set the flag if a value is not finite."""
        self.flag.copy_(torch.maximum(self.flag, (~values.isfinite()).any().to(self.flag.dtype)))


def is_possible(optimizers: Sequence[torch.optim.Optimizer], precision: str) -> bool:
    """Return True if the optimiser can leave a step out on the device.

    That is Adam or AdamW in the fused form, with whole parameters on one device. In 16-mixed the
    loss scaler finds what is not finite.
    """
    if len(optimizers) != 1 or precision == "16-mixed":
        return False
    (optimizer,) = optimizers
    if not isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW):
        return False
    parameters = _parameters_of(optimizer)
    is_whole = all(type(p) is nn.Parameter for p in parameters)
    one_device = len({p.device for p in parameters}) == 1
    return is_whole and one_device and all(group["fused"] for group in optimizer.param_groups)


def saves_time(optimizer: torch.optim.Optimizer) -> bool:
    """Return True if the parameters' device works beside the host, which could wait for it."""
    device = torch.accelerator.current_accelerator()
    return device is not None and _parameters_of(optimizer)[0].device.type == device.type


class _RunningMoments:
    """The buffers of a model's normalisations, as they were before a batch."""

    def __init__(self, model: nn.Module) -> None:
        buffers = [
            b for m in model.modules() if isinstance(m, _NormBase) for b in m.buffers(recurse=False)
        ]
        by_type = {b.dtype: [o for o in buffers if o.dtype == b.dtype] for b in buffers}
        self._groups, self._kept = list(by_type.values()), [torch.empty(0)] * len(by_type)

    def keep(self) -> None:
        """Copy the buffers, one tensor for each type of numbers."""
        self._kept = [_flat(group) for group in self._groups]

    def restore(self, bad: Tensor) -> None:
        """Give the buffers back what was kept where `bad` is True, a scalar on their device."""
        for group, kept in zip(self._groups, self._kept, strict=True):
            values = torch.split(torch.where(bad, kept, _flat(group)), [b.numel() for b in group])
            torch._foreach_copy_(group, [v.view_as(b) for v, b in zip(values, group, strict=True)])


def _flat(group: list[Tensor]) -> Tensor:
    return torch.cat([buffer.flatten() for buffer in group])


def _parameters_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _host_copy(flag: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """Return a tensor on the host, and the event that tells when it is written, None for now."""
    if not flag.is_cuda:
        return torch.zeros((), dtype=flag.dtype), None
    return torch.zeros((), dtype=flag.dtype, pin_memory=True), torch.cuda.Event()  # type: ignore[no-untyped-call]


def _processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _bad(reports: list[StepReport]) -> StepReport:
    """Return the first report of a loss that is not finite, or the last one."""
    bad = (report for report in reports if not bool(report.sums.isfinite().all()))
    return next(bad, reports[-1])


def _fault_of_all(fault: Fault) -> Fault:
    """Return the same fault in all processes: a loss that is not finite before gradients."""
    if _processes() == 1:
        return fault
    faults: list[Any] = [None] * _processes()
    dist.all_gather_object(faults, fault)
    found: Fault = min(faults, key=lambda one: one[0] == GRADIENTS)
    return found


GRADIENTS = "gradients"  # the argument that an error of gradients names
