"""What forecasts of an event are worth to those who can protect themselves at a cost."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics.events.decomposition import table
from ens10.metrics.events.roc import contingency_tables, rates


def relative_economic_value(
    sums: xr.Dataset, *, cost_loss: float | Sequence[float] | None = None
) -> xr.Dataset:
    """Relative economic value of warnings at every threshold, and its envelope.

    A user with the ratio a of the cost of protection to the loss saves, as a share of what a
    perfect forecast would save beyond the knowledge of the observed frequency s,
    V = [min(a, s) - F a (1 - s) + H s (1 - a) - s] / [min(a, s) - s a], with the hit rate H and
    the false alarm rate F (Richardson 2000, doi:10.1002/qj.49712656313). The envelope is the value
    if each user takes the best threshold. It is 0 or more, since to protect always and never
    are among them, and its largest value is that of H - F, at a = s.

    Args:
        sums: of `event_sums`, merged at will.
        cost_loss: ratios a in (0, 1); 0.01, 0.02, ... 0.99 if None.

    Returns:
        A Dataset of `value` over `cost_loss`, `threshold` (see `contingency_tables`) and the
        dimensions of `sums` without `bin`, and `envelope` without `threshold`; NaN where the
        event happened always or never.

    Raises:
        ArgumentError: ratios outside (0, 1); not the sums of `event_sums`.
    """
    given = np.arange(1, 100) / 100 if cost_loss is None else cost_loss
    ratios = np.atleast_1d(np.asarray(given, dtype=np.float64))
    if ratios.ndim != 1 or not bool(((ratios > 0) & (ratios < 1)).all()):
        raise ArgumentError("cost_loss", f"expected ratios between 0 and 1, got {cost_loss}")
    tables = contingency_tables(sums)
    hit_rate, false_alarm_rate = rates(tables)
    events = tables["hits"] + tables["misses"]
    total = events + tables["false_alarms"] + tables["correct_negatives"]
    s = (events / total.where(total > 0)).isel(threshold=0, drop=True)
    a = xr.DataArray(ratios, dims="cost_loss", coords={"cost_loss": ratios})
    least = a.where(a < s, s)
    saved = least - false_alarm_rate * a * (1 - s) + hit_rate * s * (1 - a) - s
    value = saved / (least - s * a)
    found = {"value": value, "envelope": value.max("threshold", skipna=False)}
    return table(found, tables.attrs)
