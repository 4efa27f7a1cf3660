"""Options and actions of the commands about data: info, synth, download, inspect, prepare, ..."""

import argparse
from pathlib import Path
from typing import Any

Commands = argparse._SubParsersAction


def add_all(commands: "Commands[Any]") -> None:
    """Adds every command of this module."""
    for add in (_add_info, _add_synth, _add_download, _add_inspect, _add_prepare, _add_verify,
                _add_export):  # fmt: skip
        add(commands)


def _add_info(commands: "Commands[Any]") -> None:
    parser = commands.add_parser("info", help="what ENS-10 is")
    parser.set_defaults(command=_info)


def _add_synth(commands: "Commands[Any]") -> None:
    parser = commands.add_parser("synth", help="write a synthetic world in the real file layout")
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--grid", default="46x96", help="rows x columns (default: %(default)s)")
    parser.add_argument("--years", default="1998-2017", help="first-last (default: %(default)s)")
    parser.add_argument("--dates", type=int, help="how many of the 105 start dates (default: all)")
    parser.add_argument("--variables", nargs="+", help="default: all surface variables")
    parser.add_argument("--levels", nargs="+", type=int, default=[500, 850], help="hPa")
    parser.add_argument("--steps", nargs="+", type=int, default=[0, 24, 48], help="hours")
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(command=_synth)


def _add_download(commands: "Commands[Any]") -> None:
    parser = commands.add_parser("download", help="fetch ENS-10's files, or the ERA5 truth")
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
    parser.set_defaults(command=_download)


def _add_inspect(commands: "Commands[Any]") -> None:
    parser = commands.add_parser("inspect", help="what a file, folder or store holds")
    parser.add_argument("path", metavar="PATH")
    parser.add_argument("--headers", action="store_true", help="do not decode the values")
    parser.set_defaults(command=_inspect)


def _add_prepare(commands: "Commands[Any]") -> None:
    parser = commands.add_parser("prepare", help="build a store from files; resumes")
    parser.add_argument("src", metavar="SRC", help="GRIB or netCDF file or folder, or Zarr store")
    parser.add_argument("store", type=Path, metavar="STORE", help="folder to write")
    parser.add_argument("--truth", metavar="T", help="file, folder or Zarr store with the truth")
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
    parser.set_defaults(command=_prepare)


def _add_verify(commands: "Commands[Any]") -> None:
    parser = commands.add_parser("verify", help="checksums of a store, and fields against files")
    parser.add_argument("store", type=Path, metavar="STORE")
    parser.add_argument("--source", type=Path, metavar="SRC", help="the files it was made from")
    parser.add_argument("--truth", type=Path, metavar="T", help="the truth's files")
    parser.add_argument(
        "--sample", type=int, default=64, help="fields to decode again (default: 64)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--repair", action="store_true", help="make damaged units anew")
    parser.set_defaults(command=_verify)


def _add_export(commands: "Commands[Any]") -> None:
    parser = commands.add_parser("export", help="a store as one netCDF or GRIB file")
    parser.add_argument("store", type=Path, metavar="STORE")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help=".nc or .grib")
    parser.add_argument("--kind", choices=("sfc", "pl", "truth", "statistics", "climate"))
    _add_selection(parser)
    parser.add_argument("--members", nargs="+", type=int)
    parser.add_argument("--compression", type=int, default=0, help="netCDF: 0 (none) to 9")
    parser.add_argument("--force", action="store_true", help="replace a file that exists")
    parser.set_defaults(command=_export)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--variables", nargs="+", help="default: all")
    parser.add_argument("--levels", nargs="+", type=float, help="hPa (default: all)")
    parser.add_argument(
        "--steps", nargs="+", type=float, help="hours, or months such as 2.5 (default: all)"
    )
    parser.add_argument(
        "--dates", nargs="+", metavar="DATE", help="2016-01-04, 2016 or FIRST:LAST (default: all)"
    )


def _years(option: str, text: str) -> range:
    from ens10.errors import ArgumentError

    first, _, last = text.partition("-")
    if not (first.isdigit() and (last or first).isdigit()):
        raise ArgumentError(option, f"{text!r} is no range", "Write 1998-2005")
    return range(int(first), int(last or first) + 1)


def _info(options: argparse.Namespace) -> None:  # noqa: ARG001
    from ens10.cli.output import print_info

    print_info()


def _synth(options: argparse.Namespace) -> None:
    from ens10.synthetic import World

    world = World(
        options.grid,
        _years("--years", options.years),
        options.dates,
        options.variables,
        options.seed,
        levels=options.levels,
        steps=options.steps,
        members=options.members,
    )
    world.write(options.folder, progress=True)
    print(f"Wrote {options.folder}: truth of {', '.join(world.targets) or 'no target'}")


def _inspect(options: argparse.Namespace) -> int:
    from ens10.cli.output import print_rows
    from ens10.inspection import inspect_path

    rows = inspect_path(options.path, values=not options.headers, progress=True)
    print_rows(str(options.path), rows)
    return int(any(row.status != "ok" for row in rows))


def _prepare(options: argparse.Namespace) -> None:
    from ens10.cli.output import print_store
    from ens10.convert import prepare
    from ens10.quantiles import parse_climate
    from ens10.source.names import read_names

    climate = None
    if options.climate:
        climate = parse_climate(
            options.climate, levels=options.climate_levels, protocol=options.climate_protocol
        )
    store = prepare(
        options.src,
        options.store,
        truth=options.truth,
        names=read_names(options.names) if options.names else None,
        truth_names=read_names(options.truth_names) if options.truth_names else None,
        variables=options.variables,
        levels=options.levels,
        steps=options.steps,
        members=options.members,
        dates=options.dates,
        ensembles=options.ensembles,
        climate=climate,
        codec=options.codec,
        missing=options.missing,
        any_values=options.any_values,
        workers=options.workers,
        scheduler=options.scheduler,
        force=options.force,
        progress=True,
    )
    print_store(store)


def _verify(options: argparse.Namespace) -> int:
    from ens10.cli.output import print_verification
    from ens10.convert import verify

    found = verify(
        options.store,
        source=options.source,
        truth=options.truth,
        sample=options.sample,
        seed=options.seed,
        repair=options.repair,
        progress=True,
    )
    print_verification(options.store, found)
    return int(not found.ok)


def _download(options: argparse.Namespace) -> None:
    from ens10.download import download

    report = download(
        options.folder,
        options.kind,
        options.dates,
        base=options.base,
        jobs=options.jobs,
        dry_run=options.dry_run,
        check=options.check,
        progress=True,
        years=_years("--years", options.years) if options.years else None,
        steps=options.steps,
        fields=options.fields,
        spacing=options.spacing,
        cds=options.cds,
    )
    if not (options.dry_run or options.cds):
        print(f"{options.folder}: {len(report.fetched)} fetched, {len(report.kept)} there already")


def _export(options: argparse.Namespace) -> None:
    from ens10.export import export

    path = export(
        options.store,
        options.to,
        kind=options.kind,
        variables=options.variables,
        levels=options.levels,
        steps=options.steps,
        members=options.members,
        dates=options.dates,
        compression=options.compression,
        force=options.force,
        progress=True,
    )
    print(f"Wrote {path}")
