"""The content of a submission: what a run claims, in files whose checksums agree.

A submission is a folder, or a ZIP archive without compression, of these files:

submission.json   name, data, protocol, dates of training and test, claimed scores, cost
model.ens10       the bundle of the run
predictions.nc    the forecast of the test dates
checksums.json    SHA-256 of each of the others
"""

import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ens10.command_options import SubmitOptions
from ens10.durable import whole_path
from ens10.errors import ArgumentError, FileError
from ens10.experiments.forecasts.bundle import EARLIEST_TIME, bundle, read_parts
from ens10.experiments.runs import provenance
from ens10.experiments.runs.locks import hold_lock
from ens10.experiments.runs.reading import open_forecast, run_parts
from ens10.experiments.scoring.score import read_states
from ens10.export.netcdf import write_netcdf
from ens10.metrics import summarise
from ens10.metrics.verification.alignment import valid_times
from ens10.options import chosen, takes
from ens10.partial import RESULT, Partial, check_target
from ens10.signals import stoppable
from ens10.untrusted import check_regular, dataclass_of, parse_json, readable

FORMAT = 1
CLAIM, MODEL, PREDICTIONS, CHECKSUMS = (
    "submission.json",
    "model.ens10",
    "predictions.nc",
    "checksums.json",
)
_FILES = (CLAIM, MODEL, PREDICTIONS, CHECKSUMS)
SCORES = ("crps", "rmse", "spread_error")
COST = ("seconds", "cpu_seconds", "memory_mb", "parameters")  # numbers of a run's provenance
_REMEDY = "Ask for it again; `ens10 submit pack` makes one"


@dataclass(frozen=True)
class Claim:
    """The content of submission.json.

    Attributes:
        format: version of the format.
        name: of the model.
        target: channel that is forecast.
        units: of the target.
        step: lead time.
        step_units: "h" or "months".
        protocol: name of the protocol.
        rules: its content.
        weights: of the rows of the grid in the scores.
        dates: valid dates of the predictions, seconds since 1970-01-01 00 UTC.
        trained_on: valid dates of the training, likewise.
        scores: claimed, by name.
        authors: who submits it.
        licence: under which others may use the model.
        cost: of the training: time, memory, parameters; it is not checked.
    """

    format: int
    name: str
    target: str
    units: str
    step: float
    step_units: str
    protocol: str
    rules: dict[str, Any]
    weights: str
    dates: list[int]
    trained_on: list[int]
    scores: dict[str, float]
    authors: str = ""
    licence: str = ""
    cost: dict[str, float] = field(default_factory=dict)


@takes(SubmitOptions)
def pack_run(
    run: Path | str, out: Path | str, options: SubmitOptions | None = None, **named: Any
) -> Path:
    """Pack a run that was trained, predicted and scored as a submission.

    Args:
        run: folder of the run, of one target and lead time.
        out: folder to write, or a file that ends in .zip.
        options: of the command; None for its defaults.
        **named: single options.

    Returns:
        The path of the submission.

    Raises:
        FileError: the run has no predictions or scores, or `out` exists.
        ArgumentError: a run of several targets or lead times.
    """
    run, out, options = Path(run), Path(out), chosen(SubmitOptions, options, named)
    if len(run_parts(run)) > 1:
        reason = f"{run} has {len(run_parts(run))} targets and lead times"
        raise ArgumentError("run", reason, "Submit a run of one of each")
    check_target(out, options.force, _is_submission, "a submission")
    forecast, _ = open_forecast(run, dask=True)
    partial = Partial(out, RESULT)
    with partial.lock("ens10 submit pack", hold=hold_lock), stoppable():
        partial.clear()
        folder = partial.path / RESULT
        folder.mkdir()
        bundle(run, folder / MODEL, licence=options.licence)
        write_netcdf(folder / PREDICTIONS, forecast, 0, progress=False)
        claim = _claim_of(run, forecast, options)
        (folder / CLAIM).write_text(json.dumps(asdict(claim), indent=1, sort_keys=True) + "\n")
        sums = {name: _checksum(folder / name) for name in _FILES if name != CHECKSUMS}
        (folder / CHECKSUMS).write_text(json.dumps(sums, indent=1) + "\n")
        if out.suffix == ".zip":
            _write_archive(folder, out)
            partial.discard()
        else:
            partial.publish()
    return out


def _claim_of(run: Path, forecast: Any, options: SubmitOptions) -> Claim:
    facts, (training,) = provenance.read_provenance(run), read_parts(run).training
    scores = summarise(read_states(run), maps=False)
    return Claim(
        format=FORMAT,
        name=options.name or run.resolve().name,
        authors=options.authors,
        licence=options.licence,
        target=training.target,
        units=training.units,
        step=training.step,
        step_units=training.step_units,
        protocol=str(facts.get("protocol", "")),
        rules=facts.get("rules", {}),
        weights=str(facts.get("weights", "cell")),
        dates=seconds_of(forecast),
        trained_on=sorted(training.dates),
        scores={name: float(scores[name]) for name in SCORES if name in scores},
        cost={name: facts[name] for name in COST if name in facts},
    )


def seconds_of(forecast: Any) -> list[int]:
    """Return the valid dates of a forecast in seconds since 1970-01-01 00 UTC."""
    seconds = valid_times(forecast).ravel().astype("datetime64[s]").astype(np.int64)
    return [int(second) for second in seconds]


def _write_archive(folder: Path, out: Path) -> None:
    with whole_path(out) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in _FILES:
            content = zipfile.ZipInfo(name, EARLIEST_TIME)  # equal runs give equal bytes
            with (
                (folder / name).open("rb") as read,
                archive.open(content, "w", force_zip64=True) as write,
            ):
                shutil.copyfileobj(read, write, 1 << 20)


def _is_submission(path: Path) -> bool:
    if path.is_dir():
        return sorted(one.name for one in path.iterdir()) == sorted(_FILES)
    try:
        with zipfile.ZipFile(path) as archive:
            return sorted(archive.namelist()) == sorted(_FILES)
    except (OSError, zipfile.BadZipFile):
        return False


@contextmanager
def opened(path: Path) -> Iterator[tuple[Path, Claim]]:
    """Yield the folder of a submission's files, and its claim; an archive is extracted for it.

    Raises:
        FileError: it is no submission, a file was changed, or the claim cannot be read.
    """
    if not path.exists():
        raise FileError(path, "no such submission", "Check the path")
    check_regular(path)
    with tempfile.TemporaryDirectory(prefix="ens10-submission-") as temporary:
        folder = path if path.is_dir() else _extracted(path, Path(temporary))
        names = sorted(one.name for one in folder.iterdir())
        if names != sorted(_FILES):
            raise FileError(path, f"no submission: it holds {', '.join(names[:9])}", _REMEDY)
        for name in names:
            check_regular(folder / name)
        yield folder, _checked_claim(path, folder)


def _extracted(path: Path, folder: Path) -> Path:
    with readable(path, "no submission, or damaged", _REMEDY), zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        names = sorted(part.filename for part in parts)
        if names != sorted(_FILES):
            raise FileError(path, f"no submission: it holds {', '.join(names[:9])}", _REMEDY)
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
            raise FileError(path, "no submission: its parts are compressed", _REMEDY)
        archive.extractall(folder)  # of these names alone
    return folder


def _checked_claim(path: Path, folder: Path) -> Claim:
    with readable(path, "damaged", _REMEDY):
        sums = parse_json((folder / CHECKSUMS).read_bytes())
        if not isinstance(sums, dict):
            raise ValueError("no mapping of names to checksums")
    for name in _FILES:
        if name != CHECKSUMS and sums.get(name) != _checksum(folder / name):
            raise FileError(path, f"{name} was changed after it was packed", _REMEDY)
    try:
        content = parse_json((folder / CLAIM).read_bytes())
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise FileError(path, f"not of format {FORMAT}", "Update ens10, or pack it again")
        return dataclass_of(Claim, content)
    except ValueError as error:
        raise FileError(path, f"damaged: {CLAIM}: {str(error)[:200]}", _REMEDY) from error


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        digest = sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
