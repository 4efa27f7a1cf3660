"""The run folder of a stage: its lock, its leftovers, and what a signal leaves.

RUN/config.yaml             the resolved configuration
RUN/provenance.json         seed, versions, commit, data, dates, parameters
RUN/log/metrics.csv         losses by epoch
RUN/checkpoints/            best.ckpt, last.ckpt and previous.ckpt, with normalisation statistics
RUN/run.lock                while a process trains
RUN/predictions.zarr        after `ens10 predict`
RUN/scores.nc, scores.csv   after `ens10 score`
RUN/parts/t2m-24h/          of several targets or lead times: predictions and scores of each
"""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from pytorch_lightning.utilities import rank_zero_only

from ens10.durable import clear_leftovers, leftovers
from ens10.errors import Ens10Error, FileError
from ens10.experiments.runs import provenance
from ens10.experiments.runs.checkpoints import BEST, resumable_checkpoint
from ens10.experiments.runs.locks import hold_lock
from ens10.experiments.runs.reading import PREDICTIONS, run_parts
from ens10.experiments.runs.runlog import FILE as LOG_FILE
from ens10.experiments.runs.runlog import FOLDER as LOG_FOLDER
from ens10.signals import Interrupted, Terminated, ending

Stage = Literal["fit", "validate", "test", "predict"]
CONFIG, CHECKPOINTS = "config.yaml", "checkpoints"
LOCK, PREDICT_LOCK = "run.lock", "predict.lock"
_FILES_BEFORE_TRAINING = (CONFIG, provenance.FILE)  # what a fit writes before it trains


def is_first() -> bool:
    """Return True if this is the one process that writes, if several train together."""
    return not getattr(rank_zero_only, "rank", 0)


def require_run(run: Path) -> None:
    """Refuse a folder that holds no run.

    Raises:
        FileError: it has no configuration.
    """
    if not (run / CONFIG).is_file():
        raise FileError(run, f"no run (it has no {CONFIG})", "Make one with `ens10 fit`")


@contextmanager
def run_folder(run: Path, stage: Stage, *, new: bool = False) -> Iterator[None]:
    """Lock a run for a stage; a signal ends the block with a line on how to resume.

    Args:
        run: the folder.
        stage: of the work in the block.
        new: True for a training that begins.

    Raises:
        FileError: a new run's folder holds files already, another has no run, or another process
            is using it.
        Terminated: SIGTERM ended it.
        Interrupted: the user ended it.
    """
    if is_first():
        with _hold_new_run(run) if new else _hold_existing_run(run, stage), endings(run, stage):
            yield
    else:
        with endings(run, stage):
            yield


@contextmanager
def endings(run: Path, stage: Stage) -> Iterator[None]:
    """Raise the exception of a signal in the block with a line that names how to resume."""
    try:
        yield
    except (Terminated, KeyboardInterrupt) as error:
        raise _ending_exception(error, stage, run) from None
    except SystemExit as exit_error:
        if isinstance(exit_error.__context__, KeyboardInterrupt):
            # Lightning makes a silent exit of it
            raise _ending_exception(exit_error.__context__, stage, run) from None
        raise


def _ending_exception(error: BaseException, stage: Stage, run: Path) -> Terminated | Interrupted:
    """Return the exception that ends a stage; that of the first process names how to resume."""
    remedy = f"ens10 {stage} --run {run}" + (" --resume" if stage == "fit" else "")
    remedy = f"resume with `{remedy}`"
    if (stage == "fit" and not (run / CONFIG).is_file()) or not is_first():
        remedy = ""
    number = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
    exception = ending(number, remedy)
    if not is_first():
        exception.line = ""
    return exception


@contextmanager
def _hold_new_run(run: Path) -> Iterator[None]:
    """Lock an empty folder for a new run; after an error before training, remove its files.

    Raises:
        FileError: the folder holds files already, or another process is using it.
    """
    is_new = not run.exists()
    run.mkdir(parents=True, exist_ok=True)
    require_empty(run)
    try:
        with hold_lock(run / LOCK, "ens10 fit"):
            clear_leftovers(run, *_FILES_BEFORE_TRAINING)
            try:
                yield
            except (Ens10Error, OSError, SystemExit) as error:
                if not isinstance(error, Terminated):
                    _remove_untrained(run)
                raise
    except BaseException:
        with suppress(OSError):
            if is_new:
                run.rmdir()  # if it is empty
        raise


def require_empty(run: Path) -> None:
    """Refuse a folder of a new run that holds files.

    Raises:
        FileError: it holds files, of a run or others.
    """
    allowed_files = {run / LOCK, *leftovers(run, *_FILES_BEFORE_TRAINING)}
    if run.exists() and set(run.iterdir()) - allowed_files:
        remedy = "Choose another --run, or resume it with --resume"
        raise FileError(run, "holds files already", remedy)


def _remove_untrained(run: Path) -> None:
    """Remove the files of a fit that has no checkpoint yet, so that it can be repeated."""
    if any((run / CHECKPOINTS).glob("*.ckpt")):
        return
    for path in (run / CONFIG, run / provenance.FILE, run / LOG_FOLDER / LOG_FILE):
        path.unlink(missing_ok=True)
    shutil.rmtree(run / provenance.PARTS, ignore_errors=True)
    for folder in (run / LOG_FOLDER, run / CHECKPOINTS):
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def _hold_existing_run(run: Path, stage: Stage) -> Iterator[None]:
    """Lock a run to resume or predict it, and remove temporary files of killed processes.

    Raises:
        FileError: there is no run, or another process is using it.
    """
    require_run(run)
    if stage == "fit":
        with hold_lock(run / LOCK, "ens10 fit"):
            clear_leftovers(run, *_FILES_BEFORE_TRAINING)  # `ens10 score` may be writing its own
            for folder in (run / LOG_FOLDER, run / CHECKPOINTS):
                clear_leftovers(folder)
            yield
    elif stage == "predict":
        with hold_lock(run / PREDICT_LOCK, "ens10 predict"):
            for folder in run_parts(run):
                clear_leftovers(folder, PREDICTIONS)
            yield
    else:
        yield


def checkpoint_of(run: Path, stage: Stage) -> Path | None:
    """Return the checkpoint of a stage; None if a fit to resume has not saved any.

    Raises:
        FileError: the run was not trained, or its checkpoints are damaged.
    """
    if stage == "fit":
        return resumable_checkpoint(run / CHECKPOINTS, repair=is_first())
    path = run / CHECKPOINTS / BEST
    if not path.is_file():
        remedy = f"Train first: `ens10 fit --run {run} --resume`"
        raise FileError(path, "no such checkpoint", remedy)
    return path
