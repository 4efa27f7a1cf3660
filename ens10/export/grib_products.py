"""GRIB keys of the products of a corrected forecast: mean, spread, member, quantile, probability.

Edition 1 uses ECMWF's local definitions: types `em`, `es`, `pf`, `pb` (quantile i of n) and `ep`
(local definition 5, with the threshold). Edition 2 uses WMO's product definition templates. Those
for post-processed forecasts (4.71, 4.89, 4.199, 4.201; https://github.com/wmo-im/GRIB2, pull
request 348) can only be read by an ecCodes that has them.
"""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import eccodes

from ens10.errors import ArgumentError

REMEDY = "Write netCDF or Zarr"
_EDITION_2 = "Add --edition 2, or write netCDF or Zarr"
_DERIVED = {"em": 0, "es": 4}  # WMO's code table 4.7: mean, and spread of all members
_SIZE = "numberOfForecastsInEnsemble"  # those that mean and spread are derived from
# Product definition templates of edition 2 at a point in time and over an interval
_POINT, _INTERVAL = (0, 1), (8, 11)
_TEMPLATES = {
    "pf": (1, 11), "em": (2, 12), "es": (2, 12), "ep": (5, 9), "percentile": (6, 10), "pb": (86, 87)
}  # fmt: skip
_POST_PROCESSED = {
    "pf": (71, 73), "em": (199, 200), "es": (199, 200), "ep": (201, 202), "pb": (89, 90)
}  # fmt: skip
# The version of WMO's tables that added a template (code table 1.0)
_TABLES = {86: 27, 87: 27, 89: 35, 90: 35, 199: 37, 200: 37, 201: 37, 202: 37}
_POST_PROCESSED_FORECAST, _UNKNOWN = 13, 255  # code table 4.3, and any
_GENERATED = {"pf": 4, "em": 4, "es": 4, "ep": 5, "pb": 5}  # 4.3: ensemble, probability forecast
_MOST_IN_OCTET, _MOST_IN_TWO_OCTETS = 255, 65535
_MAX_SIGNED = {1: 2**15 - 1, 2: 2**31 - 1}  # of a threshold, by edition
Keys = dict[str, Any]


@dataclass(frozen=True)
class Encoding:
    """How corrected forecasts are written as GRIB.

    Attributes:
        edition: 1 or 2; None for that of the forecast's messages, 1 if it is not GRIB.
        post_processed: True if edition 2 uses WMO's templates for post-processed forecasts.

    Raises:
        ArgumentError: another edition, or these templates in edition 1.
    """

    edition: int | None = None
    post_processed: bool = False

    def __post_init__(self) -> None:
        if self.edition not in (None, 1, 2):
            raise ArgumentError("edition", f"GRIB has no edition {self.edition}", "Choose 1 or 2")
        if self.post_processed and self.edition != 2:
            reason = "only GRIB edition 2 has templates for post-processed forecasts"
            raise ArgumentError("post_processed", reason, "Add --edition 2")


@dataclass(frozen=True)
class GribProduct:
    """The product that one field of a corrected forecast is: mean, spread, member, ...

    Attributes:
        type: of ECMWF: "em" mean, "es" spread, "pf" member, "pb" quantile, "ep" probability.
        number: of a member or of a probability, from 1; None for a member that keeps that of the
            raw message.
        total: number of probabilities, or of the members that mean and spread are derived from.
        value: level of a quantile between 0 and 1, or threshold of a probability.
        above: True if a probability is that of values above the threshold.
    """

    type: Literal["em", "es", "pf", "pb", "ep"]
    number: int | None = None
    total: int = 0
    value: float = 0.0
    above: bool = True

    def keys_of_edition_1(self) -> Keys:
        """Return ECMWF's keys of a message of edition 1.

        Raises:
            ArgumentError: they cannot express the level or threshold.
        """
        if self.type == "pb":
            level, total = _quantile(self.value, _MOST_IN_OCTET, _EDITION_2)
            return {
                "type": "pb", "perturbationNumber": level, "numberOfForecastsInEnsemble": total
            }  # fmt: skip
        if self.type != "ep":
            return {"type": self.type, "perturbationNumber": self.number or 0}
        scale, integer = _scale_and_integer(self.value, _MAX_SIGNED[1], _EDITION_2)
        side = "lower" if self.above else "upper"
        return {
            "localDefinitionNumber": 5, "type": "ep", "forecastProbabilityNumber": self.number,
            "totalNumberOfForecastProbabilities": self.total,
            "thresholdIndicator": 1 if self.above else 2, "localDecimalScaleFactor": scale,
            f"{side}Threshold": integer,
        }  # fmt: skip

    def keys_of_edition_2(self, interval: bool, post_processed: bool) -> Keys:
        """Return WMO's keys of a message of edition 2.

        Args:
            interval: True if the field is of a time interval, such as an accumulation.
            post_processed: True to use the templates for post-processed forecasts.

        Raises:
            ArgumentError: they cannot express the level or threshold.
        """
        kind, keys = str(self.type), {}
        if self.type in _DERIVED:
            keys = {"derivedForecast": _DERIVED[self.type]}
        elif self.type == "pf":
            keys = {} if self.number is None else {"perturbationNumber": self.number}
        elif self.type == "ep":
            keys = self._event_keys()
        else:
            level, total = _quantile(self.value, _MOST_IN_TWO_OCTETS, REMEDY)
            keys = {"totalNumberOfQuantiles": total, "quantileValue": level}
            if total == 100 and not post_processed:
                kind, keys = "percentile", {"percentileValue": level}
        template = (_POST_PROCESSED if post_processed else _TEMPLATES)[kind][interval]
        return {"productDefinitionTemplateNumber": template, **keys}

    def _event_keys(self) -> Keys:
        """Return the keys of a probability's event in edition 2, by code table 4.9."""
        scale, integer = _scale_and_integer(self.value, _MAX_SIGNED[2], REMEDY)
        side, other_side = ("Lower", "Upper") if self.above else ("Upper", "Lower")
        return {
            "forecastProbabilityNumber": self.number,
            "totalNumberOfForecastProbabilities": self.total,
            "probabilityType": 3 if self.above else 4, f"scaleFactorOf{side}Limit": scale,
            f"scaledValueOf{side}Limit": integer, f"scaleFactorOf{other_side}Limit": None,
            f"scaledValueOf{other_side}Limit": None,
        }  # fmt: skip


def set_product(handle: Any, product: GribProduct, post_processed: bool) -> None:
    """Set the keys of a product in a message.

    Args:
        handle: ecCodes' handle of a raw message.
        product: of the message's field.
        post_processed: True to use the templates for post-processed forecasts.

    Raises:
        ArgumentError: the message does not take them.
    """
    edition, keys = eccodes.codes_get(handle, "edition"), {}
    if edition == 2:
        keys = _edition_2_keys(handle, product, post_processed)
    elif product.type != "pf" or product.number is not None:
        keys = product.keys_of_edition_1()
    try:
        for key, value in keys.items():
            if value is None:
                eccodes.codes_set_missing(handle, key)
            else:
                eccodes.codes_set(handle, key, value)
        if product.type in _DERIVED and eccodes.codes_is_defined(handle, _SIZE):
            eccodes.codes_set(handle, _SIZE, min(product.total, _MOST_IN_OCTET))
    except eccodes.CodesInternalError as error:
        reason = f"the message's GRIB header does not take {key}={value} ({error})"
        remedy = _EDITION_2 if edition == 1 else REMEDY
        if post_processed:
            remedy = "Leave out --post-processed, or update ecCodes"
        raise ArgumentError("format", reason, remedy) from error


def _edition_2_keys(handle: Any, product: GribProduct, post_processed: bool) -> Keys:
    """Return the keys of a product in a raw message of edition 2, in the order of setting them."""
    keeps_number = product.type == "pf" and product.number is None
    if keeps_number and not post_processed:
        return {}
    raw = eccodes.codes_get(handle, "productDefinitionTemplateNumber")
    if raw not in _POINT + _INTERVAL:
        reason = f"raw messages of product definition template 4.{raw} are not supported"
        raise ArgumentError("format", reason, REMEDY)
    keys = product.keys_of_edition_2(raw in _INTERVAL, post_processed)
    template = keys["productDefinitionTemplateNumber"]
    tables = max(_TABLES.get(template, 0), eccodes.codes_get(handle, "tablesVersion"))
    # only messages with ECMWF's local section have a type
    has_type = not keeps_number and eccodes.codes_is_defined(handle, "type")
    process: Keys = {"typeOfGeneratingProcess": _GENERATED[product.type]}
    if post_processed:
        process = {
            "typeOfGeneratingProcess": _POST_PROCESSED_FORECAST,
            "inputProcessIdentifier": eccodes.codes_get(handle, "generatingProcessIdentifier"),
            "inputOriginatingCentre": eccodes.codes_get(handle, "centre", int),
            "typeOfPostProcessing": _UNKNOWN,
        }
    return {
        "tablesVersion": tables, **({"type": product.type} if has_type else {}), **keys, **process
    }  # fmt: skip


def _quantile(level: float, most: int, remedy: str) -> tuple[int, int]:
    """Return a level as quantile i of n, with n = 100 where that is exact.

    Raises:
        ArgumentError: no n up to `most` expresses the level.
    """
    exact = Fraction(level).limit_denominator(most)
    if float(exact) != level:
        reason = f"no quantile i of n with n up to {most} is {level}"
        raise ArgumentError("quantiles", reason, remedy)
    factor = max(1, 100 // exact.denominator) if 100 % exact.denominator == 0 else 1
    return exact.numerator * factor, exact.denominator * factor


def _scale_and_integer(value: float, most: int, remedy: str) -> tuple[int, int]:
    """Return scale and integer of a threshold = integer * 10^-scale.

    Raises:
        ArgumentError: the threshold has too many digits.
    """
    exact = Decimal(repr(value)).normalize()
    scale = -int(exact.as_tuple().exponent)
    if scale < 0 and abs(value) <= most:
        scale = 0
    integer = int(exact.scaleb(scale))
    if abs(integer) > most:
        reason = f"the threshold {value} has too many digits for this GRIB edition"
        raise ArgumentError("probability", reason, remedy)
    return scale, integer
