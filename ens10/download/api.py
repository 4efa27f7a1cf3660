"""The one public function: forecast files, truth, or a request for the truth."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from ens10.catalog import HINDCAST_YEARS, TARGETS
from ens10.command_options import DownloadOptions
from ens10.download.choice import choose, start_days, valid_hours
from ens10.download.files import DownloadSettings, Notify, Report, bases, fetch_files, file_names
from ens10.download.remote import RetryPolicy, Sleep
from ens10.errors import ArgumentError, UnknownNameError, printable
from ens10.options import chosen, takes

Kind = Literal["sfc", "pl", "truth"]
_KINDS = ("sfc", "pl", "truth")
_TARGET_STEP = 48  # hours; the paper corrects the forecast of this lead time


@takes(DownloadOptions)
def download(
    folder: Path | str,
    kind: Kind,
    dates: str | Iterable[str],
    options: DownloadOptions | None = None,
    *,
    progress: bool = False,
    sleep: Sleep | None = None,
    **named: Any,
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
        options: of the command; None for its defaults.
        progress: print sizes and messages, and show a progress bar.
        sleep: function that waits for some seconds, for tests.
        **named: single options.

    Raises:
        ArgumentError: an invalid argument, or a URL that needs another package.
        FileError: the files do not fit on the disk, or the folder cannot be written to.
        MissingDataError: files or hours could not be downloaded, or an existing file differs from
            the record.
    """
    folder, days = Path(folder), start_days(dates)
    if kind not in _KINDS:
        raise UnknownNameError("kind", kind, _KINDS)
    options = chosen(DownloadOptions, options, named)
    jobs, years, spacing = options.jobs, options.years, options.spacing
    if jobs < 1:
        raise ArgumentError("jobs", f"{jobs} is no number of files at a time", "Give 1 or more")
    notify: Notify = (lambda text: print(printable(text))) if progress else lambda _: None
    stop = threading.Event()
    tries = 2 if options.dry_run else RetryPolicy.tries_unreachable
    retries = RetryPolicy(tries_unreachable=tries, sleep=sleep or stop.wait, notify=notify)
    settings = DownloadSettings(
        jobs, options.dry_run, options.check, progress, notify, retries, stop
    )
    if kind != "truth":
        for name in ("years", "steps", "fields", "spacing", "cds"):
            if getattr(options, name) is not None:
                raise ArgumentError(name, f"only for kind truth, not {kind}", "Leave it out")
        return fetch_files(folder, file_names(kind, days), bases(options.base), settings)
    for name in ("years", "steps", "fields"):
        values = getattr(options, name)
        if values is not None and not len(values):
            raise ArgumentError(name, "there are none", "Leave it out for the default")
    hours = valid_hours(days, years or HINDCAST_YEARS, options.steps or (_TARGET_STEP,))
    choice = choose(hours, options.fields or TARGETS, 0.5 if spacing is None else spacing)
    if options.cds is not None:
        from ens10.download.cds import write_request

        return write_request(Path(options.cds), folder, choice, settings)
    from ens10.download.truth import fetch_truth

    return fetch_truth(folder, choice, options.base, settings)
