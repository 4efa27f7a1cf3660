"""Catalogue of ENS-10: variables, levels, lead times, members, dates, licence.

Source: Ashkboos et al. (2022), "ENS-10: A Dataset For Post-Processing Ensemble Weather
Forecasts", NeurIPS Datasets and Benchmarks, arXiv 2206.14786, and the ECMWF parameter database.
The catalogue describes ENS-10; nothing that reads data assumes its grid, dates or members.
"""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

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


_TABLE = (
    # name, short, param, kind, units, long name, CF standard name, valid range
    (
        "sst",
        "sst",
        34,
        "sfc",
        "K",
        "sea surface temperature",
        "sea_surface_temperature",
        (260.0, 320.0),
    ),
    ("tcw", "tcw", 136, "sfc", "kg m-2", "total column water", "", (-1.0, 300.0)),
    (
        "tcwv",
        "tcwv",
        137,
        "sfc",
        "kg m-2",
        "total column water vapour",
        "atmosphere_mass_content_of_water_vapor",
        (-1.0, 200.0),
    ),
    (
        "cp",
        "cp",
        143,
        "sfc",
        "m",
        "convective precipitation",
        "lwe_thickness_of_convective_precipitation_amount",
        (-0.01, 5.0),
    ),
    (
        "msl",
        "msl",
        151,
        "sfc",
        "Pa",
        "mean sea level pressure",
        "air_pressure_at_mean_sea_level",
        (85000.0, 110000.0),
    ),
    ("tcc", "tcc", 164, "sfc", "1", "total cloud cover", "cloud_area_fraction", (-0.01, 1.01)),
    (
        "u10",
        "10u",
        165,
        "sfc",
        "m s-1",
        "10 metre U wind component",
        "eastward_wind",
        (-100.0, 100.0),
    ),
    (
        "v10",
        "10v",
        166,
        "sfc",
        "m s-1",
        "10 metre V wind component",
        "northward_wind",
        (-100.0, 100.0),
    ),
    ("t2m", "2t", 167, "sfc", "K", "2 metre temperature", "air_temperature", (170.0, 340.0)),
    (
        "tp",
        "tp",
        228,
        "sfc",
        "m",
        "total precipitation",
        "lwe_thickness_of_precipitation_amount",
        (-0.01, 5.0),
    ),
    ("skt", "skt", 235, "sfc", "K", "skin temperature", "surface_temperature", (150.0, 360.0)),
    ("z", "z", 129, "pl", "m2 s-2", "geopotential", "geopotential", (-20000.0, 500000.0)),
    ("t", "t", 130, "pl", "K", "temperature", "air_temperature", (130.0, 340.0)),
    ("u", "u", 131, "pl", "m s-1", "U component of wind", "eastward_wind", (-200.0, 200.0)),
    ("v", "v", 132, "pl", "m s-1", "V component of wind", "northward_wind", (-200.0, 200.0)),
    ("q", "q", 133, "pl", "kg kg-1", "specific humidity", "specific_humidity", (-0.001, 0.05)),
    (
        "w",
        "w",
        135,
        "pl",
        "Pa s-1",
        "vertical velocity",
        "lagrangian_tendency_of_air_pressure",
        (-100.0, 100.0),
    ),
    ("d", "d", 155, "pl", "s-1", "divergence", "divergence_of_wind", (-0.05, 0.05)),
)

VARIABLES: dict[str, Variable] = {row[0]: Variable(*row) for row in _TABLE}  # type: ignore[arg-type]
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
