"""Results of finished runs: score states, provenance, learning curves.

Only small files of the run folder are read, and no torch is needed: a report can be made where
nothing could be trained. Score states are netCDF files with a checksum of all their bytes at the
end. Readers of netCDF and HDF5 ignore bytes after the data, so that any of them opens the files,
and a copy keeps the checksum. Files of earlier versions have none and are read as they are.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import crc32c
import xarray as xr

from ens10.errors import ArgumentError, FileError, MissingDataError, UnknownNameError
from ens10.experiments.runs import provenance
from ens10.experiments.runs.provenance import FILE as PROVENANCE
from ens10.metrics.uncertainty import check_paired_dates
from ens10.metrics.verification.truth_error import TRUTH_ERROR
from ens10.untrusted import check_regular, readable

_MARK = b"\nens10 crc32c "
_LENGTH = len(_MARK) + 9  # eight hexadecimal digits and the end of the line
_TAIL = 3 * _LENGTH  # bytes at the end in which there is no mark but that one
_PIECE = 1 << 22
_READ_ERROR = "cannot be read as netCDF"


def save_states(
    states: xr.Dataset, path: Path, form: Literal["NETCDF4", "NETCDF3_64BIT"] = "NETCDF4"
) -> None:
    """Write score states as netCDF with a checksum.

    Args:
        states: of `ens10.metrics.score_states`.
        path: the file, under a temporary name.
        form: of netCDF; the classic form takes a third of the bytes where there is little.

    Raises:
        OSError, RuntimeError: as netCDF's library raises them.
        TypeError, ValueError: attributes that netCDF cannot hold, such as those of damaged
            predictions.
    """
    states.to_netcdf(path, engine="netcdf4", format=form)
    checksum = _checksum(path, path.stat().st_size)
    with path.open("ab") as file:
        file.write(_MARK + b"%08x\n" % checksum)


def load_states(file: Path, remedy: str = "Score again") -> xr.Dataset:
    """Read score states from a file into memory.

    Args:
        file: netCDF, of either form.
        remedy: of the error about a file that cannot be read.

    Raises:
        FileError: it cannot be read, was cut off, or does not match its checksum.
    """
    with readable(file, _READ_ERROR, remedy):
        check_regular(file)
        classic = _verify_checksum(file, remedy)
        # netCDF's own library reads zeros where a file of the classic form was cut off
        engine: Literal["scipy", "netcdf4"] = "scipy" if classic else "netcdf4"
        # step is a plain number with units: as a time difference it would lose the months
        return xr.load_dataset(file, engine=engine, decode_timedelta=False)


def _verify_checksum(path: Path, remedy: str) -> bool:
    """Refuse a file that does not match its checksum; return True if it is of the classic form."""
    size = path.stat().st_size
    with path.open("rb") as file:
        classic = file.read(3) == b"CDF"
        file.seek(max(0, size - _TAIL))
        _, mark, digits = file.read().rpartition(_MARK)
    if mark and digits != b"%08x\n" % _checksum(path, size - _LENGTH):
        raise FileError(path, "does not match its checksum", remedy)
    return classic


def _checksum(path: Path, size: int) -> int:
    """Return the crc32c of the first `size` bytes of a file."""
    checksum = 0
    with path.open("rb") as file:
        while size > 0 and (piece := file.read(min(size, _PIECE))):
            checksum = crc32c.crc32c(piece, checksum)
            size -= len(piece)
    return checksum


Kind = Literal["model", "reference", "optimum"]
SCORES, LOG = "scores.nc", "log/metrics.csv"
SIZES, EXTREMES = "sizes.csv", "eecrps.nc"


@dataclass(frozen=True)
class Epoch:
    """One epoch of a training: mean losses, None where the log holds none."""

    number: int
    train_loss: float | None
    val_loss: float | None
    val_crps: float | None


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A scored run.

    Args:
        name: unique among the runs that are compared.
        kind: "model", "reference" (such as the raw ensemble) or "optimum" (the known best).
        states: of its test dates, as `ens10.metrics.score_states` made them.
        provenance: the content of `provenance.json`; any key may be absent.
        log: its epochs, in order; empty if it was not trained by epochs.
        sizes: plain CRPS by the number of members that the model received, if that was measured.
        log_of_targets: True if the log has means over several targets, each in units of its spread.
        extremes: states of its EECRPS, if they are in a file of their own.
    """

    name: str
    kind: Kind
    states: xr.Dataset
    provenance: Mapping[str, Any]
    log: tuple[Epoch, ...] = ()
    sizes: Mapping[int, float] = field(default_factory=dict)
    log_of_targets: bool = False
    extremes: xr.Dataset | None = None

    def states_of(self, score: str) -> xr.Dataset | None:
        """Return the states that have a score, "crps" or "eecrps"; None if it was not scored."""
        candidates = (self.extremes, self.states) if score == "eecrps" else (self.states,)
        return next((s for s in candidates if s is not None and f"{score}_sum" in s), None)

    @property
    def units(self) -> str:
        """Units of its CRPS; "" if unknown."""
        return str(self.states["crps_sum"].attrs.get("units", ""))

    @property
    def still_improving(self) -> bool:
        """Whether a longer training would probably have given a lower loss.

        True if the best validation loss of the last tenth of the epochs (at least the last one) is
        more than 0.1 % below the best of those before.
        """
        losses = [epoch.val_loss for epoch in self.log if epoch.val_loss is not None]
        last = max(1, len(losses) // 10)
        if len(losses) <= last:
            return False
        before = min(losses[:-last])
        return min(losses[-last:]) < before - 1e-3 * abs(before)

    @property
    def loss_name(self) -> str:
        """Name of the losses in its log, with units."""
        if self.log_of_targets:
            return "loss of all targets, in units of the raw spread"
        if any(epoch.val_loss != epoch.val_crps for epoch in self.log):
            return "loss"
        return f"CRPS ({self.units})" if self.units else "CRPS"


def read_run(folder: Path | str) -> FinishedRun:
    """Read the scored run in a folder.

    Raises:
        FileError: no such folder, not scored yet, or a file that cannot be read.
        MissingDataError: it was scored without the CRPS.
        UnknownNameError: its provenance has an unknown kind.
    """
    path = Path(folder)
    if not path.is_dir():
        raise FileError(path, "no such folder", "Give the folder of a run")
    states = _read_states(path)
    facts = provenance.read_provenance(path) if (path / PROVENANCE).exists() else {}
    kind: Any = facts.get("kind") or "model"
    if kind not in get_args(Kind):
        raise UnknownNameError(f"kind in {path / PROVENANCE}", kind, get_args(Kind))
    name = str(facts.get("name") or path.resolve().name)
    sizes = _read_sizes(path / SIZES)
    top = provenance.run_of(path)
    log = read_log(top / LOG)
    extremes = load_states(path / EXTREMES) if (path / EXTREMES).exists() else None
    return FinishedRun(name, kind, states, facts, log, sizes, len(_read_targets(top)) > 1, extremes)


def read_runs(folders: Sequence[Path | str]) -> list[FinishedRun]:
    """Read the scored runs in folders, and check that they can be compared.

    Raises:
        FileError: as for `read_run`.
        ArgumentError: no folders, a name twice, or runs that cannot be compared.
        MissingDataError: runs of different dates; it lists them.
    """
    if not folders:
        raise ArgumentError("runs", "there are none", "Give the folders of one or more runs")
    runs = [read_run(folder) for folder in folders]
    check_names(runs, folders)
    check_comparable(runs)
    return runs


def check_names(runs: Sequence[FinishedRun], folders: Sequence[Path | str]) -> None:
    """Refuse two runs of one name.

    Raises:
        ArgumentError: a duplicate name; the error names both folders.
    """
    places: dict[str, Path | str] = {}
    for run, folder in zip(runs, folders, strict=True):
        if run.name in places:
            raise ArgumentError(
                "runs",
                f"{places[run.name]} and {folder} are both called {run.name!r}",
                f"Give each its own name in {PROVENANCE}",
            )
        places[run.name] = folder


def check_comparable(runs: Sequence[FinishedRun]) -> None:
    """Refuse runs of different targets, units, steps, weights or dates.

    Raises:
        ArgumentError: a difference other than the dates.
        MissingDataError: dates that only some of the runs have.
    """
    first = runs[0]
    for other in runs[1:]:
        for setting, value, other_value in zip(
            ("target", "units", "step", "weights"), _settings(first), _settings(other), strict=True
        ):
            if value is not None and other_value is not None and value != other_value:
                raise ArgumentError(
                    "runs",
                    f"different {setting}: {value} in {first.name}, {other_value} in {other.name}",
                    "Make one report for each",
                )
        try:
            check_paired_dates(first.states, other.states)
        except MissingDataError as error:
            pair = f"paired dates of {first.name} (the forecast) and {other.name} (the reference)"
            raise MissingDataError(pair, error.missing, "Score both on the same dates") from None


def _settings(run: FinishedRun) -> tuple[Any, ...]:
    step = None
    if "step" in run.states.coords:
        values = run.states["step"]
        step = values.item() if values.size == 1 else tuple(values.to_numpy().tolist())
    weights = run.states.attrs.get("weights")
    return run.provenance.get("target"), run.units or None, step, weights


def mean_score(states: xr.Dataset, score: str) -> float:
    """Return the weighted mean of a score over all dates and points."""
    return float(states[f"{score}_sum"].sum() / states[f"{score}_weight"].sum())


def _read_states(path: Path) -> xr.Dataset:
    file = path / SCORES
    if not file.is_file():
        raise FileError(path, f"not scored yet (it has no {SCORES})", f"Run `ens10 score {path}`")
    states = load_states(file, f"Run `ens10 score {path}` again")
    if "crps_sum" not in states:
        raise MissingDataError(file, ["crps"], f"Run `ens10 score {path}` with the CRPS")
    if TRUTH_ERROR in states.attrs:
        reason = f"scores of the truth with an error of {states.attrs[TRUTH_ERROR]} are not plain"
        raise FileError(file, reason, f"Run `ens10 score {path}` without --truth-error")
    return states


def _read_targets(run: Path) -> set[str]:
    """Return the targets of a run of several targets or lead times; empty for other runs."""
    parts = run.glob(f"{provenance.PARTS}/*/{PROVENANCE}")
    return {str(provenance.read_provenance(file.parent).get("target")) for file in parts}


def _read_sizes(path: Path) -> dict[int, float]:
    if not path.is_file():
        return {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return {int(line["members"]): float(line["crps"]) for line in csv.DictReader(file)}
    except (KeyError, ValueError, TypeError) as error:
        raise FileError(path, f"no table of members and crps ({error})", "Delete it") from error


def read_log(file: Path) -> tuple[Epoch, ...]:
    """Return the last value of each loss in each epoch; the log has a row for each stage.

    Raises:
        FileError: a line that is no row of losses.
    """
    if not file.is_file():
        return ()
    epochs: dict[int, dict[str, float]] = {}
    names = ("train_loss", "val_loss", "val_crps")
    with file.open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines)
        for row in reader:
            try:
                values = epochs.setdefault(int(float(row["epoch"] or "nan")), {})
                values |= {name: float(row[name]) for name in names if row.get(name)}
            except (KeyError, ValueError, TypeError) as error:
                reason = f"line {reader.line_num} is no row of losses ({error})"
                raise FileError(file, reason, "Delete the log, or train again") from error
    return tuple(Epoch(n, *(epochs[n].get(name) for name in names)) for n in sorted(epochs))
