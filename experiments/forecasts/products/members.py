"""Members of the forecast, with a pattern in space or without one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from ens10.errors import ArgumentError, UnknownNameError
from ens10.experiments.forecasts.products.base import (
    CorrectedDate,
    Fields,
    ForecastProduct,
    new_field,
)
from ens10.options import option

if TYPE_CHECKING:
    from torch import Tensor

Coupling = Literal["ecc", "schaake", "sample"]


@dataclass(frozen=True)
class MemberFields(ForecastProduct):
    """Corrected members, in the order of raw members or of past truth, or drawn at each point.

    ECC: Schefzik et al. 2013, doi:10.1214/13-STS443. Schaake shuffle: Clark et al. 2004,
    doi:10.1175/1525-7541(2004)005<0243:TSSAMF>2.0.CO;2.

    Attributes:
        members: ecc: in the order of the raw members; schaake: of the truth on dates of the past;
            sample: drawn at each point independently.
        seed: of what is drawn.

    Raises:
        UnknownNameError: another kind of members.
    """

    variables: ClassVar[tuple[str, ...]] = ("",)
    members: Coupling | None = option(None, metavar="KIND", type=str)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.members is not None and self.members not in get_args(Coupling):
            raise UnknownNameError("members", self.members, get_args(Coupling))

    @property
    def needs_members(self) -> bool:  # type: ignore[override]
        """Return True if the raw members give the order."""
        return self.members == "ecc"

    @property
    def needs_history(self) -> bool:  # type: ignore[override]
        """Return True if past truth gives the order."""
        return self.members == "schaake"

    def coordinates(self, date: CorrectedDate) -> dict[str, Any]:
        """Return the labels of the members, unless the forecast has members of its own.

        Raises:
            ArgumentError: its own members are not as many as the raw ones.
        """
        own = date.forecast.core_coordinates().get("number")
        if own is None:
            ecc, samples = self.members == "ecc", date.corrections.samples
            return {"number": list(samples.numbers if ecc else range(1, samples.members + 1))}
        count = date.corrections.member_count(date.batch)
        if len(own) != count:
            name = date.corrections.model.name
            reason = f"{name} forecasts {len(own)} members of its own, the raw ensemble has {count}"
            raise ArgumentError("members", reason, "Leave out `members`")
        return {}

    def fields(self, date: CorrectedDate) -> Fields:
        """Return the members of a date."""
        attributes = {
            "units": date.units,
            "long_name": f"corrected members of {date.target}",
            "members_by": str(self.members),
        }
        return {date.target: new_field("number", self._members(date), attributes)}

    def _members(self, date: CorrectedDate) -> "Tensor":
        from ens10.models.statistical.coupling import couple

        if self.members == "sample":
            return self._sample(date)
        members: Tensor = couple(
            date.forecast, self._template(date), date.batch["dates"], seed=self.seed
        ).members
        return members

    def _template(self, date: CorrectedDate) -> "Tensor":
        """Return the fields whose order at each point the members take, (1, M, H, W)."""
        if self.members == "schaake":
            return date.past_truth(self._count(date), self.seed)
        members: Tensor = date.features["members"]
        return members

    def _count(self, date: CorrectedDate) -> int:
        own = "number" in date.forecast.core_coordinates()
        corrections = date.corrections
        return corrections.member_count(date.batch) if own else corrections.samples.members

    def _sample(self, date: CorrectedDate) -> "Tensor":
        import torch

        from ens10.models.statistical.coupling import generator_of

        key = generator_of(int(date.batch["dates"][0]), self.seed, "sample")
        generator = torch.Generator(date.features["raw_mean"].device)
        generator.manual_seed(int(key.integers(2**62)))
        sample: Tensor = date.forecast.sample(self._count(date), generator)
        return sample
