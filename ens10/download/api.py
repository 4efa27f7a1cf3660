"""The one public function: forecast files, truth, or a request for the truth."""

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from ens10.catalog import HINDCAST_YEARS, TARGETS
from ens10.download.choice import choose, start_days, valid_hours
from ens10.download.files import DownloadSettings, Notify, Report, bases, fetch_files, file_names
from ens10.download.remote import RetryPolicy, Sleep
from ens10.errors import ArgumentError, UnknownNameError

Kind = Literal["sfc", "pl", "truth"]
_KINDS = ("sfc", "pl", "truth")
_TARGET_STEP = 48  # hours; the paper corrects the forecast of this lead time


def download(
    folder: Path | str,
    kind: Kind,
    dates: str | Iterable[str],
    *,
    base: str | None = None,
    jobs: int = 4,
    dry_run: bool = False,
    check: bool = False,
    progress: bool = False,
    years: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    fields: Sequence[str] | None = None,
    spacing: float | None = None,
    cds: Path | str | None = None,
    sleep: Sleep | None = None,
) -> Report:
    """Download forecast files of ENS-10, or the ERA5 truth of their valid dates, to a folder.

    Sizes are requested first; files that do not fit on the disk are an error. After an interruption
    or failure, rerun the same call to resume: complete files are not downloaded again. Files that
    could not be downloaded are listed in one error, after all others are complete.

    Args:
        folder: to write into; created if needed. Nothing is written outside it, except `cds`.
        kind: "sfc" or "pl" for the forecasts (GRIB, as they are), "truth" for ERA5 (netCDF, one
            file for each year of valid dates).
        dates: start dates; see `ens10.download.choice.start_days`.
        base: URL of the folder of the forecast files, or of the Zarr store with ERA5 (which may be
            a local path). By default the environment variable ENS10_BASE_URL or ENS10_ERA5_URL,
            else the public servers; only then a second server is tried for forecasts.
        jobs: files, or hours of truth, at a time. An hour of ERA5 on levels takes 0.3 GB of memory.
        dry_run: only request sizes and report them.
        check: compare the SHA-256 of existing files with the record, `checksums.json`.
        progress: print sizes and messages, and show a progress bar.
        years: truth: hindcast years; all twenty by default.
        steps: truth: lead times in hours; 48 by default, as in the paper.
        fields: truth: channels such as t2m or z500; by default the three targets.
        spacing: truth: degrees between grid points, 0.5 by default, which takes every second point
            of ERA5; 0.25 keeps them all.
        cds: truth: write a script that requests the truth from the Copernicus Climate Data Store to
            this file, and fetch nothing.
        sleep: function that waits for some seconds, for tests.

    Raises:
        ArgumentError: an invalid argument, or a URL that needs another package.
        FileError: the files do not fit on the disk, or the folder cannot be written to.
        MissingDataError: files or hours could not be downloaded, or an existing file differs from
            the record.
    """
    folder, days = Path(folder), start_days(dates)
    if kind not in _KINDS:
        raise UnknownNameError("kind", kind, _KINDS)
    if jobs < 1:
        raise ArgumentError("jobs", f"{jobs} is no number of files at a time", "Give 1 or more")
    notify: Notify = print if progress else lambda _: None
    stop = threading.Event()
    retries = RetryPolicy(sleep=sleep or stop.wait, notify=notify)
    settings = DownloadSettings(jobs, dry_run, check, progress, notify, retries, stop)
    if kind != "truth":
        options = {"years": years, "steps": steps, "fields": fields, "spacing": spacing, "cds": cds}
        for name, value in options.items():
            if value is not None:
                raise ArgumentError(name, f"only for kind truth, not {kind}", "Leave it out")
        return fetch_files(folder, file_names(kind, days), bases(base), settings)
    lists = {"years": years, "steps": steps, "fields": fields}
    for name, values in lists.items():
        if values is not None and not len(values):
            raise ArgumentError(name, "there are none", "Leave it out for the default")
    hours = valid_hours(days, years or HINDCAST_YEARS, steps or (_TARGET_STEP,))
    choice = choose(hours, fields or TARGETS, 0.5 if spacing is None else spacing)
    if cds is not None:
        from ens10.download.cds import write_request

        return write_request(Path(cds), folder, choice, settings)
    from ens10.download.truth import fetch_truth

    return fetch_truth(folder, choice, base, settings)
