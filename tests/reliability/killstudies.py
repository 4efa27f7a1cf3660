"""The commands that are killed at each of their file operations, on tiny data."""

import hashlib
import json
from pathlib import Path
from typing import Any

import flakyserver
import realruns
import torch
from killsweep import Study, in_child

from ens10.cli import main
from ens10.convert import prepare
from ens10.download import download
from ens10.experiments import demo
from ens10.experiments.runner import running
from ens10.export import export
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
    world = World("4x8", range(2000, 2004), 1, ["t2m", "u10"], seed=0, members=2, steps=(48,))
    world.write(folder / "world")
    prepare(folder / "world", folder / "store.zarr", truth=folder / "world" / "truth")
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
    """Both formats; what stands under its name is whole and is not written again."""
    for name in ("out.nc", "out.grib"):
        if not (folder / name).exists():
            export(folder / "store.zarr", folder / name, kind="sfc", progress=False)
    return 0


def _exported(folder: Path) -> dict[str, Any]:
    """The files; of a killed export one under a temporary name may stay."""
    return {n: sha for n, sha in files(folder).items() if n.startswith("out")}


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


def _reproduce(folder: Path) -> int:
    """A table of one model; the processes of cells are forks, whose operations do not count."""

    def start(cell: Any, *_: object) -> str | None:
        status = in_child(lambda: running.compute_cell(cell) or 0)
        return None if status == 0 else f"exit status {status}"

    running.start_cell = start
    words = ["--protocol", "clean", "--models", "raw", "emos_global", "--targets", "t2m"]
    words += ["--members", 10, "--seeds", 1, "--store", folder / "store.zarr"]
    return _main("reproduce", *words, "--out", folder / "results", "--work", folder / "work")


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


STUDIES = {
    "prepare": Study(_smaller_world, _prepare, _prepare, _stores),
    "fit": Study(_store, _fit, _fit_again, _runs),
    "predict": Study(_few_predicted, _predict, _predict, _runs),
    "score": Study(_predicted, _score, _score, _runs),
    "export": Study(_store, _export, _export, _exported),
    "download": Study(_world, _download, _download, _downloaded),
    "demo": Study(lambda folder: folder.mkdir(exist_ok=True), _demo, _demo, _demonstrated),
    "reproduce": Study(_ten_members, _reproduce, _reproduce, _reproduced),
}
