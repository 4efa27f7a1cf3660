"""Options of the commands on predictions: `ens10 score` and `ens10 case`."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Commands = argparse._SubParsersAction
Run = Callable[[argparse.Namespace], Any]


def add_score(commands: "Commands[Any]", run: Run) -> None:
    """Adds `ens10 score`."""
    parser = commands.add_parser(
        "score",
        help="score forecasts, with confidence intervals",
        description="Scores a forecast in one pass and writes scores.nc (sums that add), "
        "scores.csv and, with --by, groups.csv beside it.",
        epilog="Scores: crps, crps_fair, rmse, bias, spread_error, log_score, histogram, and with "
        "a number brier_273.15 (threshold), quantile_score_0.9, coverage_0.8, width_0.8, "
        "interval_score_0.8; pod, far, frequency_bias, csi, ets, hss and sedi with a threshold, "
        "such as csi_273.15; acc with --climatology; eecrps with --raw and --climate. "
        "Groups: season, month, year, step, level, latitude_band, surface, region.",
    )
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="RUN_OR_PREDICTIONS",
        help="run folder, or forecast store or netCDF file with the attribute forecast_kind",
    )  # fmt: skip
    parser.add_argument("--truth", metavar="STORE", help="default: the one beside the forecast")
    parser.add_argument("--variable", metavar="NAME", help="of the truth in that store")
    parser.add_argument("--scores", nargs="+", metavar="SCORE", help="default: the usual ones")
    parser.add_argument("--by", nargs="+", default=[], metavar="GROUP", help="scored apart")
    parser.add_argument("--weights", choices=("cell", "cos", "none"), help="default: the run's")
    parser.add_argument("--reference", metavar="OTHER", help="run or store to compare with")
    _add_extremes(parser)
    parser.add_argument("--land", metavar="FILE", help="share of land, for --by surface")
    parser.add_argument(
        "--climatology", metavar="STORE_OR_FILE",
        help="for acc: mean state by month or day of the year, or a prepared store, whose truth "
        "in other years is averaged by month",
    )  # fmt: skip
    parser.add_argument(
        "--join", choices=("exact", "inner"), default="exact",
        help="inner leaves out dates that are not everywhere (default: exact, which refuses them)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write into")
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="of a dask.distributed cluster; threads; processes"
    )
    parser.add_argument(
        "--cross-check", type=int, nargs="?", const=1000, metavar="N",
        help="compute the CRPS of N points (default: 1000) again with properscoring",
    )  # fmt: skip
    parser.set_defaults(command=run)


def _add_extremes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("extremes", "for eecrps, CRPS weighted by the EFI")
    group.add_argument(
        "--raw", metavar="STORE_OR_PREDICTIONS", help="raw ensemble: prepared store, run or store"
    )
    group.add_argument("--climate", metavar="STORE", help="prepared store with its climate")
    group.add_argument(
        "--channel", metavar="NAME", help="in those stores (default: the run's target)"
    )
    group.add_argument(
        "--efi-method", choices=("exact", "ecmwf", "ens10-paper"), default="exact",
        help="default: exact",
    )  # fmt: skip
    group.add_argument(
        "--scores-raw", action="store_true", help="the forecast is the raw ensemble itself"
    )


def add_case(commands: "Commands[Any]", run: Run) -> None:
    """Adds `ens10 case`."""
    parser = commands.add_parser(
        "case",
        help="maps and numbers of one event: raw, corrected, truth, EFI, CRPS",
        description="Draws one event from the predictions of runs: case.png, numbers.csv and "
        "index.html.",
        epilog="Regions: global, europe, conus, north_america, south_america, africa, asia, "
        "south_asia, australia, pacific, arctic, antarctic.",
    )
    # a region may begin with a minus, which is no option
    parser._negative_number_matcher = re.compile(r"-\d.*")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="with predictions")
    parser.add_argument("--date", metavar="DATE", help="valid date, such as 2016-01-31")
    parser.add_argument(
        "--region", metavar="NAME_OR_S,W,N,E", help="such as europe or 35,-10,70,40"
    )
    parser.add_argument(
        "--raw", type=Path, metavar="RUN_OR_STORE", help='default: the run called "raw"'
    )
    parser.add_argument(
        "--climate", type=Path, metavar="STORE",
        help="for the EFI (default: the store that the raw run was made from)",
    )  # fmt: skip
    parser.add_argument("--step", type=float, metavar="HOURS", help="where there are several")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="default: case-DATE-REGION in this folder"
    )
    parser.add_argument(
        "--worst", type=int, metavar="N",
        help="list the N dates with the most extreme truth instead, in --region or in all",
    )  # fmt: skip
    parser.set_defaults(command=run)
