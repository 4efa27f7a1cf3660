"""Which fields of ERA5, at which hours and how finely."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ens10.catalog import LEVELS_HPA, VARIABLES
from ens10.channels import resolve, split
from ens10.errors import ArgumentError

# The same names in ARCO-ERA5 and in the requests of the Climate Data Store.
ERA5_NAMES = {
    "sst": "sea_surface_temperature",
    "tcw": "total_column_water",
    "tcwv": "total_column_water_vapour",
    "msl": "mean_sea_level_pressure",
    "tcc": "total_cloud_cover",
    "u10": "10m_u_component_of_wind",
    "v10": "10m_v_component_of_wind",
    "t2m": "2m_temperature",
    "skt": "skin_temperature",
    "z": "geopotential",
    "t": "temperature",
    "u": "u_component_of_wind",
    "v": "v_component_of_wind",
    "q": "specific_humidity",
    "w": "vertical_velocity",
    "d": "divergence",
}
_ACCUMULATED = ("tp", "cp")


@dataclass(frozen=True)
class Choice:
    """What is wanted of ERA5.

    Attributes:
        hours: valid hours (UTC), rising.
        surface: variables at the surface, by our names.
        upper: variables on levels.
        levels: hPa, of every variable on levels.
        spacing: degrees between grid points.
    """

    hours: tuple[datetime, ...]
    surface: tuple[str, ...]
    upper: tuple[str, ...]
    levels: tuple[int, ...]
    spacing: float

    @property
    def variables(self) -> tuple[str, ...]:
        """All variables, by our names."""
        return self.surface + self.upper

    @property
    def field_count(self) -> int:
        """Fields an hour."""
        return len(self.surface) + len(self.upper) * len(self.levels)


def choose(hours: Sequence[datetime], fields: Sequence[str], spacing: float) -> Choice:
    """The choice that some channels amount to.

    Every variable on levels is taken at each of the levels, since ERA5 comes so and a dataset is
    rectangular: z500 and t850 give z and t at 500 and 850 hPa.

    Args:
        hours: valid hours.
        fields: channels such as t2m, 2t, z500 or t_850.
        spacing: degrees between grid points.

    Raises:
        UnknownNameError: a channel that ENS-10 does not have.
        ArgumentError: a channel that cannot be truth, or no spacing.
    """
    if not spacing > 0:
        raise ArgumentError("spacing", f"{spacing:g} degrees make no grid", "Give 0.5 or 0.25")
    known = [name for name, v in VARIABLES.items() if v.kind == "sfc"]
    known += [f"{n}_{h}" for n, v in VARIABLES.items() if v.kind == "pl" for h in LEVELS_HPA]
    pairs = [split(resolve(channel, known, "fields")) for channel in fields]
    for name, _ in pairs:
        if name in _ACCUMULATED:
            raise ArgumentError(
                "fields",
                f"{name} of ERA5 is the sum of one hour, and that of the forecasts is the sum "
                "since the start: the one is no truth of the other",
                "Leave it out",
            )
    wanted = {name for name, _ in pairs}
    return Choice(
        hours=tuple(hours),
        surface=tuple(n for n, v in VARIABLES.items() if v.kind == "sfc" and n in wanted),
        upper=tuple(n for n, v in VARIABLES.items() if v.kind == "pl" and n in wanted),
        levels=tuple(sorted({level for _, level in pairs if level is not None})),
        spacing=spacing,
    )
