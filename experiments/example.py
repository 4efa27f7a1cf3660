"""A small world, its store and finished runs, for notebooks and first tries: made once, then kept.

Everything lies in the folder `work` of the working directory (`notebooks/work` for the notebooks)
and can be deleted at any time. With the environment variable `ENS10_STORE` the same code takes
that store instead of the synthetic one. torch is imported only when something is trained.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from ens10.convert import prepare
from ens10.errors import ArgumentError, Ens10Error, FileError, UnknownNameError
from ens10.experiments.runs import provenance
from ens10.experiments.scoring.score import STATES
from ens10.partial import write_folder
from ens10.quantiles import parse_climate
from ens10.synthetic import World

STORE = "ENS10_STORE"
WORK = Path("work")
OPTIMUM = "optimum"
MODELS = ("raw", "emos_local", "unet", OPTIMUM)
EPOCHS: Mapping[str, int] = {"mlp": 4, "unet": 8}  # seconds; more on a store of one's own
_GRID, _YEARS, _DATES = "24x48", range(2000, 2008), 18
_WINDOW = 3  # start dates of a climate: two months of the 18 dates of a year


def command(*words: object) -> None:
    """Run `ens10 WORDS...` in this process, and raise an error if it fails.

    Args:
        words: of the command line, such as "score", a path and "--by", "season".

    Raises:
        ArgumentError: the command failed; it has printed its message.
    """
    from ens10.cli import main

    line = [str(word) for word in words]
    try:
        status = main(line)
    except SystemExit as stop:  # bad usage
        status = int(stop.code or 0) if isinstance(stop.code, int | None) else 1
    if status:
        raise ArgumentError(f"ens10 {' '.join(line)}", f"exit status {status}")


def example_world(work: Path | str = WORK) -> World:
    """Return the world of the example, after writing its GRIB files once.

    It has 24 x 48 points, 144 dates and 10 members.

    Args:
        work: folder for everything.
    """
    folder = _example_folder(work) / "world"

    _make_once(folder, lambda path: World(_GRID, _YEARS, _DATES, seed=0).write(path), "world")
    return World.load(folder)


def example_store(work: Path | str = WORK) -> Path:
    """Return the store in `ENS10_STORE`, or else one of the synthetic world, made once.

    Args:
        work: folder for everything.

    Returns:
        Its path. That of the example takes half a minute to make, and has all surface variables at
        0, 24 and 48 h, 10 members, the truth of t2m at 48 h and the climate of t2m for the extreme
        forecast index.

    Raises:
        FileError: `ENS10_STORE` is no folder.
    """
    if os.environ.get(STORE):
        store = Path(os.environ[STORE])
        if not store.is_dir():
            raise FileError(store, "no such folder", f"Give {STORE} the path of a store")
        return store
    store = _example_folder(work) / "store.zarr"
    if not store.exists():
        example_world(work)
        source = _example_folder(work) / "world"
        climate = parse_climate(["t2m@48"], window=_WINDOW)

        def make(path: Path) -> None:
            prepare(source, path, truth=source / "truth", climate=climate)

        _make_once(store, make, "store")
    return store


def example_runs(*models: str, work: Path | str = WORK) -> dict[str, Path]:
    """Return runs on the store of `example_store`; fit, predict and score those that are missing.

    Args:
        models: names of configurations in `experiments/configs`, and "optimum", the best possible
            forecast, which a store in `ENS10_STORE` lacks and is left out there; those of
            `MODELS` if none is given. Networks learn on the synthetic world for `EPOCHS`.
        work: folder for everything.

    Returns:
        The run folders by name, in the order of `models`.

    Raises:
        UnknownNameError: no such configuration.
        Ens10Error: a model that does not fit the store.
    """
    has_user_store = bool(os.environ.get(STORE))
    _check_names(models)
    store = example_store(work)
    folder = _runs_folder(work, store, has_user_store)
    names = [name for name in models or MODELS if not (has_user_store and name == OPTIMUM)]
    for name in names:
        if not (folder / name / STATES).exists():
            start = time.perf_counter()
            _complete_run(name, folder, store, work, has_user_store)
            print(f"{folder / name} in {time.perf_counter() - start:.0f} s")
    return {name: folder / name for name in names}


def figure_style() -> None:
    """Set colours for any colour vision, and plain axes, for the figures of a notebook."""
    import matplotlib.pyplot as plt
    from matplotlib.rcsetup import cycler

    from ens10.metrics.figures.style import COLOURS, STYLE, WIDTH

    plt.rcParams.update(STYLE)
    plt.rcParams["axes.prop_cycle"] = cycler(color=COLOURS)
    plt.rcParams.update({"figure.figsize": (WIDTH, 2.9), "figure.constrained_layout.use": True})
    plt.rcParams.update({"figure.dpi": 110, "figure.facecolor": "white"})


def _example_folder(work: Path | str) -> Path:
    return Path(work) / "example"


def _runs_folder(work: Path | str, store: Path, has_user_store: bool) -> Path:
    """Return the folder of the runs on a store; each store has a folder of its own."""
    if not has_user_store:
        return _example_folder(work) / "runs"
    return Path(work) / f"runs-{store.stem}-{provenance.checksum(store)}"


def _check_names(models: Sequence[str]) -> None:
    configs = Path(str(files("ens10.experiments"))) / "configs"
    names = sorted([*(path.stem for path in configs.glob("*.yaml")), OPTIMUM])
    for name in models:
        if name not in names:
            raise UnknownNameError("models", name, names)


def _complete_run(
    name: str, folder: Path, store: Path, work: Path | str, has_user_store: bool
) -> None:
    from ens10.experiments.demo import make_run
    from ens10.experiments.scoring.optimum import score_optimum

    if name == OPTIMUM:
        raw = example_runs("raw", work=work)["raw"]
        score_optimum(example_world(work), raw, folder / name)
        return
    epochs = (
        [] if has_user_store or name not in EPOCHS else ["--trainer.max_epochs", str(EPOCHS[name])]
    )
    try:
        make_run(folder / name, store, options=epochs, quiet=True)
    except Ens10Error as error:
        error.add_note(f"while {folder / name} was made")
        raise


def _make_once(path: Path, make: Callable[[Path], object], label: str) -> None:
    """Make a folder unless it exists; wait while another notebook makes it."""
    if path.exists():
        return
    start = time.perf_counter()
    write_folder(path, make)
    print(f"{label} {path} in {time.perf_counter() - start:.0f} s")
