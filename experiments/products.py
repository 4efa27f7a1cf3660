"""Products of a forecast distribution: quantiles, probabilities of thresholds, members."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.distributions import Distribution
from ens10.metrics.distributions.base import FIELD
from ens10.models.statistical.coupling import couple, generator_of

Coupling = Literal["ecc", "schaake", "sample"]
_THRESHOLD = re.compile(r"\s*([<>])\s*([-+.\deE]+)\s*")
_SIDES = {">": "above", "<": "below"}
# name: its dimensions, values (on the host) and attributes
Fields = dict[str, tuple[tuple[str, ...], np.ndarray[Any, Any], dict[str, Any]]]


@dataclass(frozen=True)
class Products:
    """The variables to write besides the parameters of the forecast distributions.

    Attributes:
        quantiles: levels between 0 and 1.
        probabilities: thresholds in the target's units, such as ">303.15" and "<273.15".
        members: how members get their pattern in space: "ecc" in the order of the raw members
            (Schefzik et al. 2013, doi:10.1214/13-STS443), "schaake" in the order of the truth on
            dates of the past (Clark et al. 2004), "sample" drawn at each point by itself. None for
            no members.
        seed: of what is drawn.
        moments: whether mean and standard deviation are written.

    Raises:
        ArgumentError: a level outside (0, 1), or a threshold that cannot be read.
        UnknownNameError: another kind of members.
    """

    quantiles: Sequence[float] = ()
    probabilities: Sequence[str] = ()
    members: Coupling | None = None
    seed: int = 0
    moments: bool = False

    def __post_init__(self) -> None:
        for level in self.quantiles:
            if not 0 < level < 1:
                raise ArgumentError("quantiles", f"{level} is not between 0 and 1", "Use 0.9, say")
        if self.members is not None and self.members not in get_args(Coupling):
            raise UnknownNameError("members", self.members, get_args(Coupling))
        self.thresholds()

    def thresholds(self) -> dict[str, list[float]]:
        """Return the thresholds of "above" and "below", each in ascending order."""
        thresholds: dict[str, list[float]] = {}
        for text in self.probabilities:
            match = _THRESHOLD.fullmatch(text)
            try:
                side, value = _SIDES[match[1]], float(match[2])  # type: ignore[index]
            except (TypeError, ValueError):
                reason = f"{text!r} is not a threshold"
                raise ArgumentError("probability", reason, "Write '>303.15' or '<273.15'") from None
            thresholds.setdefault(side, []).append(value)
        return {side: sorted(set(values)) for side, values in sorted(thresholds.items())}

    def coordinates(self) -> dict[str, list[float]]:
        """Return the values of the dimensions that `fields` adds, without `number`."""
        coords = {f"threshold_{side}": values for side, values in self.thresholds().items()}
        return ({"quantile_level": sorted(self.quantiles)} if self.quantiles else {}) | coords

    def fields(
        self, forecast: Distribution, name: str, units: str, template: Tensor | None, dates: Tensor
    ) -> Fields:
        """Return the products of a forecast of N dates.

        Args:
            forecast: on tensors.
            name: of the target; members have it too, as in a raw forecast.
            units: of the target.
            template: fields (N, M, H, W) whose order the members take; for "sample" only its shape
                counts. None without members.
            dates: (N,) valid dates in seconds.
        """
        fields: Fields = {}
        for moment in ("mean", "std") if self.moments else ():
            attrs = {"units": units, "long_name": f"{moment} of the forecast of {name}"}
            fields[f"{name}_{moment}"] = FIELD, _on_host(getattr(forecast, moment)), attrs
        if self.quantiles:
            values = forecast.quantile(np.array(sorted(self.quantiles))).transpose(0, 1)
            attrs = {"units": units, "long_name": f"quantiles of {name}"}
            fields[f"{name}_quantile"] = _field("quantile_level", values, attrs)
        for side, thresholds in self.thresholds().items():
            tail_probability = forecast.above if side == "above" else forecast.cdf_below
            values = torch.stack(
                [_probability(tail_probability, t, forecast) for t in thresholds], 1
            )
            attrs = {"units": "1", "long_name": f"probability of {name} {side} the threshold"}
            fields[f"{name}_probability_{side}"] = _field(f"threshold_{side}", values, attrs)
        if template is not None:
            attrs = {"units": units, "long_name": f"corrected members of {name}"}
            members = self._members(forecast, template, dates)
            fields[name] = _field("number", members, {**attrs, "members_by": str(self.members)})
        return fields

    def _members(self, forecast: Distribution, template: Tensor, dates: Tensor) -> Tensor:
        if self.members != "sample":
            members: Tensor = couple(forecast, template, dates, seed=self.seed).members
            return members
        date = int(dates[0])
        seed = int(generator_of(date, self.seed, "sample").integers(2**62))
        generator = torch.Generator(template.device).manual_seed(seed)
        sample: Tensor = forecast.sample(template.shape[1], generator)
        return sample


def _probability(tail_probability: Any, threshold: float, forecast: Distribution) -> Tensor:
    probability: Tensor = tail_probability(torch.full_like(forecast.like, threshold))
    return probability


def _field(
    core: str, values: Tensor, attributes: Mapping[str, Any]
) -> tuple[tuple[str, ...], np.ndarray[Any, Any], dict[str, Any]]:
    dims = (FIELD[0], core, *FIELD[1:])
    return dims, _on_host(values), dict(attributes)


def _on_host(values: Tensor) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = values.detach().cpu().float().numpy()
    return array
