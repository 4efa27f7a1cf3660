"""Model-climate quantiles for the extreme forecast index (EFI).

The model climate of a start date, at a step and channel, are all members of the start dates within
a window of the calendar around it (9 dates: the date itself and four on either side), in the
climate years of a protocol. `model_climate` gives its quantiles for any dates, lazily;
`write_climate` writes them into a store, `stored_climate` reads them from it.
"""

from ens10.quantiles.model import model_climate, stored_climate
from ens10.quantiles.options import ClimateOptions, parse_climate
from ens10.quantiles.write import check_climate, write_climate

__all__ = [
    "ClimateOptions", "check_climate", "model_climate", "parse_climate", "stored_climate",
    "write_climate",
]  # fmt: skip
