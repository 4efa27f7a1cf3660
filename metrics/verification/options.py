"""The settings of scoring: one object from the command line to the blocks of dates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

from ens10.errors import UnknownNameError
from ens10.grid import Weighting
from ens10.metrics.states import NanPolicy
from ens10.metrics.verification.alignment import Join

PIT_BINS = 20
Box = tuple[float, float, float, float]  # south, north, west, east edge in degrees
_EFI_KEYWORDS = {  # keywords of scoring functions and the attributes of `EFIOptions`
    "raw": "raw",
    "climate": "climate",
    "efi_method": "method",
    "scores_raw": "scores_raw",
}


@dataclass(frozen=True)
class EFIOptions:
    """Settings of the EECRPS: the CRPS weighted by the raw ensemble's extreme forecast index (EFI).

    Attributes:
        raw: the raw ensemble on the dates and grid of the forecast: a forecast of members, or an
            index that `extremes.frozen_efi` returned (a `FrozenEFI` of DataArrays, or the result
            of its `to_dataarray`). It must not be the scored forecast itself: values are compared
            date by date, and so is the attribute `forecast_name`.
        climate: quantiles of the model climate by date, over time [, step] [, level], quantile,
            latitude, longitude, such as those of `ens10.quantiles.stored_climate`.
        method: "exact", "ecmwf" or "ens10-paper", see `extremes.efi`.
        scores_raw: True if the scored forecast is the raw ensemble itself.
    """

    raw: Any = None
    climate: Any = None
    method: str = "exact"
    scores_raw: bool = False


@dataclass(frozen=True)
class ScoringOptions:
    """Settings of `score_states` and `verify`.

    Functions that take `options` also accept each of these settings as a keyword, and the settings
    of `EFIOptions` as `raw`, `climate`, `efi_method` and `scores_raw`.

    Examples:
        >>> from ens10.metrics.verification.options import ScoringOptions
        >>> options = ScoringOptions(by=["latitude_band"]).with_settings({"efi_method": "ecmwf"})
        >>> options.by, options.efi.method, options.nan
        (['latitude_band'], 'ecmwf', 'omit')

    Attributes:
        weights: weights of the rows of the grid: "cell" areas, "cos" or "none".
        by: zones that are summed separately in addition to the whole grid ("latitude_band",
            "surface", "region"); `verify` also takes the groups of `summarise`.
        nan: "omit" leaves out points where truth or forecast is missing (they are not counted);
            "propagate" makes the sums of the date NaN. Maps and histograms always omit.
        join: "exact" raises an error about dates without truth or without any value; "inner"
            leaves them out and warns.
        bins: number of bins of the PIT histogram.
        seed: seed of random numbers: ranks among ties, the position within a rank, and the
            bootstrap of `verify`.
        bands: latitude bands: names, or edges in degrees, see `groups.latitude_bands`.
        land: fraction of land, 0 to 1, over latitude and longitude, for "surface".
        regions: south, north, west, east edge of each region by name, in degrees.
        climatology: mean state that anomalies of the anomaly correlation refer to, over latitude,
            longitude and any of time, step, level, month and dayofyear (of the valid date).
        thresholds: quantiles of the climate for scores of local extremes, over quantile_level and
            dimensions such as those of `climatology`; see `monthly_quantiles`.
        truth_error: standard deviation of the truth's errors, target units; forecasts are then
            those of the truth with its errors, see `with_truth_error`.
        scheduler: where blocks are processed: None for this process, "threads", "processes", or a
            `distributed.Client` or its address.
        progress: True to show a progress bar.
        efi: the raw ensemble and the climate that the EECRPS needs.

    Raises:
        UnknownNameError: an unknown weighting, policy or join.
    """

    weights: Weighting = "cell"
    by: Sequence[str] = ()
    nan: NanPolicy = "omit"
    join: Join = "exact"
    bins: int = PIT_BINS
    seed: int = 0
    bands: Any = None
    land: Any = None
    regions: Mapping[str, Box] | None = None
    climatology: Any = None
    thresholds: Any = None
    truth_error: float = 0.0
    scheduler: Any = None
    progress: bool = False
    efi: EFIOptions = field(default_factory=EFIOptions)

    def __post_init__(self) -> None:
        for name, choices in (("weights", Weighting), ("nan", NanPolicy), ("join", Join)):
            value = getattr(self, name)
            if value not in get_args(choices):
                raise UnknownNameError(name, value, get_args(choices))

    def with_settings(self, settings: Mapping[str, Any]) -> "ScoringOptions":
        """Return these options with some settings replaced.

        Args:
            settings: by the names of the attributes, or `raw`, `climate`, `efi_method` and
                `scores_raw` of the EFI.

        Raises:
            UnknownNameError: no such setting, or an unknown value.
        """
        names = {*(attribute.name for attribute in fields(self)), *_EFI_KEYWORDS}
        for name in settings:
            if name not in names:
                raise UnknownNameError("options", name, sorted(names))
        efi = {_EFI_KEYWORDS[k]: v for k, v in settings.items() if k in _EFI_KEYWORDS}
        others = {k: v for k, v in settings.items() if k not in _EFI_KEYWORDS}
        if efi:
            others["efi"] = replace(others.get("efi", self.efi), **efi)
        return replace(self, **others)
