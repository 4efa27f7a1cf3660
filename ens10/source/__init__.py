"""Files of any origin, opened as one lazy dataset in this package's layout."""

from ens10.source.layout import FORECAST_DIMS, as_truth, tidy
from ens10.source.opening import open_source
from ens10.source.times import with_valid_time

__all__ = ["FORECAST_DIMS", "as_truth", "open_source", "tidy", "with_valid_time"]
