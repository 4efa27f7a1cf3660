"""Trained models in use: `ens10 apply`, `bundle` and `couple`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ens10.command_options import ApplyOptions, BlendOptions, BundleOptions, CoupleOptions
from ens10.errors import ArgumentError, printable
from ens10.options import add_options
from ens10.usage import Command, Parser


def _apply_options(parser: Parser) -> None:
    from ens10.experiments.forecasts.products import product_types

    parser.add_argument(
        "paths", nargs="+", metavar="RUN_OR_BUNDLE... FORECAST",
        help="folders or bundles of trained runs; then a GRIB or netCDF file, a folder of such "
        "files, a Zarr store, a URL of one, or a store of `ens10 prepare`",
    )  # fmt: skip
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help=".nc, .zarr or .grib; of stations also .csv or .parquet",
    )
    add_options(parser, ApplyOptions)
    for product in product_types():
        add_options(parser, product)


def _bundle_options(parser: Parser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="such as a.ens10; of several runs the folder of their bundles",
    )  # fmt: skip
    add_options(parser, BundleOptions)


def _couple_options(parser: Parser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--method", required=True, metavar="METHOD", help="ecc or schaake")
    add_options(parser, CoupleOptions)


def _couple(**options: Any) -> None:
    from ens10.experiments.forecasts.couple import couple_run

    print(printable(f"Wrote {couple_run(**options)}"))


def _blend_options(parser: Parser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders or predictions")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.zarr")
    add_options(parser, BlendOptions)


def _blend(runs: Sequence[str], out: Path, **options: Any) -> None:
    from ens10.experiments.forecasts.blend import blend_runs

    weights = blend_runs(runs, out, **options)
    shares = ", ".join(f"{name} {weight:.2f}" for name, weight in weights.items())
    print(printable(f"Wrote {out}; last weights of the linear pool: {shares}"))


def _bundle(runs: Sequence[Path], out: Path, **options: Any) -> None:
    from ens10.experiments.forecasts.bundle import bundle

    into_folder = len(runs) > 1 or out.is_dir()
    files = [out / f"{run.resolve().name}.ens10" if into_folder else out for run in runs]
    if len(set(files)) < len(files):
        raise ArgumentError("runs", "two have the same name", "Bundle them into two folders")
    if into_folder:
        out.mkdir(exist_ok=True)
    for run, file in zip(runs, files, strict=True):
        print(printable(f"Wrote {bundle(run, file, **options)}"))


def _apply(paths: Sequence[str], out: Path, **options: Any) -> None:
    from ens10.experiments.forecasts.apply import apply

    *runs, forecast = paths
    if not runs:
        raise ArgumentError("FORECAST", "none is given", "Give RUN... and then FORECAST")
    out = apply(runs, forecast, out, progress=sys.stderr.isatty(), **options)
    print(printable(f"Wrote {out}"))


COMMANDS = {
    "apply": Command(
        "correct new forecasts with trained runs",
        _apply,
        _apply_options,
        "Corrects forecasts that need no truth, and writes one file. If it is interrupted, rerun "
        "the same command to resume.",
    ),
    "blend": Command(
        "one forecast from the predictions of several runs",
        _blend,
        _blend_options,
        "Writes a blend for all dates that a run predicted, which `ens10 score` takes. Each date "
        "has weights from the dates whose truth was known at its start; runs may lack dates.",
    ),
    "bundle": Command(
        "write trained runs as files to share",
        _bundle,
        _bundle_options,
        "Writes weights, configuration, normalisation statistics and a model card of each run as "
        "one file for `ens10 apply` and `ens10.load_model`, which opens without pickle.",
    ),
    "couple": Command(
        "coherent members from a run's distributions",
        _couple,
        _couple_options,
        "Writes members of a run for its test dates, which `ens10 score` takes: the quantiles at "
        "each point, in the order of raw members (ecc) or of past truth (schaake).",
    ),
}
