"""Statistical methods of several targets and lead times, fitted in one run."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.loader.datamodule import EnsembleDataModule
from ens10.metrics.distributions import Distribution
from ens10.models.statistical.base import StatisticalMethod, join_dates, single_dates
from ens10.models.statistical.sliding_window import SlidingWindow

_TARGET_FIELDS = ("raw_mean", "raw_std", "target", "weights", "members")


def by_target(batch: Batch) -> list[Batch]:
    """Return the batch of each target, with fields (N, H, W); see `Batch`."""
    if batch["raw_mean"].ndim < 4:
        return [batch]
    fields = {name: batch[name].unbind(1) for name in _TARGET_FIELDS if name in batch}  # type: ignore[literal-required]
    count = batch["raw_mean"].shape[1]
    parts = [{name: values[n] for name, values in fields.items()} for n in range(count)]
    return [cast("Batch", {**batch, **part}) for part in parts]


class TargetMethods(nn.Module):
    """A copy of a statistical method for each of several targets and lead times.

    Each is fitted to the training dates of its target and lead time alone, so that its coefficients
    are those of a run of that target and lead time.

    Args:
        method: the method, without coefficients.
        leads: lead times.
        scales: of each target, in its units, for the mean loss over targets.

    Attributes:
        methods: the copies, ordered by lead time, then target.
    """

    def __init__(
        self, method: StatisticalMethod, leads: Sequence[float], scales: Sequence[float]
    ) -> None:
        super().__init__()
        self.leads: Tensor
        self.scales: Tensor
        self.register_buffer("leads", torch.tensor(leads, dtype=torch.float32))
        self.register_buffer("scales", torch.tensor(scales, dtype=torch.float32))
        self.methods = nn.ModuleList(deepcopy(method) for _ in range(len(leads) * len(scales)))

    @classmethod
    def of_data(
        cls, method: "StatisticalMethod | TargetMethods", data: object, *, one_target: bool = False
    ) -> "StatisticalMethod | TargetMethods":
        """Return a method for the targets and lead times of a data module: itself if one of each.

        Args:
            method: the method, or the methods of an earlier call.
            data: the trainer's data module.
            one_target: True for a copy for each lead time, of one of the targets.
        """
        if isinstance(method, cls) or not isinstance(data, EnsembleDataModule):
            return method
        leads = list(dict.fromkeys(part.step for part in data.parts))
        several = len(data.parts) > len(leads) and not one_target
        if len(leads) == 1 and not several:
            return method
        single = cast("StatisticalMethod", method)
        return cls(single, leads, data.target_scales if several else [1.0])

    @classmethod
    def of_state(
        cls,
        method: "StatisticalMethod | TargetMethods",
        state: Mapping[str, Any],
        prefix: str,
    ) -> "StatisticalMethod | TargetMethods":
        """Return the method, copied for the targets and lead times of a checkpoint.

        Args:
            method: the method of the configuration.
            state: the checkpoint's tensors.
            prefix: of the method's names in it.
        """
        tensors = [state.get(f"{prefix}{name}") for name in ("leads", "scales")]
        if isinstance(method, cls) or not all(
            isinstance(tensor, Tensor) and tensor.ndim == 1 for tensor in tensors
        ):
            return method
        leads, scales = (cast("Tensor", tensor).tolist() for tensor in tensors)
        start = f"{prefix}methods."
        copies = {n.removeprefix(start).partition(".")[0] for n in state if n.startswith(start)}
        if len(copies) != len(leads) * len(scales):
            return method  # its keys will not fit, which is the error
        return cls(cast("StatisticalMethod", method), leads, scales)

    @property
    def fitted_parameters(self) -> int:
        """Number of coefficients of all copies."""
        return sum(method.fitted_parameters for method in self._method_list)

    def collect(self, batch: Batch) -> None:
        """Add one training batch of any lead times; its arrays may be reused after the call."""
        places = self._lead_indices(batch)
        for lead in sorted(set(places.tolist())):
            lead_mask = places == lead
            part: Any = {key: cast("Tensor", value)[lead_mask] for key, value in batch.items()}
            for method, target_batch in zip(self._lead_methods(lead), by_target(part), strict=True):
                method.collect(target_batch)

    def solve(self) -> None:
        """Compute the coefficients of each copy.

        Raises:
            ArgumentError: nothing was collected.
        """
        for method in self._method_list:
            method.solve()

    def forward(self, batch: Batch) -> Distribution | tuple[Distribution, ...]:
        """Return the forecast for a batch, or that of each of several targets.

        Raises:
            ArgumentError: a lead time or a number of targets that were not fitted.
        """
        places = self._lead_indices(batch)
        targets = by_target(batch)
        if len(targets) != len(self.scales):
            reason = f"{len(targets)} in the data, {len(self.scales)} in the fit"
            raise ArgumentError("target", reason, "Name the targets of the fit")
        if len(set(places.tolist())) == 1:
            methods = self._lead_methods(int(places[0]))
            forecasts = [method(one) for method, one in zip(methods, targets, strict=True)]
        else:
            parts = [self._lead_methods(lead) for lead in places.tolist()]
            forecasts = [
                join_dates([of[n](one) for of, one in zip(parts, single_dates(each), strict=True)])
                for n, each in enumerate(targets)
            ]
        return forecasts[0] if len(forecasts) == 1 else tuple(forecasts)

    def set_past(self, data: EnsembleDataModule) -> None:
        """Give the sliding windows access to the past dates of their target and lead time."""
        for number, method in enumerate(self._method_list):
            lead, target = divmod(number, len(self.scales))
            set_past(method, data, lead, target)

    def of(self, step: float, target: int) -> StatisticalMethod:
        """Return the method of a lead time (hours) and the target of index `target`.

        Raises:
            ArgumentError: a lead time that was not fitted.
        """
        batch = {"dates": torch.zeros(1), "steps": torch.tensor([step])}
        lead = self._lead_indices(cast("Batch", batch))
        return self._lead_methods(int(lead[0]))[target]

    @property
    def _method_list(self) -> list[StatisticalMethod]:
        return cast("list[StatisticalMethod]", list(self.methods))

    def _lead_methods(self, lead: int) -> list[StatisticalMethod]:
        count = len(self.scales)
        return self._method_list[lead * count : (lead + 1) * count]

    def _lead_indices(self, batch: Batch) -> Tensor:
        """Return the index of each element's lead time among `leads`, (N,)."""
        count = len(batch["dates"])
        if "steps" not in batch and len(self.leads) == 1:
            return torch.zeros(count, dtype=torch.int64)
        steps = batch["steps"].to(self.leads) if "steps" in batch else torch.full((count,), -1.0)
        same = steps[:, None] == self.leads
        if not bool(same.any(1).all()):
            lead_names = ", ".join(f"{lead:g}" for lead in self.leads.tolist())
            reason = f"the data have other lead times than the fit, which has {lead_names}"
            raise ArgumentError("step", reason, "Name the lead times of the fit")
        return same.int().argmax(1).cpu()


def set_past(method: nn.Module, data: EnsembleDataModule, lead: int = 0, target: int = 0) -> None:
    """Give the sliding windows within a method access to the past dates of the data.

    Args:
        method: the method.
        data: with the past forecasts and their truth.
        lead: index of its lead time.
        target: index of its target.
    """

    def past(date: int, days: int) -> list[Batch]:
        return [by_target(batch)[target] for batch in data.past(date, days, lead)]

    for window in method.modules():
        if isinstance(window, SlidingWindow):
            window.past = past
