"""The EECRPS of a cell: CRPS weighted by how extreme the raw ensemble is in the model climate."""

from pathlib import Path
from typing import Any

import numpy.typing as npt
import xarray as xr

from ens10.durable import whole_path
from ens10.experiments import provenance
from ens10.experiments.matrix.cells import EXTREMES, Cell
from ens10.experiments.raw_ensemble import open_raw, with_name
from ens10.experiments.reading import open_predictions
from ens10.experiments.statefile import save_states
from ens10.metrics import score_states
from ens10.protocol import Protocol, reference_of

SCORE = "eecrps"


def score_extremes(cell: Cell) -> None:
    """Writes the states of a predicted run's EECRPS into its folder.

    The index is that of all raw members, also for an ensemble of fewer, so that forecasts are
    weighted alike. The climate is the store's if it has that of the cell's protocol, and is made
    from the members otherwise, which also says by which method the index is made.

    Args:
        cell: predicted.

    Raises:
        Ens10Error: no members, or too few years or dates for a climate.
    """
    known = provenance.read(cell.run)
    forecast, truth = open_predictions(cell.run)
    rules = provenance.rules_of(known)
    states = score_states(
        with_name(forecast, cell.run),
        truth,
        [SCORE],
        weights=known["weights"],
        raw=open_raw(cell.store, known["target"], forecast),
        climate=_climate(cell.store, known, rules, forecast["time"].to_numpy()),
        efi_method=rules.efi.method,
        scores_raw=cell.model == "raw",
    )
    with whole_path(cell.run / EXTREMES) as file:
        save_states(states, file, "NETCDF3_64BIT")


def _climate(
    store: Path, known: dict[str, Any], rules: Protocol, dates: npt.NDArray[Any]
) -> xr.DataArray:
    from ens10.quantiles import model_climate, stored_climate
    from ens10.store import open_store, store_kinds

    channel, step = known["target"], int(known["step"])
    if "climate" in store_kinds(store):
        held = open_store(store, "climate")
        kept = held.attrs.get("rules") or held.attrs.get("protocol")
        if kept == reference_of(rules) and channel in held:
            return stored_climate(store, channel, dates, step=step)
    return model_climate(store, channel, step=step, dates=dates, protocol=rules)
