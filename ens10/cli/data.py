"""Commands on data: info, synth, download, inspect, prepare, verify, export."""

from pathlib import Path
from typing import Any

from ens10.cli.output import print_info, print_rows, print_store, print_verification
from ens10.command_options import (
    DownloadOptions,
    ExportOptions,
    PrepareOptions,
    VerifyOptions,
)
from ens10.errors import ArgumentError, printable
from ens10.options import add_options
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
    targets = ", ".join(world.targets) or "no target"
    print(printable(f"Wrote forecasts in {folder}, with truth of {targets} in {folder / 'truth'}"))
    for need in world.missing_winds:
        print(f"  {need}")


def _download_options(parser: Parser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--kind", choices=("sfc", "pl", "truth"), required=True)
    parser.add_argument(
        "--dates", nargs="+", required=True, metavar="DATE", help="0104, 0101-0331 or all"
    )
    add_options(parser, DownloadOptions)


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
    parser.add_argument(
        "--group", default="", metavar="NAME", help="of a Zarr store or netCDF file (default: root)"
    )


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
    add_options(parser, PrepareOptions)


def _prepare(**options: Any) -> None:
    from ens10.convert import prepare

    print_store(prepare(**options, progress=True))


def _verify_options(parser: Parser) -> None:
    parser.add_argument("store", type=Path, metavar="STORE")
    add_options(parser, VerifyOptions)


def _verify(store: Path, **options: Any) -> int:
    from ens10.convert import verify

    verification = verify(store, **options, progress=True)
    print_verification(store, verification)
    return int(not verification.ok)


def _export_options(parser: Parser) -> None:
    parser.add_argument("store", type=Path, metavar="STORE")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help=".nc or .grib")
    add_options(parser, ExportOptions)


def _export(**options: Any) -> None:
    from ens10.export import export

    print(printable(f"Wrote {export(**options, progress=True)}"))


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
