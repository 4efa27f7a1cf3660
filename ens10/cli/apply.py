"""Trained models in use: `ens10 apply`, `bundle` and `couple`, and `ens10.load_model`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ens10.cli.data import add_group
from ens10.errors import ArgumentError, printable
from ens10.extras import telling_extras
from ens10.usage import Command, Parser

if TYPE_CHECKING:
    from ens10.experiments.load import load_model as load_model


def __getattr__(name: str) -> Any:
    """Return `load_model` for `ens10.load_model`; torch is imported on first use."""
    if name != "load_model":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with telling_extras("ens10.load_model"):
        from ens10.experiments.load import load_model

        return load_model


def _apply_options(parser: Parser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="RUN_OR_BUNDLE... FORECAST",
        help="folders or bundles of trained runs; then a GRIB or netCDF file, a folder of such "
        "files, a Zarr store, a URL of one, or a store of `ens10 prepare`",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help=".nc, .zarr or .grib"
    )
    parser.add_argument("--format", metavar="FORMAT", help="netcdf, zarr or grib")
    parser.add_argument(
        "--edition", type=int, metavar="NUMBER",
        help="GRIB edition, 1 or 2 (default: that of the forecast; 1 if it is not GRIB)",
    )  # fmt: skip
    parser.add_argument(
        "--post-processed", action="store_true",
        help="write GRIB 2 with WMO's templates for post-processed forecasts; readers need a "
        "recent ecCodes",
    )  # fmt: skip
    parser.add_argument(
        "--quantiles", type=float, nargs="+", default=[], metavar="LEVEL", help="such as 0.1 0.9"
    )
    parser.add_argument(
        "--probability", nargs="+", default=[], metavar="THRESHOLD",
        help="such as '>303.15' or '<273.15', in the target's units",
    )  # fmt: skip
    parser.add_argument(
        "--members", metavar="KIND",
        help="ecc: in the order of the raw members; schaake: of past truth; sample: independent",
    )  # fmt: skip
    parser.add_argument(
        "--draws", type=int, metavar="NUMBER",
        help="members of a model that draws them, such as coherent_members",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument("--history", metavar="STORE", help="past truth (default: the training's)")
    parser.add_argument("--names", type=Path, metavar="FILE", help="YAML: names in the forecast")
    add_group(parser)
    parser.add_argument(
        "--missing", default="error", metavar="POLICY",
        help="error; nan: the result is NaN; skip: leave out the date; fewer: use the members that "
        "are there",
    )  # fmt: skip
    parser.add_argument(
        "--any-values", action="store_true", help="do not refuse values out of plausible ranges"
    )
    parser.add_argument("--device", default="cpu", help="where networks compute (default: cpu)")
    parser.add_argument(
        "--trust", action="append", default=[], metavar="MODULE",
        help="code that the configuration of a run of someone else may use; repeatable",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="replace an older result")


def _bundle_options(parser: Parser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE",
        help="such as a.ens10; of several runs the folder of their bundles",
    )  # fmt: skip
    parser.add_argument("--licence", default="", metavar="NAME", help="such as CC-BY-4.0")
    parser.add_argument("--force", action="store_true", help="replace an older result")


def _couple_options(parser: Parser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--method", required=True, metavar="METHOD", help="ecc or schaake")
    parser.add_argument("--store", type=Path, help="members and truth (default: the training's)")
    parser.add_argument("--out", type=Path, help="default: RUN/coupled_METHOD.zarr")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument(
        "--trust", action="append", default=[], metavar="MODULE",
        help="code that the configuration of a run of someone else may use; repeatable",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="replace an older result")


def _couple(**options: Any) -> None:
    from ens10.experiments.couple import couple_run

    print(printable(f"Wrote {couple_run(**options)}"))


def _bundle(runs: Sequence[Path], out: Path, **options: Any) -> None:
    from ens10.experiments.bundle import bundle

    into_folder = len(runs) > 1 or out.is_dir()
    files = [out / f"{run.resolve().name}.ens10" if into_folder else out for run in runs]
    if len(set(files)) < len(files):
        raise ArgumentError("runs", "two have the same name", "Bundle them into two folders")
    if into_folder:
        out.mkdir(exist_ok=True)
    for run, file in zip(runs, files, strict=True):
        print(printable(f"Wrote {bundle(run, file, **options)}"))


def _apply(
    paths: Sequence[str],
    names: Path | None,
    quantiles: Sequence[float],
    probability: Sequence[str],
    members: Any,
    seed: int,
    edition: int | None,
    post_processed: bool,
    **options: Any,
) -> None:
    from ens10.experiments.apply import apply
    from ens10.experiments.products import Products
    from ens10.export.grib_products import Encoding
    from ens10.source.names import read_names

    *runs, forecast = paths
    if not runs:
        raise ArgumentError("FORECAST", "none is given", "Give RUN... and then FORECAST")
    options["products"] = Products(quantiles, probability, members, seed)
    if edition is not None or post_processed:
        options["encoding"] = Encoding(edition, post_processed)
    options["names"] = names and read_names(names)
    out = apply(runs, forecast, **options, progress=sys.stderr.isatty())
    print(printable(f"Wrote {out}"))


COMMANDS = {
    "apply": Command(
        "correct new forecasts with trained runs",
        _apply,
        _apply_options,
        "Corrects forecasts that need no truth, and writes one file. If it is interrupted, rerun "
        "the same command to resume.",
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
