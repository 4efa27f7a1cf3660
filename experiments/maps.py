"""Maps of the skill score, on plain axes of any latitude-longitude grid."""

from collections.abc import Sequence

import xarray as xr
from matplotlib.figure import Figure

from ens10.errors import UnknownNameError
from ens10.experiments.finished import FinishedRun
from ens10.metrics import finish_mean
from ens10.metrics.figures.maps import score_maps


def skill_maps(runs: Sequence[FinishedRun], reference: str = "raw") -> Figure | None:
    """CRPSS against the reference at each grid point, one panel a run, one colour bar.

    Blue is better than the reference and red worse; points without truth are grey.

    Args:
        runs: on one grid, the reference among them.
        reference: name of the run that skill is measured against.

    Returns:
        The figure, or None if there is no other run, or none kept its map.

    Raises:
        UnknownNameError: no run of that name.
    """
    against = next((run for run in runs if run.name == reference), None)
    if against is None:
        raise UnknownNameError("reference", reference, [run.name for run in runs])
    shown = [run for run in runs if run is not against and "crps_map_sum" in run.states]
    if not shown or "crps_map_sum" not in against.states:
        return None
    skills = {run.name: 100 * skill_map(run.states, against.states) for run in shown}
    return score_maps(skills, f"CRPSS against {reference} (%)", signed="better")


def skill_map(states: xr.Dataset, reference: xr.Dataset) -> xr.DataArray:
    """1 - CRPS / CRPS of the reference at each grid point; NaN where the latter is 0 or missing."""
    other = finish_mean(reference, "crps_map")
    own = finish_mean(states, "crps_map").assign_coords(other.coords)
    return 1.0 - own / other.where(other > 0)
