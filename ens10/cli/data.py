"""Commands on data: info, synth, download, inspect, prepare, verify, export."""

from pathlib import Path
from typing import Any

from ens10.cli.output import print_info, print_rows, print_store, print_verification
from ens10.errors import ArgumentError, printable
from ens10.usage import Command, Parser


def _synth_options(parser: Parser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--grid", default="46x96", help="rows x columns (default: %(default)s)")
    parser.add_argument("--years", default="1998-2017", help="first-last (default: %(default)s)")
    parser.add_argument("--dates", type=int, help="how many of the 105 start dates (default: all)")
    parser.add_argument("--variables", nargs="+", help="default: all surface variables")
    parser.add_argument("--levels", nargs="+", type=int, default=[500, 850], help="hPa")
    parser.add_argument("--steps", nargs="+", type=int, default=[0, 24, 48], help="hours")
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--truth-steps", nargs="+", type=int, default=[48], help="hours")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--kind", choices=("pointwise", "displaced"), default="pointwise",
        help="pointwise: the truth depends on the forecast at its point (default); displaced: on "
        "the flow around it",
    )  # fmt: skip


def _synth(folder: Path, years: str, **options: Any) -> None:
    from ens10.synthetic import World

    world = World(years=_years("--years", years), **options)
    world.write(folder, progress=True)
    print(printable(f"Wrote {folder}: truth of {', '.join(world.targets) or 'no target'}"))
    for need in world.missing_winds:
        print(f"  {need}")


def _download_options(parser: Parser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--kind", choices=("sfc", "pl", "truth"), required=True)
    parser.add_argument(
        "--dates", nargs="+", required=True, metavar="DATE", help="0104, 0101-0331 or all"
    )
    parser.add_argument("--base", metavar="URL", help="folder of the files, or the ERA5 Zarr")
    parser.add_argument("--jobs", type=int, default=4, help="files at a time (default: 4)")
    parser.add_argument("--dry-run", action="store_true", help="only say how much it is")
    parser.add_argument("--check", action="store_true", help="compare files with their checksums")
    truth = parser.add_argument_group("truth only")
    truth.add_argument("--years", metavar="FIRST-LAST", help="of the start dates")
    truth.add_argument("--steps", nargs="+", type=int, help="hours (default: 48)")
    truth.add_argument("--fields", nargs="+", help="default: t2m z500 t850")
    truth.add_argument("--spacing", type=float, help="degrees (default: 0.5)")
    truth.add_argument("--cds", type=Path, metavar="FILE", help="write a request instead")


def _download(folder: Path, years: str | None, **options: Any) -> None:
    from ens10.download import download

    year_range = _years("--years", years) if years else None
    report = download(folder, years=year_range, **options, progress=True)
    if not (options["dry_run"] or options["cds"]):
        counts = f"{len(report.new_files)} fetched, {len(report.existing_files)} there already"
        print(printable(f"{folder}: {counts}"))


def _inspect_options(parser: Parser) -> None:
    parser.add_argument("path", metavar="PATH")
    parser.add_argument("--headers", action="store_true", help="do not decode the values")
    add_group(parser)


def _inspect(path: str, headers: bool, group: str) -> int:
    from ens10.inspection import inspect_path

    rows = inspect_path(path, values=not headers, progress=True, group=group)
    print_rows(path, rows)
    return int(any(row.status != "ok" for row in rows))


def _prepare_options(parser: Parser) -> None:
    parser.add_argument(
        "src", metavar="SRC", help="GRIB, netCDF or CSV file or folder, or Zarr store"
    )
    parser.add_argument("store", type=Path, metavar="STORE", help="folder to write")
    parser.add_argument("--truth", metavar="T", help="file, folder or Zarr store with the truth")
    parser.add_argument(
        "--regrid", choices=("bilinear", "conservative"),
        help="interpolate the truth to the forecasts' grid (default: truth at their points)",
    )  # fmt: skip
    add_group(parser)
    parser.add_argument(
        "--names", type=Path, metavar="FILE",
        help="YAML mapping of names of files that are not recognised: of SRC, and of T too "
        "unless --truth-names is given",
    )  # fmt: skip
    parser.add_argument(
        "--truth-names",
        type=Path,
        metavar="FILE",
        help="YAML mapping of the truth's names alone (in T, or in SRC if that holds the truth)",
    )
    _add_selection(parser)
    parser.add_argument("--members", type=int, metavar="K", help="only the first K members")
    parser.add_argument(
        "--ensembles", nargs="+", type=int, default=[], metavar="K",
        help="statistics of the first K members as well",
    )  # fmt: skip
    parser.add_argument(
        "--climate", nargs="+", metavar="CHANNEL@STEP", help="model-climate quantiles for EFI"
    )
    parser.add_argument("--climate-levels", type=int, choices=(21, 101), help="default: protocol's")
    parser.add_argument(
        "--climate-protocol", default="clean", metavar="NAME",
        help="whose years make the climate: clean (default), paper, or a YAML file",
    )  # fmt: skip
    parser.add_argument(
        "--codec", choices=("none", "lz4"), default="none",
        help="lz4: a third smaller, three times slower to read (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--missing", choices=("error", "nan", "skip"), default="error",
        help="fields or truth: refuse, fill with NaN, leave the dates out (default: error)",
    )  # fmt: skip
    parser.add_argument(
        "--any-values", action="store_true", help="do not refuse values out of plausible ranges"
    )
    parser.add_argument("--workers", type=int, help="processes (default: all cores for large data)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a dask.distributed cluster")
    parser.add_argument("--force", action="store_true", help="replace a store that exists")


def _prepare(
    names: Path | None,
    truth_names: Path | None,
    climate: list[str] | None,
    climate_levels: int | None,
    climate_protocol: str,
    **options: Any,
) -> None:
    from ens10.convert import prepare
    from ens10.quantiles import parse_climate
    from ens10.source.names import read_names

    options["climate"] = climate and parse_climate(
        climate, levels=climate_levels, protocol=climate_protocol
    )
    options["names"] = names and read_names(names)
    options["truth_names"] = truth_names and read_names(truth_names)
    print_store(prepare(**options, progress=True))


def _verify_options(parser: Parser) -> None:
    parser.add_argument("store", type=Path, metavar="STORE")
    parser.add_argument("--source", type=Path, metavar="SRC", help="the files it was made from")
    parser.add_argument("--truth", type=Path, metavar="T", help="the truth's files")
    parser.add_argument(
        "--sample", type=int, default=64, help="fields to decode again (default: 64)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--repair", action="store_true", help="make damaged units anew")


def _verify(store: Path, **options: Any) -> int:
    from ens10.convert import verify

    verification = verify(store, **options, progress=True)
    print_verification(store, verification)
    return int(not verification.ok)


def _export_options(parser: Parser) -> None:
    parser.add_argument("store", type=Path, metavar="STORE")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help=".nc or .grib")
    parser.add_argument("--kind", choices=("sfc", "pl", "truth", "statistics", "climate"))
    _add_selection(parser)
    parser.add_argument("--members", nargs="+", type=int)
    parser.add_argument("--compression", type=int, default=0, help="netCDF: 0 (none) to 9")
    parser.add_argument("--force", action="store_true", help="replace a file that exists")


def _export(**options: Any) -> None:
    from ens10.export import export

    print(printable(f"Wrote {export(**options, progress=True)}"))


def add_group(parser: Parser) -> None:
    """Add the option that chooses a group of a Zarr store or netCDF file."""
    parser.add_argument(
        "--group", default="", metavar="NAME", help="of a Zarr store or netCDF file (default: root)"
    )


def _add_selection(parser: Parser) -> None:
    parser.add_argument("--variables", nargs="+", help="default: all")
    parser.add_argument("--levels", nargs="+", type=float, help="hPa (default: all)")
    parser.add_argument(
        "--steps", nargs="+", type=float, help="hours, or months such as 2.5 (default: all)"
    )
    parser.add_argument(
        "--dates", nargs="+", metavar="DATE", help="2016-01-04, 2016 or FIRST:LAST (default: all)"
    )


def _years(option: str, text: str) -> range:
    first, _, last = text.partition("-")
    if not (first.isdigit() and (last or first).isdigit()):
        raise ArgumentError(option, f"{text!r} is no range", "Write 1998-2005")
    return range(int(first), int(last or first) + 1)


COMMANDS = {
    "info": Command("what ENS-10 is", print_info),
    "synth": Command("write a synthetic world in the real file layout", _synth, _synth_options),
    "download": Command("fetch ENS-10's files, or the ERA5 truth", _download, _download_options),
    "inspect": Command("what a file, folder or store holds", _inspect, _inspect_options),
    "prepare": Command("build a store from files; resumes", _prepare, _prepare_options),
    "verify": Command("checksums of a store, and fields against files", _verify, _verify_options),
    "export": Command("a store as one netCDF or GRIB file", _export, _export_options),
}
