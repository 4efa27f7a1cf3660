"""`ens10 couple`: members with patterns in space, from the distributions of any run.

Distributions at single points do not describe dependence between points. Coupled members have at
each point the quantiles of the run's distribution, in the order of the raw members (ECC) or of the
truth on dates of the past (the Schaake shuffle), and are scored as any ensemble is.
"""

from pathlib import Path
from typing import Any, Literal, get_args

import dask
import xarray as xr

from ens10.channels import field_of
from ens10.command_options import CoupleOptions, ModelOptions
from ens10.errors import ArgumentError, UnknownNameError
from ens10.experiments.forecasts.corrections import datasets
from ens10.experiments.forecasts.load import TrainedModel, load_models
from ens10.experiments.forecasts.products import Products
from ens10.experiments.runs.locks import hold_lock
from ens10.experiments.runs.provenance import part_name
from ens10.experiments.runs.reading import run_parts
from ens10.options import chosen, takes
from ens10.partial import RESULT, Partial, check_target
from ens10.signals import stoppable
from ens10.store import consolidate, open_store
from ens10.store.manifest import record_files
from ens10.store.opening import (
    FORMAT_ATTRIBUTE,
    PREDICTIONS_FORMAT,
    PREDICTIONS_PLAN,
    is_predictions,
)

Method = Literal["ecc", "schaake"]


@takes(CoupleOptions)
def couple_run(
    run: Path | str,
    method: Method,
    options: CoupleOptions | None = None,
    **named: Any,
) -> Path:
    """Write coherent members of a run for its test dates, with the truth beside them.

    Args:
        run: folder of a run that was trained.
        method: "ecc" (Schefzik et al. 2013, doi:10.1214/13-STS443) or "schaake" (Clark et al. 2004,
            doi:10.1175/1525-7541(2004)005<0243:TSSAMF>2.0.CO;2).
        options: of the command; None for its defaults.
        **named: single options.

    Returns:
        The path of the store, which `ens10 score` takes; of several, that of RUN/parts.

    Raises:
        FileError: the store exists, or the run or its data cannot be read.
        UnknownNameError: another method.
        ArgumentError: `out` for a run of several targets or lead times.
    """
    options = chosen(CoupleOptions, options, named)
    out = options.out
    if method not in get_args(Method):
        raise UnknownNameError("method", method, get_args(Method))
    folders = run_parts(run)
    if len(folders) > 1 and out is not None:
        reason = f"{run} has {len(folders)} targets and lead times, with a store for each"
        raise ArgumentError("out", reason, "Leave it out: each store gets a place in the run")
    paths = [f / f"coupled_{method}.zarr" for f in folders] if out is None else [Path(out)]
    for path in paths:
        check_target(path, options.force, is_predictions, "a store of predictions")
    models = load_models(run, ModelOptions(trust=options.trust, history=options.store))
    by_name = {part_name(model.target, model.step, model.step_units): model for model in models}
    for folder, path in zip(folders, paths, strict=True):
        model = by_name[folder.name] if len(models) > 1 else models[0]
        _couple(model, method, path, options.seed)
    return paths[0] if len(paths) == 1 else folders[0].parent


def _couple(model: TrainedModel, method: Method, path: Path, seed: int) -> None:
    """Write the coupled members of one model, with the truth, to a Zarr store."""
    corrections = model.corrections(Path(model.history), Products(members=method, seed=seed))
    corrections.samples.require_truth()
    index = corrections.batches.index
    forecast = datasets([corrections], lazy=True)[0].isel(time=index)
    truth = field_of(open_store(model.history, "truth"), model.target, "target")
    truth = truth.sel(step=model.step, time=forecast["time"])
    members = forecast[model.target].assign_attrs(long_name="members", coupled_by=method)
    coupled = xr.Dataset(
        {"members": members, "truth": (truth.dims, truth.data, {**truth.attrs})},
        attrs={"forecast_kind": "ensemble", FORMAT_ATTRIBUTE: PREDICTIONS_FORMAT},
    )
    partial = Partial(path, RESULT, is_older=is_predictions)
    result = partial.path / RESULT
    with partial.lock("ens10 couple", hold=hold_lock), stoppable():
        partial.clear()
        with dask.config.set(scheduler="synchronous"):
            coupled.chunk(time=1).to_zarr(result, mode="w", consolidated=False)
        consolidate(result)
        record_files(result, PREDICTIONS_PLAN)
        partial.publish()
