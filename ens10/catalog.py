"""Catalogue of ENS-10: variables, levels, lead times, members, dates, licence.

Source: Ashkboos et al. (2022), "ENS-10: A Dataset For Post-Processing Ensemble Weather
Forecasts", NeurIPS Datasets and Benchmarks, arXiv 2206.14786, and the ECMWF parameter database.
The catalogue describes ENS-10; nothing that reads data assumes its grid, dates or members.
"""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal, cast

from ens10.errors import UnknownNameError

Kind = Literal["sfc", "pl"]


@dataclass(frozen=True)
class Variable:
    """One meteorological variable.

    Attributes:
        name: cfgrib's name, used in stores and options.
        short_name: the GRIB short name, accepted as an alias.
        param_id: ECMWF parameter number (table 128).
        kind: "sfc" for surface fields, "pl" for pressure levels.
        units: as in the GRIB files.
        long_name: in words.
        standard_name: CF standard name, or "" where CF has none.
        valid_range: values outside it cannot be this variable in these units.
    """

    name: str
    short_name: str
    param_id: int
    kind: Kind
    units: str
    long_name: str
    standard_name: str
    valid_range: tuple[float, float]

    @property
    def attributes(self) -> dict[str, str]:
        """CF attributes of a field of this variable."""
        cf_attribute = {"standard_name": self.standard_name} if self.standard_name else {}
        return {"units": self.units, "long_name": self.long_name, **cf_attribute}


# name, GRIB short name, parameter, kind and valid range; units; long name; CF standard name
_TABLE = """
sst sst 34 sfc 260 320; K; sea surface temperature; sea_surface_temperature
tcw tcw 136 sfc -1 300; kg m-2; total column water;
tcwv tcwv 137 sfc -1 200; kg m-2; total column water vapour; atmosphere_mass_content_of_water_vapor
cp cp 143 sfc -0.01 5; m; convective precipitation; lwe_thickness_of_convective_precipitation_amount
msl msl 151 sfc 85000 110000; Pa; mean sea level pressure; air_pressure_at_mean_sea_level
tcc tcc 164 sfc -0.01 1.01; 1; total cloud cover; cloud_area_fraction
u10 10u 165 sfc -100 100; m s-1; 10 metre U wind component; eastward_wind
v10 10v 166 sfc -100 100; m s-1; 10 metre V wind component; northward_wind
t2m 2t 167 sfc 170 340; K; 2 metre temperature; air_temperature
tp tp 228 sfc -0.01 5; m; total precipitation; lwe_thickness_of_precipitation_amount
skt skt 235 sfc 150 360; K; skin temperature; surface_temperature
z z 129 pl -20000 500000; m2 s-2; geopotential; geopotential
t t 130 pl 130 340; K; temperature; air_temperature
u u 131 pl -200 200; m s-1; U component of wind; eastward_wind
v v 132 pl -200 200; m s-1; V component of wind; northward_wind
q q 133 pl -0.001 0.05; kg kg-1; specific humidity; specific_humidity
w w 135 pl -100 100; Pa s-1; vertical velocity; lagrangian_tendency_of_air_pressure
d d 155 pl -0.05 0.05; s-1; divergence; divergence_of_wind
"""


def _variable(row: str) -> Variable:
    keys, units, words, standard_name = (part.strip() for part in row.split(";"))
    name, short, param, kind, low, high = keys.split()
    limits = (float(low), float(high))
    return Variable(
        name, short, int(param), cast("Kind", kind), units, words, standard_name, limits
    )


VARIABLES = {row.split()[0]: _variable(row) for row in _TABLE.strip().splitlines()}
# of synthetic worlds and other data; ENS-10 lacks it
WIND_SPEED = Variable(
    "si10", "10si", 207, "sfc", "m s-1", "10 metre wind speed", "wind_speed", (-0.01, 150.0)
)
LEVELS_HPA = (10, 50, 100, 200, 300, 400, 500, 700, 850, 925, 1000)
STEPS_HOURS = (0, 24, 48)
MEMBERS = tuple(range(1, 11))
HINDCAST_YEARS = tuple(range(1998, 2018))
GRID_SHAPE = (361, 720)
MODEL_YEAR = 2018
TARGETS = ("z500", "t850", "t2m")
ACCUMULATED = ("tp", "cp")  # sums since the start of the forecast
# Mean rates, by GRIB short name and CF standard name, and the variable that they are the rate of
RATES = {
    **dict.fromkeys(("tprate", "avg_tprate", "mtpr", "prate", "precipitation_flux"), "tp"),
    **dict.fromkeys(("cprate", "avg_cpr", "mcpr", "cpr", "convective_precipitation_flux"), "cp"),
}
DATA_LICENCE = "CC BY 4.0 (the ENS-10 data; the code of this package is Apache-2.0)"
CITATION = (
    "Ashkboos, S., Huang, L., Dryden, N., Ben-Nun, T., Dueben, P., Gianinazzi, L., Kummer, L., "
    "and Hoefler, T. (2022). ENS-10: A Dataset For Post-Processing Ensemble Weather Forecasts. "
    "NeurIPS 2022 Datasets and Benchmarks. arXiv:2206.14786"
)

_BY_NAME = {**VARIABLES, WIND_SPEED.name: WIND_SPEED}
_ALIASES = {v.short_name: v.name for v in _BY_NAME.values()}
_BY_PARAM = {v.param_id: v for v in _BY_NAME.values()}


def variable(name: str) -> Variable:
    """Return the variable called `name`, which may be a GRIB short name such as `2t`.

    The wind speed `si10`, which ENS-10 lacks, is included.

    Examples:
        >>> from ens10.catalog import variable
        >>> t2m = variable("2t")
        >>> t2m.name, t2m.units, t2m.valid_range
        ('t2m', 'K', (170.0, 340.0))

    Raises:
        UnknownNameError: no such variable.
    """
    entry = _BY_NAME.get(_ALIASES.get(name, name))
    if entry is None:
        raise UnknownNameError("variable", name, VARIABLES)
    return entry


def variable_of_param(param_id: int) -> Variable | None:
    """Return the variable with this ECMWF parameter number, or None if there is none."""
    return _BY_PARAM.get(param_id)


def names_of_kind(kind: Kind) -> tuple[str, ...]:
    """Return the names of the variables of one kind, in the catalogue's order."""
    return tuple(v.name for v in VARIABLES.values() if v.kind == kind)


def month_days() -> tuple[str, ...]:
    """Return the 105 start dates as MMDD: every Monday and Thursday of 2018.

    Examples:
        >>> from ens10.catalog import month_days
        >>> len(month_days()), month_days()[:3]
        (105, ('0101', '0104', '0108'))
    """
    days = (date(MODEL_YEAR, 1, 1) + timedelta(days=i) for i in range(365))
    return tuple(f"{d:%m%d}" for d in days if d.weekday() in (0, 3))
