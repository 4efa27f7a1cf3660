"""`ens10 apply`: correct new forecasts with trained runs, date by date, into one file.

The dates are computed into a Zarr store in the folder `OUT.partial`, with a mark for each complete
date. Rerun the same call to resume. The file gets its name when it is complete.

OUT.partial/plan.json    models, forecast, options and a fingerprint of the files that are read
OUT.partial/data.zarr    the variables, a chunk a date
OUT.partial/done/        an empty file for each date whose chunks are on the disk
"""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytorch_lightning as pl
import xarray as xr
import zarr

from ens10.catalog import VARIABLES
from ens10.channels import channel_names, field_of, split, split_exactly, step_number
from ens10.command_options import ApplyOptions, Format, InputRules
from ens10.convert.plan import (
    Source,
    differences,
    files_of_source,
    source_identity,
)
from ens10.convert.sources import grib_files
from ens10.durable import sync_files, whole_path
from ens10.errors import ArgumentError, DataNote, FileError, MissingDataError, UnknownNameError
from ens10.experiments.forecasts.corrections import Corrections, Known, variable_name
from ens10.experiments.forecasts.load import TrainedModel, all_corrections, load_models
from ens10.experiments.forecasts.past_forecasts import past_store
from ens10.experiments.forecasts.products import Products
from ens10.experiments.forecasts.training_points import BeyondTrainingWarning
from ens10.experiments.runs.locks import hold_lock
from ens10.experiments.training.folder import CONFIG
from ens10.export.corrected import check_corrected, write_corrected
from ens10.export.grib_products import Encoding
from ens10.export.netcdf import write_netcdf
from ens10.export.tables import has_columns, table_of, write_table
from ens10.grib import is_grib, scan
from ens10.identity import member_labels
from ens10.machine_errors import writing_netcdf
from ens10.options import chosen, takes
from ens10.partial import INPUTS, Partial, changed_inputs, check_target, fingerprints
from ens10.places import is_url
from ens10.progress import track
from ens10.selection import Selection
from ens10.signals import stoppable
from ens10.source import open_source
from ens10.source.folders import files_in
from ens10.source.gribs import GribFields, Missing
from ens10.source.layout import tidy
from ens10.source.names import Names, read_names
from ens10.source.stores import dataset_of
from ens10.source.tables import TableForm, is_table, table_form
from ens10.stations import STATION
from ens10.store import create_array, write_coordinates
from ens10.store.manifest import clear_unfinished, record_files, to_json_types
from ens10.store.opening import (
    FORMAT_ATTRIBUTE,
    PREDICTIONS_FORMAT,
    PREDICTIONS_PLAN,
    is_predictions,
    root_attributes,
)
from ens10.untrusted import UNREADABLE, readable

if TYPE_CHECKING:
    import pandas as pd

_SUFFIXES: dict[str, Format] = {
    ".nc": "netcdf", ".nc4": "netcdf", ".netcdf": "netcdf", ".zarr": "zarr",
    ".grib": "grib", ".grb": "grib", ".csv": "csv", ".csv.gz": "csv", ".parquet": "parquet",
    ".pq": "parquet",
}  # fmt: skip
_DATA, _DONE = "data.zarr", "done"
_TABLES = ("csv", "parquet")


Write = Callable[[Path, xr.Dataset], None]  # of the result to a temporary path


@takes(ApplyOptions)
def apply(
    runs: Sequence[Path | str],
    forecast: Path | str | xr.Dataset | xr.DataTree,
    out: Path | str,
    options: ApplyOptions | None = None,
    *,
    products: Products | None = None,
    module: pl.LightningModule | None = None,
    progress: bool = False,
    **named: Any,
) -> Path:
    """Correct forecasts with trained runs, and write one file.

    Everything that can be refused is refused before anything is written. One date is in memory at
    a time. Rerun the same call to resume.

    Args:
        runs: folders of trained runs; several, or one that was trained for several, correct
            several targets or lead times, and each chunk of files or of a Dataset is read once for
            all of them.
        forecast: GRIB or netCDF file, folder of such files, Zarr store, URL of one, store of
            `ens10 prepare`, a Dataset or a tree of them. It needs no truth.
        out: the file to write. A single run's variables have the names that `ens10 predict` gives
            them, so that `ens10 score OUT --truth STORE` scores them; of several runs those of the
            parameters begin with the target ("t2m_mu"), and there is a dimension `step` if lead
            times differ.
        options: of the command; None for its defaults.
        products: what to write besides the parameters; None for what `named` says.
        module: of a run that cannot build its model.
        progress: show a progress bar.
        **named: single options, of `ApplyOptions` and of `ens10.experiments.forecasts.products`.

    Returns:
        The file's path.

    Raises:
        FileError: the file exists, its folder does not, a run cannot be read, or another process
            writes the file.
        ArgumentError: a channel that a model needs is missing, another grid or lead time, too few
            members, runs whose variables do not fit into one file, draws of a model that has none,
            a product that the GRIB edition cannot express, or a suffix of an unknown format. A
            forecast that is NaN although its input is complete.
        MissingDataError: fields are missing.
        UnknownNameError: another `format` or `missing`.
    """
    own = {one.name for one in fields(ApplyOptions)}
    of_products = {name: named.pop(name) for name in set(named) - own}
    products = Products(**{**(products.options if products else {}), **of_products})
    options = chosen(ApplyOptions, options, named)
    out, rules, names = Path(out), options.rules, options.names
    encoding = Encoding(options.edition, options.post_processed)
    if isinstance(names, Path | str):
        names = read_names(Path(names))
    if options.group:
        names = replace(names or Names(), group=options.group)
    source: Source = dataset_of(forecast, names.group if names else "", "forecast")
    file_format = _format(out, options.format)
    _check_place(out, file_format, source, options.force)
    if file_format == "grib":
        products = products.for_grib()
    elif encoding != Encoding():
        raise ArgumentError("edition", f"{out.name} is not a GRIB file", "Name it .grib")
    models = [model for run in runs for model in load_models(run, options, module)]
    past_forecasts = _past_forecasts(products, models)
    data = open_for_models(source, names, rules, models)
    if isinstance(data, xr.Dataset):
        data = _without_gaps(data, models) if rules.missing == "skip" else data
        data = _read_once(data) if len(models) > 1 else data
    combined = CombinedCorrections(all_corrections(models, data, products, rules))
    forms = _table_forms(source, names or Names())
    _note_other_steps(source, forms, combined)
    write = _writer(out, file_format, source, combined, products, options, names, forms, progress)
    plan = _plan(combined, models, source, products, options)
    if names is not None:
        plan["names"] = to_json_types(names.record())
    past = {Path(m.history) for m in models if products.need_history and m.history}
    inputs = {
        "forecast": files_of_source(source),
        "history": [file for store in sorted(past) for file in files_of_source(store)],
        **({"past_forecasts": past_forecasts} if past_forecasts else {}),
        "runs": [Path(run) / CONFIG for run in runs if (Path(run) / CONFIG).is_file()],
    }
    partial = Partial(out, _DATA, _DONE)
    with partial.lock("ens10 apply", hold=hold_lock), stoppable():
        _compute(combined, partial, plan, inputs, progress)
        _finish(partial, file_format, write)
        partial.discard()
    for note in combined.notes():
        warnings.warn(note, BeyondTrainingWarning, stacklevel=2)
    return out


def _plan(
    combined: "CombinedCorrections", models: Sequence[TrainedModel], source: Source,
    products: Products, options: ApplyOptions,
) -> "Plan":  # fmt: skip
    """Return what the partial result is of, besides the contents of the files that are read."""
    return {
        "models": [model.checksum for model in models],
        "forecast": source_identity(source),
        "products": to_json_types(products.options),
        "draws": options.draws,
        "rules": asdict(options.rules),
        "dates": [str(date) for date in combined.samples.time],
        "device": options.device,
    }


def _past_forecasts(products: Products, models: Sequence[TrainedModel]) -> list[Path]:
    """Return the files of the past forecasts by which quantiles are calibrated.

    Raises:
        ArgumentError: one place is named for several models, or a bundle has none.
    """
    named = str(products.options["past_forecasts"])
    if named and len(models) > 1:
        reason = f"{named} is of one model, and {len(models)} correct this forecast"
        raise ArgumentError("past_forecasts", reason, "Leave it out: each run has its own")
    if not products.options["calibration"]:
        return []
    stores = dict.fromkeys(past_store(named, model) for model in models)
    return [file for store in stores for file in files_of_source(store)]


def _check_place(out: Path, file_format: Format, source: Source, force: bool) -> None:
    def is_ours(path: Path) -> bool:
        if file_format in _TABLES:
            return is_table(path)  # whose columns are compared later
        if file_format == "netcdf":
            return _is_corrected(path)
        inputs = [file.resolve() for file in files_of_source(source)]
        is_of_format = is_predictions(path) if file_format == "zarr" else is_grib(path)
        return is_of_format and path.resolve() not in inputs

    check_target(out, force, is_ours, "a corrected forecast")
    if not out.absolute().parent.is_dir():
        raise FileError(out.parent, "no such folder", "Make it first")


def _is_corrected(path: Path) -> bool:
    """Return True if `apply` wrote a netCDF file."""
    try:
        with xr.open_dataset(path, engine="netcdf4", decode_cf=False) as dataset:
            return "corrected_by" in dataset.attrs
    except (OSError, ValueError):
        return False


class CombinedCorrections:
    """The corrections of one forecast by several models, as variables of one dataset.

    Args:
        parts: the corrections by each model.

    Attributes:
        samples: the forecasts.
        layouts: dimensions, shape and attributes of each variable.
        coordinates: of the dataset.
        attributes: of the dataset.

    Raises:
        ArgumentError: two models correct the same, or their variables do not fit into one dataset.
    """

    def __init__(self, parts: Sequence[Corrections]) -> None:
        if not parts:
            raise ArgumentError("runs", "none are given", "Name at least one run")
        self._parts, self.samples = parts, parts[0].samples
        self._steps = sorted({part.model.step for part in parts})
        self._check_compatible()
        self.layouts: dict[str, tuple[tuple[str, ...], tuple[int, ...], dict[str, Any]]] = {}
        self._core_coordinates: dict[str, Any] = {}
        known: Known = {}
        for part in parts:
            part.begin(known=known)
            self._add(part)
        names = (f"{part.model.name} ({part.model.checksum[:12]})" for part in parts)
        self.attributes = {
            **(parts[0].form.attributes | parts[0].provenance if len(parts) == 1 else {}),
            "corrected_by": ", ".join(dict.fromkeys(names)),
        }

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def targets(self) -> list[str]:
        """Return the channels that are corrected, in the order of the models."""
        return list(dict.fromkeys(part.model.target for part in self._parts))

    @property
    def sizes(self) -> dict[tuple[str, float], int]:
        """Return the number of members that each target and step is corrected from."""
        return {(p.model.target, p.model.step): p.samples.members for p in self._parts}

    @property
    def coordinates(self) -> xr.Dataset:
        """The coordinates of all variables."""
        coords = self._parts[0].coordinates
        if len(self._steps) > 1:
            hours = {"units": self.samples.step_units}
            valid = np.stack([self._samples_at(step).valid_time for step in self._steps], axis=1)
            coords |= {
                "step": ("step", self._steps, hours),
                "valid_time": (("time", "step"), valid),
            }
        units: dict[str, dict[str, Any]] = {
            k: {"units": "1"}
            for k in ("quantile", "quantile_level", "quantile_above", "quantile_below")
        }
        units["number"] = {"units": "1", **self._parts[0].member_attributes}
        core = {k: (k, np.asarray(v), units.get(k, {})) for k, v in self._core_coordinates.items()}
        return xr.Dataset(coords=core | coords)

    def blank(self) -> xr.Dataset:
        """Return the variables with zeros, and NaN at steps that no model corrects.

        The values are broadcast from one element, and take no memory.
        """
        fields: dict[str, Any] = {}
        for part in self._parts:
            for name in part.form.fields:
                dims, shape, _ = self.layouts[self._variable_name(part, name)]
                small = np.full([1 if dim != "step" else len(self._steps) for dim in dims], np.nan)
                first = fields.setdefault(
                    self._variable_name(part, name), (dims, small.astype("f4"), shape)
                )
                first[1][self._position(part, 0)] = 0.0
        variables = {k: (dims, np.broadcast_to(v, shape)) for k, (dims, v, shape) in fields.items()}
        return xr.Dataset(variables, self.coordinates.coords)

    def write(self, i: int, arrays: Mapping[str, Any]) -> None:
        """Compute date `i` and write its chunks.

        Args:
            i: position of the date.
            arrays: of Zarr, by variable.
        """
        known: Known = {}
        for part in self._parts:
            for name, (_, values, _) in part.fields(i, known).items():
                arrays[self._variable_name(part, name)][self._position(part, i)] = values[0]

    def notes(self) -> list[str]:
        """Return lines about dates with fewer members or gaps, each with the model's name."""
        return [
            f"{part.model.name}: {note}"
            for part in self._parts
            if part.checks is not None
            for note in part.checks.notes()
        ]

    def _position(self, part: Corrections, i: int) -> tuple[int, ...]:
        several = len(self._steps) > 1
        return (i, self._steps.index(part.model.step)) if several else (i,)

    def _variable_name(self, part: Corrections, name: str) -> str:
        return name if len(self._parts) == 1 else variable_name(part.model.target, name)

    def _add(self, part: Corrections) -> None:
        """Add the variables and coordinates of one model."""
        fields, core, attributes = part.form
        several = len(self._steps) > 1
        for name, (dims, values, attrs) in fields.items():
            if len(self._parts) > 1:
                attrs = {**attrs, **attributes}
            shape: tuple[int, ...] = (len(self), *values.shape[1:])
            if several:
                dims = (dims[0], "step", *dims[1:])
                shape = (shape[0], len(self._steps), *shape[1:])
            layout = self.layouts.setdefault(self._variable_name(part, name), (dims, shape, attrs))
            self._require_same_form(layout == (dims, shape, attrs), part, name)
        for dim, values in core.items():
            self._require_same_form(
                list(self._core_coordinates.setdefault(dim, values)) == list(values), part, dim
            )

    def _require_same_form(self, is_same: bool, part: Corrections, name: str) -> None:
        if not is_same:
            reason = f"{name} of {part.model.name} has another form than that of the runs before"
            raise ArgumentError("runs", reason, "Apply these runs into files of their own")

    def _check_compatible(self) -> None:
        """Refuse two models of one target and step, and forecasts of different dates."""
        models: dict[tuple[str, float], TrainedModel] = {}
        for part in self._parts:
            model = part.model
            other = models.setdefault((model.target, model.step), model)
            if other is not model:
                both = f"{other.name} and {model.name} both correct {model.target}"
                reason = f"{both} at step {model.step:g}"
                raise ArgumentError("runs", reason, "Apply one of them, or into two files")
            if not np.array_equal(part.samples.time, self.samples.time):
                raise ArgumentError("runs", "the forecast has other dates for each of them")
            stations = [p.coordinates.get(STATION, ((), ()))[1] for p in (part, self._parts[0])]
            if not np.array_equal(*stations):
                reason = f"{model.name} was trained on other stations than the runs before"
                raise ArgumentError("runs", reason, "Apply these runs into files of their own")

    def _samples_at(self, step: float) -> Any:
        return next(part.samples for part in self._parts if part.model.step == step)


def _format(out: Path, format_name: str | None) -> Format:
    formats = get_args(Format)
    if format_name is not None and format_name not in formats:
        raise UnknownNameError("format", format_name, formats)
    endings = [suffix for suffix in _SUFFIXES if out.name.lower().endswith(suffix)]
    file_format = format_name or (_SUFFIXES[max(endings, key=len)] if endings else None)
    if file_format is None:
        raise ArgumentError(
            "out", f"{out.name} does not say the format", f"Name it {', '.join(_SUFFIXES)}"
        )
    return file_format  # type: ignore[return-value]


def open_for_models(
    forecast: Path | str | xr.Dataset,
    names: Names | None,
    rules: InputRules,
    models: Sequence[TrainedModel],
) -> xr.Dataset | Path | str:
    """Return a forecast as models take it: the path of a prepared store, or a lazy Dataset.

    Variables that no model takes are not read, so that their units and gaps stop nothing.
    """
    if isinstance(forecast, xr.Dataset):
        return forecast
    path = Path(forecast)
    is_local_zarr = not is_url(forecast) and (path / "zarr.json").is_file()
    if is_local_zarr and "ens10_format" in root_attributes(path):
        return path
    channels = {name.partition("@")[0] for model in models for name in model.channels}
    variables = sorted({one if one in VARIABLES else split(one)[0] for one in channels})
    missing = _missing_fields(rules)
    try:
        return open_source(forecast, names, missing, variables=variables)
    except MissingDataError:
        gribs = grib_files(forecast) if missing == "error" and names is None else []
        if not gribs:
            raise
    data = open_source(forecast, names, "nan", variables=variables)
    _refuse_gaps(gribs, data, models)
    return data


def _refuse_gaps(files: Sequence[Path], data: xr.Dataset, models: Sequence[TrainedModel]) -> None:
    """Refuse missing GRIB messages of variables, steps and members that a model reads.

    Args:
        files: GRIB files.
        data: their fields, NaN where messages are missing.
        models: that read them.

    Raises:
        MissingDataError: there are some; all are listed.
    """
    messages, present = [scan(file) for file in files], channel_names(data)
    for model in models:
        pairs = [(name, step) for name, _, step in (c.partition("@") for c in model.channels)]
        names = {n if n in VARIABLES else split(n)[0] for n, _ in pairs if n in present}
        steps = {step_number(step or model.step) for _, step in pairs}
        if not names or not steps <= set(data["step"].to_numpy().ravel().tolist()):
            continue  # the model refuses the forecast, and says what it takes
        labels = member_labels(data["number"])
        members = [int(labels[n]) for n in _member_places(data, model)]
        selection = Selection.of(sorted(names), None, sorted(steps), members)
        GribFields(messages, "error", selection)


def _missing_fields(rules: InputRules) -> Missing:
    """Return what the source does about missing fields: unless refused, they are read as NaN."""
    return "error" if rules.missing == "error" else "nan"


def _without_gaps(data: xr.Dataset, models: Sequence[TrainedModel]) -> xr.Dataset:
    """Leave out the dates that lack a field that a model reads: one that is NaN everywhere.

    Fields of members that no model takes are not read.

    Raises:
        MissingDataError: no date is complete.
    """
    data = tidy(data, Names(), data.encoding.get("source", "the forecast"))
    complete = np.ones(data.sizes["time"], np.bool_)
    for model in models:
        for channel in model.channels:
            name, _, step = channel.partition("@")
            if name not in channel_names(data):
                continue  # the model refuses the forecast, and says what it takes
            fields = field_of(data, name)
            if "step" in fields.dims:
                fields = fields.sel(step=step_number(step or model.step))
            if "number" in fields.dims:
                fields = fields.isel(number=_member_places(data, model))
            with readable(f"{data.encoding['source']}: {name}", UNREADABLE):
                empty = fields.isnull().all(["latitude", "longitude"]).load()
            complete &= ~empty.any([dim for dim in empty.dims if dim != "time"]).to_numpy()
    if not complete.any():
        raise MissingDataError(
            data.encoding["source"], ["fields of every date"], "No date is complete"
        )
    return data.isel(time=np.flatnonzero(complete))


def _member_places(data: xr.Dataset, model: TrainedModel) -> list[int]:
    """Return the positions of the members that a model takes; it warns of others when it runs."""
    labels = member_labels(data["number"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BeyondTrainingWarning)
        return [labels.index(label) for label in model.choose_members(labels, fewer=False)]


def _read_once(data: xr.Dataset) -> xr.Dataset:
    """A lazy forecast whose chunks of the current date stay in memory until the next date is read.

    Several models that take the same channels then read each chunk of the source once.
    """
    lazy = {
        name: field.copy(data=_with_memory(field.data, field.dims.index("time")))
        for name, field in data.data_vars.items()
        if field.chunks is not None and "time" in field.dims
    }
    return data.assign(lazy)


def _with_memory(array: Any, axis: int) -> Any:
    """A dask array that keeps its computed chunks until one of another date is computed.

    Args:
        array: the dask array.
        axis: its dimension of dates.
    """
    import dask.array as da
    from dask.utils import SerializableLock

    blocks: dict[tuple[int, ...], np.ndarray[Any, Any]] = {}
    lock = SerializableLock()  # dask computes chunks in several threads

    def read(block_id: tuple[int, ...]) -> np.ndarray[Any, Any]:
        with lock:
            for other in [key for key in blocks if key[axis] != block_id[axis]]:
                del blocks[other]
            block = blocks.get(block_id)
        if block is None:
            block = array.blocks[block_id].compute(scheduler="synchronous")
            with lock:
                blocks[block_id] = block
        return block

    return da.map_blocks(  # type: ignore[no-untyped-call]
        read, chunks=array.chunks, dtype=array.dtype, meta=array._meta, name=f"once-{array.name}"
    )


Plan = dict[str, Any]
Inputs = Mapping[str, Sequence[Path]]


def _compute(
    combined: CombinedCorrections, partial: Partial, plan: Plan, inputs: Inputs, progress: bool
) -> None:
    """Compute the dates that are not done yet."""
    arrays = _resume_arrays(partial, plan, inputs, combined)
    if arrays is None:
        arrays = _create_arrays(partial, {**plan, INPUTS: fingerprints(inputs)}, combined)
    path = partial.path
    todo = [i for i in range(len(combined)) if not (path / _DONE / str(i)).exists()]
    for i in track(todo, "apply", len(todo), progress):
        combined.write(i, arrays)
        sync_files(path, [str(f.relative_to(path)) for f in _chunks(path, combined, i)])
        (path / _DONE / str(i)).touch()


def _chunks(partial: Path, combined: CombinedCorrections, i: int) -> list[Path]:
    """Return the chunk files of one date."""
    folders = (partial / _DATA / name / "c" / str(i) for name in combined.layouts)
    return [file for folder in folders for file in folder.rglob("*") if file.is_file()]


def _resume_arrays(
    partial: Partial, plan: Plan, inputs: Inputs, combined: CombinedCorrections
) -> dict[str, Any] | None:
    """Open the arrays of an interrupted call; None if there was none of this plan and inputs."""
    stored = partial.read_plan()
    if stored is None or _DATA not in partial.entries():
        return None
    recorded = stored.pop(INPUTS, None)
    changes = [] if recorded is None else changed_inputs(recorded, inputs)
    if recorded is None:
        stored["device"] = plan["device"]  # which earlier versions did not record
    if stored != plan:
        changes += differences(stored, plan) or ["other options"]
    if changes:
        message = f"begun otherwise ({'; '.join(changes)}): all dates are computed again"
        print(f"ens10: {partial.path}: {message}", file=sys.stderr)
        return None
    clear_unfinished(partial.path / _DATA)
    root = zarr.open_group(partial.path / _DATA, mode="r+", use_consolidated=False)
    return {name: root[name] for name in combined.layouts}


def _create_arrays(partial: Partial, plan: Plan, combined: CombinedCorrections) -> dict[str, Any]:
    """Create the arrays of a new store, in the place of those that an earlier call left."""
    layouts, coords = combined.layouts, combined.coordinates
    partial.clear()
    (partial.path / _DONE).mkdir()
    root = zarr.open_group(partial.path / _DATA, mode="w")
    root.attrs.update({**combined.attributes, FORMAT_ATTRIBUTE: PREDICTIONS_FORMAT})
    arrays: dict[str, Any] = {}
    for name, (dims, shape, attributes) in layouts.items():
        inner = 2 if "step" in dims else 1
        arrays[name] = create_array(
            root, name, shape, dims, chunks=(*[1] * inner, *shape[inner:]), attributes=attributes
        )
    write_coordinates(root, coords, [str(name) for name in coords.coords])
    partial.write_plan(plan)
    return arrays


def _finish(partial: Partial, file_format: Format, write: Write) -> None:
    """Write the complete store as a file of the format, under its final name."""
    store, out = partial.path / _DATA, partial.target
    if file_format == "zarr":
        record_files(store, PREDICTIONS_PLAN)
        partial.publish(_DATA)
        return
    dataset = xr.open_zarr(store, chunks=None, consolidated=False, decode_timedelta=False)
    with whole_path(out) as temporary:
        write(temporary, dataset)


def _writer(
    out: Path, file_format: Format, source: Source, combined: CombinedCorrections,
    products: Products, options: ApplyOptions, names: Names | None,
    forms: Mapping[Path, TableForm], progress: bool,
) -> Write:  # fmt: skip
    """Return the function that writes a file, after checking that it can hold the result.

    Raises:
        ArgumentError: stations in GRIB, or a grid in a table; what GRIB cannot express.
        FileError: a table that exists has other columns.
    """
    if file_format == "grib":
        if combined.samples.stations:
            reason = "GRIB holds grids, and these are stations"
            raise ArgumentError("format", reason, "Write netCDF, CSV or Parquet")
        raw = None if names else _open_raw_grib(source, combined)
        encoding = Encoding(options.edition, options.post_processed)
        grib = _grib_options(combined, raw, products, encoding)
        return lambda path, dataset: write_corrected(path, dataset, **grib, progress=progress)
    if file_format in _TABLES:
        return _table_writer(out, file_format, combined, forms, options.force)

    def write(path: Path, dataset: xr.Dataset) -> None:
        dataset.attrs.pop(FORMAT_ATTRIBUTE)
        with writing_netcdf(out):
            write_netcdf(path, dataset, 0, progress)

    return write


def _table_forms(source: Source, names: Names) -> dict[Path, TableForm]:
    """Return the form of each table of the forecast."""
    is_file = not isinstance(source, xr.Dataset) and not is_url(source)
    tables = [file for file in files_in(Path(source)) if is_table(file)] if is_file else []
    return {file: table_form(file, names) for file in tables}


def _note_other_steps(
    source: Source, forms: Mapping[Path, TableForm], combined: CombinedCorrections
) -> None:
    """Say in one line how many rows of tables have lead times that no run corrects."""
    steps, units = {step for _, step in combined.sizes}, combined.samples.step_units
    rows = [float(step) for form in forms.values() for step in form.rows.get("step", ())]
    others = [step for step in rows if step not in steps]
    if others:
        listed, used = (", ".join(f"{s:g}" for s in sorted({*one})) for one in (others, steps))
        note = f"{len(others)} rows of the lead times {listed} {units} are left out"
        warnings.warn(f"{source}: {note}: {used} {units} is corrected", DataNote, stacklevel=2)


def _table_writer(
    out: Path, file_format: Format, combined: CombinedCorrections,
    forms: Mapping[Path, TableForm], force: bool,
) -> Write:  # fmt: skip
    """Return the function that writes a table in the form of those of the forecast."""
    if not combined.samples.stations:
        reason = "a table has a row for each station, and this is a grid"
        raise ArgumentError("format", reason, "Write netCDF, Zarr or GRIB")

    def table(dataset: xr.Dataset) -> "pd.DataFrame":
        return table_of(dataset[list(combined.layouts)], list(forms.values()))

    expected, inputs = table(combined.blank().isel(time=[0])), [file.resolve() for file in forms]

    def is_ours(path: Path) -> bool:
        return path.resolve() not in inputs and has_columns(path, expected)

    check_target(out, force, is_ours, "a corrected forecast")
    suffix = "gz" if out.suffix.lower() == ".gz" else file_format
    separator = next((form.separator for form in forms.values()), ",")

    def write(path: Path, dataset: xr.Dataset) -> None:
        frame = table(dataset)
        _note_empty_rows(out, frame, list(combined.layouts))
        write_table(path, frame, suffix, separator)

    return write


def _note_empty_rows(out: Path, frame: "pd.DataFrame", variables: Sequence[str]) -> None:
    """Say how many rows of a table have no value."""
    columns = [name for name in frame if str(name).startswith(tuple(variables))]
    empty = int(frame[columns].isna().all(axis=1).sum())
    if empty:
        note = f"{empty} of {len(frame)} rows have no value: no forecast, or no fitted coefficients"
        warnings.warn(f"{out}: {note}", DataNote, stacklevel=2)


def _grib_options(
    combined: CombinedCorrections,
    raw: GribFields | None,
    products: Products,
    encoding: Encoding,
) -> dict[str, Any]:
    """Return the options of `write_corrected`, after checking that GRIB can hold the result."""
    same_members = raw is not None and products.need_members
    options: dict[str, Any] = {
        "targets": combined.targets,
        "raw": raw,
        "raw_members": combined.samples.numbers if same_members else None,
        "sizes": combined.sizes,
        "encoding": encoding,
    }
    check_corrected(combined.blank(), **options)
    return options


def _open_raw_grib(
    forecast: Path | str | xr.Dataset, combined: CombinedCorrections
) -> GribFields | None:
    """Open the GRIB messages of the forecast, whose headers the result gets.

    None if it does not consist of GRIB files, or if the headers would not fit the result: corrected
    fields are in the catalogue's units, and sums since the start.
    """
    if isinstance(forecast, xr.Dataset):
        return None
    files = grib_files(forecast)
    names = [t if t in VARIABLES else split_exactly(t)[0] for t in combined.targets]
    selection = Selection.of(list(dict.fromkeys(names)), None, None, None, None)
    fields = GribFields(files, "nan", selection) if files else None
    return fields if fields and all(map(fields.are_copies, fields.variables)) else None
