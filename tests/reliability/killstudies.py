"""The commands that are killed at each of their file operations, on tiny data."""

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any

import flakyserver
import realruns
import torch
import xarray as xr
from killsweep import Study

import ens10
from ens10.cli import main
from ens10.convert import prepare
from ens10.download import download
from ens10.experiments import demo
from ens10.experiments.runner import running
from ens10.experiments.runner.forks import compute_cell
from ens10.export import export
from ens10.models import ResidualNormalHead
from ens10.models.networks import MLP
from ens10.source import open_source
from ens10.synthetic import World

torch.set_num_threads(1)
_TIMES = ("seconds", "begun", "ended", "date", "time", "memory_mb", "threads", "command", "machine")


def _main(*words: object) -> int:
    try:
        return int(main([str(word) for word in words]))
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 2


def files(folder: Path) -> dict[str, Any]:
    """Checksums of all files of a folder."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in found
    }


def _world(folder: Path) -> None:
    world = World("6x8", range(2000, 2004), 2, ["t2m", "u10"], seed=0, members=3, steps=(48,))
    world.write(folder / "world")


def _smaller_world(folder: Path) -> None:
    """One date of each of two years: each kind of operation occurs, but less often."""
    world = World("4x8", range(2000, 2002), 1, ["t2m", "u10"], seed=0, members=2, steps=(48,))
    world.write(folder / "world")


def _prepare(folder: Path) -> int:
    prepare(folder / "world", folder / "store.zarr", truth=folder / "world" / "truth", workers=1)
    return 0


def _store(folder: Path) -> None:
    _world(folder)
    prepare(folder / "world", folder / "store.zarr", truth=folder / "world" / "truth")


def _stores(folder: Path) -> dict[str, Any]:
    return {name: sha for name, sha in files(folder).items() if not name.startswith("world/")}


def _fit(folder: Path) -> int:
    inputs = ["--data.inputs", "[t2m, u10]", "--model.init_args.network.init_args.in_channels", 7]
    small = ["--model.init_args.network.init_args.hidden", 4]
    limits = ["--trainer.max_epochs", 2, "--data.batch_size", 2]
    config = ["--config", realruns.config_path("mlp"), "--data.store", folder / "store.zarr"]
    run = ["--run", folder / "run", "--quiet"]
    return _main("fit", *config, *run, *inputs, *small, *limits)


def _fit_again(folder: Path) -> int:
    """`--resume` is what the killed run would be asked to do; a new fit where nothing is there."""
    if (folder / "run" / "config.yaml").exists():
        return _main("fit", "--run", folder / "run", "--resume", "--quiet")
    return _fit(folder)


def _fit_python(folder: Path, *, resume: bool = False) -> int:
    """A network that is an object, with weights of its own that the run has to keep."""
    torch.manual_seed(3)
    network = MLP(4, hidden=4)
    options: dict[str, Any] = {
        "head": ResidualNormalHead(),
        "inputs": ["t2m", "u10"],
        "max_epochs": 2,
    }
    store, run = folder / "store.zarr", folder / "run"
    ens10.fit(store, network, run=run, resume=resume, quiet=True, batch_size=2, **options)
    return 0


def _fit_python_again(folder: Path) -> int:
    return _fit_python(folder, resume=(folder / "run" / "config.yaml").exists())


def _runs(folder: Path) -> dict[str, Any]:
    """A run's files, but for times; checkpoints by their weights, epoch and optimiser."""
    run, held = folder / "run", dict[str, Any]()
    for name in files(run):
        path = run / name
        if path.suffix == ".ckpt" and path.stem != "previous":
            saved = torch.load(path, weights_only=True)
            state = {k: v.numpy().tobytes() for k, v in sorted(saved["state_dict"].items())}
            held[name] = saved["epoch"], saved["global_step"], state
        elif path.name == "provenance.json":
            known = json.loads(path.read_text())
            held[name] = {k: v for k, v in known.items() if not any(t in k for t in _TIMES)}
        elif path.suffix not in (".lock", ".ckpt"):
            held[name] = path.read_bytes()
    return held


def _fitted(folder: Path) -> None:
    _store(folder)
    if _fit(folder):
        raise RuntimeError("the fit failed")


def _few_predicted(folder: Path) -> None:
    """Predictions of a fit on one date a year, so that there are few chunks to replace."""
    _few_dates(folder)
    if _fit(folder) or _predict(folder):
        raise RuntimeError("the fit or the prediction failed")


def _predicted(folder: Path) -> None:
    _fitted(folder)
    if _predict(folder):
        raise RuntimeError("the prediction failed")


def _predict(folder: Path) -> int:
    return _main("predict", "--run", folder / "run", "--quiet")


def _score(folder: Path) -> int:
    return _main("score", folder / "run")


def _export(folder: Path) -> int:
    """Both formats; a file of an interrupted call that was named already is replaced."""
    for name in ("out.nc", "out.grib"):
        is_there, is_partial = (folder / name).exists(), (folder / f"{name}.partial").exists()
        if is_partial or not is_there:
            export(folder / "store.zarr", folder / name, kind="sfc", force=is_there)
    return 0


def _exported(folder: Path) -> dict[str, Any]:
    """The files, and whatever else a killed export may have left beside them."""
    inputs = ("world/", "store.zarr/")
    return {name: sha for name, sha in files(folder).items() if not name.startswith(inputs)}


def _download(folder: Path) -> int:
    content = {
        path.name: path.read_bytes() for path in sorted((folder / "world").glob("output.sfc.*"))
    }
    with flakyserver.serve(files=content) as site:
        dates = [name[-4:] for name in content]
        download(folder / "here", "sfc", ",".join(dates), base=site.url, sleep=lambda _: None)
    return 0


def _downloaded(folder: Path) -> dict[str, Any]:
    found = files(folder / "here")
    record = json.loads((folder / "here" / "checksums.json").read_text())
    found["checksums.json"] = {name: entry["sha256"] for name, entry in record.items()}
    return found


def _reproduce_in_two(folder: Path) -> int:
    """Three models, two at a time."""
    return _reproduce(folder, "emos_local", "--workers", 2)


def _reproduce(folder: Path, *more: object) -> int:
    """A table of one model; the processes of cells are forks, whose operations do not count."""
    words = ["--protocol", "clean", "--models", "raw", "emos_global", *more, "--targets", "t2m"]
    words += ["--members", 10, "--seeds", 1, "--store", folder / "store.zarr"]
    with _forked_cells():
        return _main("reproduce", *words, "--out", folder / "results", "--work", folder / "work")


@contextmanager
def _forked_cells() -> Iterator[None]:
    """Compute cells in forks of a process with one thread.

    A fork of the runner itself, whose threads work meanwhile, may wait for a lock for ever.
    """
    listener = Listener(f"\0ens10-cells-{os.getpid()}", "AF_UNIX")
    server = os.fork()
    if server == 0:
        _fork_cells(listener)

    def start(cell: Any, *_: object) -> str | None:
        with Client(listener.address) as connection:
            connection.send(cell)
            try:
                return str(connection.recv() or "") or None
            except EOFError:
                return "the process has ended"

    running.start_cell = start
    try:
        yield
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


def _fork_cells(listener: Listener) -> None:
    """Compute each cell that comes in a fork, and answer with the error or an empty text."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    while True:
        connection = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                compute_cell(connection.recv())
                connection.send("")
            except BaseException as error:
                connection.send(f"{type(error).__name__}: {error}")
            finally:
                os._exit(0)
        connection.close()


def _reproduced(folder: Path) -> dict[str, Any]:
    """Tables without the columns of time, and the scores of the kept cells."""
    results = folder / "results"
    found = {name: "" for name in files(results) if not name.endswith((".lock", ".json"))}
    for path in results.rglob("scores.csv"):
        found[path.relative_to(results).as_posix()] = path.read_text()
    return found


def _demo(folder: Path) -> int:
    """The demonstration with few dates and one model beside the raw ensemble."""
    demo.YEARS, demo.DATES = range(2000, 2004), 1
    demo.run_demo(folder / "out", models=("raw", "emos_global"), quiet=True)
    return 0


def _demonstrated(folder: Path) -> dict[str, Any]:
    """The world, the store and the scores; the page, of which the time is written in places."""
    out = folder / "out"
    kept = (*out.glob("world/**/output*"), *out.glob("store.zarr/**/c/**/*"))
    kept = (*kept, *out.glob("runs/*/scores.csv"), out / "report" / "table.md")
    whole = {p.relative_to(out).as_posix(): p.read_bytes() for p in kept if p.is_file()}
    left = [path.relative_to(out).as_posix() for path in out.rglob(".*.tmp")]
    return {**whole, "names": sorted(path.name for path in out.iterdir()), "left": left}


def _ten_members(folder: Path) -> None:
    world = World("6x8", range(2000, 2006), 2, seed=0, members=10, steps=(48,))
    world.write(folder / "world")
    prepare(folder / "world", folder / "store.zarr", truth=folder / "world" / "truth")


def _zarr_source(folder: Path) -> None:
    _smaller_world(folder)
    forecast = open_source(folder / "world").chunk(time=1)
    forecast.drop_encoding().to_zarr(folder / "in.zarr", consolidated=False)


def _prepare_zarr(folder: Path) -> int:
    truth = folder / "world" / "truth"
    prepare(folder / "in.zarr", folder / "store.zarr", truth=truth, workers=1)
    return 0


def _tables(folder: Path) -> None:
    """Three stations at points of the grid, and their observations."""
    _smaller_world(folder)
    columns = xr.DataArray([0, 2, 5], dims="station", coords={"station": ["a", "b", "c"]})
    places = {"latitude": 1, "longitude": columns}
    forecast = open_source(folder / "world").isel(places).drop_vars("valid_time")
    truth = open_source(folder / "world" / "truth", optional_dimensions=True)[["t2m"]].isel(places)
    forecast = forecast.rename(latitude="lat", longitude="lon")
    forecast.to_dataframe().reset_index().to_csv(folder / "in.csv", index=False)
    truth["t2m"].to_dataframe()[["t2m"]].reset_index().to_csv(folder / "truth.csv", index=False)


def _prepare_table(folder: Path) -> int:
    truth = folder / "truth.csv"
    prepare(folder / "in.csv", folder / "store.zarr", truth=truth, workers=1)
    return 0


def _finer_truth(folder: Path) -> None:
    _smaller_world(folder)
    finer = World("8x16", range(2000, 2002), 1, ["t2m", "u10"], seed=1, members=2, steps=(48,))
    finer.write(folder / "fine")


def _prepare_regridded(folder: Path) -> int:
    options: dict[str, Any] = {"truth": folder / "fine" / "truth", "regrid": "bilinear"}
    prepare(folder / "world", folder / "store.zarr", workers=1, **options)
    return 0


def _only_stores(folder: Path) -> dict[str, Any]:
    """Files that are no input."""
    inputs = ("world/", "fine/", "in.", "truth.csv")
    return {name: sha for name, sha in files(folder).items() if not name.startswith(inputs)}


def _emos(folder: Path) -> None:
    """A fit of a statistical method, whose forecast is one file of four dates."""
    _few_dates(folder)
    config = ["--config", realruns.config_path("emos_local"), "--data.store", folder / "store.zarr"]
    if _main("fit", *config, "--run", folder / "run", "--quiet"):
        raise RuntimeError("the fit failed")


def _few_dates(folder: Path) -> None:
    world = World("4x8", range(2000, 2004), 1, ["t2m", "u10"], seed=0, members=2, steps=(48,))
    world.write(folder / "world")
    prepare(folder / "world", folder / "store.zarr", truth=folder / "world" / "truth")


def _apply(folder: Path) -> int:
    """A file of an interrupted call that was named already is replaced, as its user may do."""
    (forecast,) = (folder / "world").glob("output.sfc.*")
    out, partial = folder / "out.zarr", folder / "out.zarr.partial"
    if out.exists() and not partial.exists():
        return 0
    force = ["--force"] if out.exists() else []
    return _main("apply", folder / "run", forecast, "--out", out, *force)


def _apply_netcdf(folder: Path) -> int:
    (forecast,) = (folder / "world").glob("output.sfc.*")
    out = folder / "out.nc"
    return _main("apply", folder / "run", forecast, "--out", out, "--force")


def _bundle(folder: Path) -> int:
    return _main("bundle", folder / "run", "--out", folder / "model.ens10", "--force")


def _submit(folder: Path) -> int:
    for out in ("packed", "packed.zip"):
        if not (folder / out).exists() or (folder / f"{out}.partial").exists():
            force = ["--force"] if (folder / out).exists() else []
            if status := _main("submit", "pack", folder / "run", "--out", folder / out, *force):
                return status
    return 0


def _applied(folder: Path) -> dict[str, Any]:
    """The store, and whatever else an interrupted call may have left beside it."""
    inputs = ("world/", "store.zarr/", "run/")
    return {name: sha for name, sha in files(folder).items() if not name.startswith(inputs)}


def _scored(folder: Path) -> None:
    _predicted(folder)
    if _score(folder):
        raise RuntimeError("the scores failed")


def _report(folder: Path) -> int:
    return _main("report", folder / "run", "--out", folder / "page")


def _reported(folder: Path) -> dict[str, Any]:
    return files(folder / "page")


def _download_flaky(folder: Path) -> int:
    """From a server that drops connections, cuts files, lies about parts, and is overloaded."""
    content = {
        path.name: path.read_bytes() for path in sorted((folder / "world").glob("output.sfc.*"))
    }
    first, second = content
    faults = {
        first: [("drop", 100), ("status", 503, {}), ("lie", 7), ("drop", 300)],
        second: [("short", 200), ("status", 429, {"Retry-After": "1"}), ("drop", 0)],
    }
    with flakyserver.serve(files=content, faults=faults) as site:
        dates = [name[-4:] for name in content]
        download(folder / "here", "sfc", ",".join(dates), base=site.url, sleep=lambda _: None)
    return 0


STUDIES = {
    "prepare": Study(_smaller_world, _prepare, _prepare, _stores),
    "fit": Study(_store, _fit, _fit_again, _runs),
    "fit-python": Study(_store, _fit_python, _fit_python_again, _runs),
    "predict": Study(_few_predicted, _predict, _predict, _runs),
    "score": Study(_predicted, _score, _score, _runs),
    "export": Study(_store, _export, _export, _exported),
    "download": Study(_world, _download, _download, _downloaded),
    "demo": Study(lambda folder: folder.mkdir(exist_ok=True), _demo, _demo, _demonstrated),
    "reproduce": Study(_ten_members, _reproduce, _reproduce, _reproduced),
    "report": Study(_scored, _report, _report, _reported),
    "apply": Study(_emos, _apply, _apply, _applied),
    "apply-netcdf": Study(_emos, _apply_netcdf, _apply_netcdf, _applied),
    "submit": Study(_scored, _submit, _submit, _applied),
    "bundle": Study(_emos, _bundle, _bundle, _applied),
    "prepare-zarr": Study(_zarr_source, _prepare_zarr, _prepare_zarr, _only_stores),
    "prepare-csv": Study(_tables, _prepare_table, _prepare_table, _only_stores),
    "prepare-regrid": Study(_finer_truth, _prepare_regridded, _prepare_regridded, _only_stores),
    "download-flaky": Study(_world, _download_flaky, _download_flaky, _downloaded),
    "runner": Study(_ten_members, _reproduce_in_two, _reproduce_in_two, _reproduced),
}
