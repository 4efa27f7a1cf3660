"""Table rows of any path: a file, a folder of files, or a store."""

from collections.abc import Sequence
from pathlib import Path

from ens10.errors import ArgumentError, Ens10Error, FileError
from ens10.grib import MessageList, is_grib, survey
from ens10.inspection.gribs import grib_rows
from ens10.inspection.netcdf import is_netcdf, zarr_rows
from ens10.inspection.rows import Row, format_count, format_places
from ens10.inspection.stores import is_partial, is_store, partial_rows, store_rows
from ens10.machine_errors import read_failure
from ens10.places import is_url
from ens10.source.folders import IGNORED_SUFFIXES, check_complete
from ens10.source.netcdf_length import check_length
from ens10.source.stores import is_reference, is_zarr
from ens10.source.tables import is_table
from ens10.untrusted import check_regular, why_unreadable

_FETCH = "Fetch or write the file again"  # the remedy of damage to a file's framing


def inspect_path(
    path: Path | str, *, values: bool = True, progress: bool = False, group: str = ""
) -> list[Row]:
    """Describe what is at a path, one row for each variable and level.

    A damaged part gets a row with the damage and its place; the other parts are still inspected.

    Args:
        path: GRIB or netCDF file, table of stations, folder of such files, Zarr store, or complete
            or partial store of ens10.
        values: True to decode all values for minimum, mean and maximum, and to compare
            checksums.
        progress: show a progress bar.
        group: of a Zarr store or netCDF file; "" for its root.

    Raises:
        FileError: the path does not exist, the folder holds no data files, or the store is of a
            newer version.
        ArgumentError: the path is a URL.
    """
    if is_url(path):
        reason = f"{path} is an address; what lies on a disk is inspected"
        remedy = "Open it with ens10.source.open_source, or make a store of it with `ens10 prepare`"
        raise ArgumentError("path", reason, remedy)
    path = Path(path)
    if not path.exists():
        partial = path.with_name(f"{path.name}.partial")
        remedy = f"Inspect {partial}, which is not complete" if partial.exists() else ""
        raise FileError(path, "no such file or folder", remedy or "Check the path")
    check_regular(path)
    if is_partial(path):
        return partial_rows(path)
    if is_store(path):
        return store_rows(path, values, progress)
    if is_zarr(path) or is_reference(path):
        return zarr_rows(path, values, progress, group)
    files = [path] if path.is_file() else sorted(f for f in path.iterdir() if f.is_file())
    if not files:
        reason = "the folder holds no files"
        raise FileError(path, reason, "Choose a folder of GRIB or netCDF files")
    return _file_rows(path, files, values, progress, group)


def _file_rows(
    path: Path, files: Sequence[Path], values: bool, progress: bool, group: str
) -> list[Row]:
    lists: list[MessageList] = []
    rows: list[Row] = []
    for file in files:
        try:
            check_complete(file)
            if is_grib(file):
                messages, errors = survey(file)
                lists.append(messages)
                rows += _damage_rows(file, errors)
            elif is_netcdf(file):
                check_length(file)
                rows += zarr_rows(file, values, progress, group)
            elif is_table(file):
                rows += zarr_rows(file, values, progress)
            elif path.is_file() or _should_be_data(file):
                raise FileError(file, *why_unreadable(file))
        except Ens10Error as error:
            rows.append(Row(file.name, status=str(error)))
        except OSError as error:
            rows.append(Row(file.name, status=str(read_failure(file, error))))
    messages = MessageList.concatenate(lists)
    if not (len(messages) or rows):
        reason = "the folder holds no GRIB or netCDF files"
        raise FileError(path, reason, "Choose a folder of such files")
    return [*grib_rows(messages, path.name, values, progress), *rows]


def _damage_rows(file: Path, errors: Sequence[FileError]) -> list[Row]:
    """Return one row for all damaged messages of a file."""
    if len(errors) < 2:
        return [Row(file.name, status=str(error)) for error in errors]
    messages = [str(error).removeprefix(f"{file}: ") for error in errors]
    fetch = f" {_FETCH}."
    short = [message.removesuffix(fetch).rstrip(".") for message in messages]
    remedy = fetch if any(message.endswith(fetch) for message in messages) else ""
    where = format_count(len(errors), "place")
    return [Row(file.name, status=f"{file}: wrong in {where}: {format_places(short)}.{remedy}")]


def _should_be_data(file: Path) -> bool:
    return file.suffix not in IGNORED_SUFFIXES and not file.name.startswith(".")
