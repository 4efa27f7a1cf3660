"""Options of the commands, each shared by the command and the function that it calls.

This module is imported for `ens10 COMMAND --help`: it needs no torch and no xarray.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ens10.errors import UnknownNameError
from ens10.options import option

Format = Literal["netcdf", "zarr", "grib", "csv", "parquet"]
Gaps = Literal["error", "nan", "skip", "fewer"]


@dataclass(frozen=True)
class SelectionOptions:
    """A part of the forecasts.

    Attributes:
        variables: forecast variables, by name or GRIB short name (default: all).
        levels: levels in hPa (default: all).
        steps: lead times in hours, or months such as 2.5 (default: all).
        dates: start dates 2016-01-04, months or years 2016, or ranges FIRST:LAST (default: all).
    """

    variables: Sequence[str] | None = None
    levels: Sequence[float] | None = None
    steps: Sequence[float] | None = None
    dates: Sequence[str] | None = option(None, metavar="DATE")


@dataclass(frozen=True)
class PrepareOptions(SelectionOptions):
    """Options of `ens10 prepare`.

    Attributes:
        truth: file, folder or Zarr store with the truth, like SRC; may be left out if the names
            map the truth in SRC.
        regrid: interpolate the truth to the forecasts' grid (default: truth on the same grid, or on
            one that contains its points).
        group: group of SRC, if it is a Zarr store, netCDF file or tree (default: root); that of the
            truth is in its names.
        names: YAML file of names that are not recognised (`ens10.source.names`): of SRC, and of
            the truth too unless --truth-names is given; in Python also the `Names` in it.
        truth_names: the same for the truth alone (in T, or in SRC if that holds the truth).
        members: only the first K members; in Python also their numbers.
        ensembles: mean and deviation of the first K members as well.
        climate: quantiles of the model climate for the EFI, of these channels and steps; in Python
            also the options that `parse_climate` returns.
        climate_levels: number of these quantiles (default: the protocol's).
        climate_protocol: whose years make the climate: clean, paper, or a YAML file.
        codec: lz4 is a third smaller, and three times slower to read.
        missing: what to do about missing fields and truth: refuse them, fill with NaN, or leave out
            their dates.
        any_values: do not refuse values outside the plausible range of their variable, as of
            anomalies and other derived data.
        workers: processes on this machine (default: one, or all cores if the source is larger than
            1 GB).
        scheduler: address of a dask.distributed cluster whose workers are used instead; they need
            to see the same files.
        force: replace an existing store (never anything else), or a partial one with other options.
    """

    truth: Any = option(None, metavar="T", type=str)
    regrid: Literal["bilinear", "conservative"] | None = None
    group: str = option("", metavar="NAME")
    names: Any = option(None, metavar="FILE", type=Path)
    truth_names: Any = option(None, metavar="FILE", type=Path)
    members: Sequence[int] | int | None = option(None, metavar="K", type=int)
    ensembles: Sequence[int] = option((), metavar="K")
    climate: Any = option(None, metavar="CHANNEL@STEP", type=str, nargs="+")
    climate_levels: int | None = option(None, type=int, choices=(21, 101))
    climate_protocol: str = option("clean", metavar="NAME")
    codec: Literal["none", "lz4"] = "none"
    missing: Literal["error", "nan", "skip"] = "error"
    any_values: bool = False
    workers: int | None = None
    scheduler: str | None = option(None, metavar="ADDRESS")
    force: bool = False


@dataclass(frozen=True)
class VerifyOptions:
    """Options of `ens10 verify`.

    Attributes:
        source: the files that the store was made from (default: searched for beside the store).
        truth: the files of the truth, for a repair (default: searched for likewise).
        sample: number of fields to decode again with ecCodes, if the source is GRIB and is found; 0
            for none.
        seed: seed of the choice of these fields.
        repair: write damaged files again from the source.
        workers: threads, or processes of a repair.
    """

    source: Path | str | None = option(None, metavar="SRC")
    truth: Path | str | None = option(None, metavar="T")
    sample: int = 64
    seed: int = 0
    repair: bool = False
    workers: int | None = option(None, flag="")


@dataclass(frozen=True)
class ExportOptions(SelectionOptions):
    """Options of `ens10 export`.

    Attributes:
        kind: a part of the store, "statistics" and "climate" as netCDF alone (default: all
            forecasts).
        members: numbers of members; in Python also how many of the first.
        compression: netCDF: 0 (none) to 9.
        force: replace a file that exists.
    """

    kind: Literal["sfc", "pl", "truth", "statistics", "climate"] | None = None
    members: Sequence[int] | int | None = None
    compression: int = 0
    force: bool = False


@dataclass(frozen=True)
class DownloadOptions:
    """Options of `ens10 download`.

    Attributes:
        base: URL of the folder of the forecast files, or of the Zarr store with ERA5, which may be
            a local path (default: ENS10_BASE_URL or ENS10_ERA5_URL of the environment, else the
            public servers; only then a second server is tried for forecasts).
        jobs: files, or hours of truth, at a time. An hour of ERA5 on levels takes 0.3 GB of memory.
        dry_run: only request sizes and report them.
        check: compare the SHA-256 of existing files with the record, `checksums.json`.
        years: truth: hindcast years FIRST-LAST of the start dates (default: all twenty).
        steps: truth: lead times in hours (default: 48, as in the paper).
        fields: truth: channels such as t2m or z500 (default: the three targets).
        spacing: truth: degrees between grid points; 0.25 keeps all of ERA5 (default: 0.5, every
            second point).
        cds: truth: write a script that requests the truth from the Copernicus Climate Data Store to
            this file, and fetch nothing.
    """

    base: str | None = option(None, metavar="URL")
    jobs: int = 4
    dry_run: bool = False
    check: bool = False
    years: Any = option(None, metavar="FIRST-LAST", type=str)
    steps: Sequence[int] | None = None
    fields: Sequence[str] | None = None
    spacing: float | None = None
    cds: Path | str | None = option(None, metavar="FILE")


@dataclass(frozen=True)
class TrustOptions:
    """What runs of others may use.

    Attributes:
        trust: code (a module besides this package) that the configuration of a run of someone else
            may use; repeatable.
    """

    trust: Sequence[str] = option((), metavar="MODULE", action="append", nargs=None)


@dataclass(frozen=True)
class ModelOptions(TrustOptions):
    """How trained models are loaded.

    Attributes:
        device: where networks compute, such as cuda.
        history: store with the truth of past dates, for products that need it, such as members by
            the Schaake shuffle (default: the training's).
        draws: number of members of a model that draws them, such as coherent_members (default:
            that of its configuration).
    """

    device: str = "cpu"
    history: str | Path | None = option(None, metavar="STORE")
    draws: int | None = option(None, metavar="NUMBER")


@dataclass(frozen=True)
class InputRules:
    """What is accepted of a forecast.

    Attributes:
        missing: what to do about missing fields and members. error: refuse them; nan: the corrected
            forecast is NaN; skip: leave out their dates; fewer: use the members that are there,
            whose number at each date is the variable `members_used`.
        any_values: do not refuse values outside the plausible range of their variable.

    Raises:
        UnknownNameError: another value of `missing`.
    """

    missing: Gaps = option("error", metavar="POLICY", type=str)
    any_values: bool = False

    def __post_init__(self) -> None:
        if self.missing not in get_args(Gaps):
            raise UnknownNameError("missing", self.missing, get_args(Gaps))

    @property
    def fewer(self) -> bool:
        """Return True if the members that are there are used."""
        return self.missing == "fewer"


@dataclass(frozen=True)
class ApplyOptions(InputRules, ModelOptions):
    """Options of `ens10 apply`, besides those of its products.

    Attributes:
        format: netcdf, zarr, grib, csv or parquet (default: what the suffix of the file says). A
            GRIB file has mean and spread instead of parameters; if the forecast is GRIB, its
            headers are kept. Tables (csv, parquet) are of stations.
        edition: GRIB edition, 1 or 2 (default: that of the forecast; 1 if it is not GRIB).
        post_processed: write GRIB 2 with WMO's templates for post-processed forecasts; readers need
            a recent ecCodes.
        names: YAML file of the names in the forecast; in Python also the `Names` in it.
        group: group of a Zarr store, netCDF file or tree (default: root).
        force: replace an older result.
    """

    format: Format | None = option(None, metavar="FORMAT", type=str)
    edition: int | None = option(None, metavar="NUMBER")
    post_processed: bool = False
    names: Any = option(None, metavar="FILE", type=Path)
    group: str = option("", metavar="NAME")
    force: bool = False

    @property
    def rules(self) -> InputRules:
        """What is accepted of the forecast."""
        return InputRules(self.missing, self.any_values)


@dataclass(frozen=True)
class BlendOptions:
    """Options of `ens10 blend`.

    Attributes:
        method: linear (weighted mean of the distributions), beta (the same, recalibrated) or emos
            (a normal by regression on their means and variances).
        force: replace an older result.
    """

    method: Literal["linear", "beta", "emos"] = "linear"
    force: bool = False


@dataclass(frozen=True)
class SubmitOptions:
    """Options of `ens10 submit`.

    Attributes:
        name: pack: of the model on the leaderboard (default: that of the run).
        authors: pack: who submits it.
        licence: pack: under which others may use the model, such as CC-BY-4.0.
        force: pack: replace an older submission.
        protocol: check, page: whose test dates count: clean, paper, or a YAML file.
        recompute: check, page: number of dates, drawn anew at each check, that are computed again
            with the model; 0 for none.
        trust: check, page: code besides ens10 that a submitted model may use.
    """

    name: str = ""
    authors: str = ""
    licence: str = option("", metavar="NAME")
    force: bool = False
    protocol: str = "clean"
    recompute: int = 3
    trust: Sequence[str] = option((), metavar="MODULE")


@dataclass(frozen=True)
class BundleOptions:
    """Options of `ens10 bundle`.

    Attributes:
        licence: under which others may use the model, such as CC-BY-4.0.
        truth_quantiles: keep these quantiles of past truth, such as 0.05 0.95, for `ens10 apply
            --probability '>q0.95'` without the store.
        history: store with the truth of past dates for these (default: the training's).
        force: replace an older result.
    """

    licence: str = option("", metavar="NAME")
    truth_quantiles: Sequence[float] = option((), metavar="LEVEL")
    history: str | Path | None = option(None, metavar="STORE")
    force: bool = False


@dataclass(frozen=True)
class CoupleOptions(TrustOptions):
    """Options of `ens10 couple`.

    Attributes:
        store: Zarr store with the raw members and the truth (default: the training's).
        out: Zarr store to write (default: RUN/coupled_METHOD.zarr, or one in RUN/parts/NAME/ for
            each of several targets and lead times).
        seed: of the choice of past dates, and of the order of equal ranks.
        force: replace an older result.
    """

    store: Path | str | None = None
    out: Path | str | None = None
    seed: int = 0
    force: bool = False


@dataclass(frozen=True)
class ScoreOptions:
    """Options of `ens10 score`.

    Attributes:
        truth: store or file of the truth (default: the one beside the forecast).
        variable: its name there (default: the run's target, or without a run the only one).
        scores: names of scores (default: the usual ones).
        by: groups that are scored separately as well.
        weights: weights of the rows of the grid (default: the run's).
        reference: run folder or forecast store to compare with.
        raw: for eecrps, the CRPS weighted by the EFI: the raw ensemble, a prepared store, a run or
            a forecast store.
        climate: for eecrps: prepared store with its climate.
        channel: for eecrps: name in those stores (default: the run's target).
        efi_method: for eecrps: form of the index.
        scores_raw: for eecrps: the forecast is the raw ensemble itself.
        land: file with the share of land, for the groups "surface".
        climatology: for acc and local extremes: a prepared store, whose truth in other years gives
            means and quantiles by month; or mean states or quantiles by month or day of the year.
        truth_error: standard deviation of the truth's errors, in its units, which the forecasts
            are then given, too.
        join: inner leaves out dates that are not everywhere, exact refuses them.
        out: folder to write into (default: that of the run or store).
        scheduler: address of a dask.distributed cluster; threads; processes.
        cross_check: compute the CRPS of N points (1000 if none is given) again with properscoring.
    """

    truth: str | None = option(None, metavar="STORE")
    variable: str | None = option(None, metavar="NAME")
    scores: Sequence[str] | None = option(None, metavar="SCORE")
    by: Sequence[str] = option((), metavar="GROUP")
    weights: Literal["cell", "cos", "none"] | None = None
    reference: str | None = option(None, metavar="OTHER")
    raw: str | None = option(None, metavar="STORE_OR_PREDICTIONS")
    climate: str | None = option(None, metavar="STORE")
    channel: str | None = option(None, metavar="NAME")
    efi_method: Literal["exact", "ecmwf", "ens10-paper"] = "exact"
    scores_raw: bool = False
    land: str | None = option(None, metavar="FILE")
    climatology: str | None = option(None, metavar="STORE_OR_FILE")
    truth_error: float = option(0.0, metavar="SIGMA")
    join: Literal["exact", "inner"] = "exact"
    out: Path | None = option(None, metavar="DIR")
    scheduler: str | None = option(None, metavar="ADDRESS")
    cross_check: int | None = option(None, type=int, nargs="?", const=1000, metavar="N")


@dataclass(frozen=True)
class EventOptions:
    """Where the raw ensemble, its climate and the lead time of an event come from.

    Attributes:
        raw: raw ensemble, a run or a store (default: the run called "raw").
        climate: prepared store for the climate of the raw ensemble, for the EFI: the climate that
            it keeps, or one made of its training years (default: the store that the raw run was
            made from).
        step: lead time in hours, where there are several.
    """

    raw: Path | str | None = option(None, metavar="RUN_OR_STORE")
    climate: Path | str | None = option(None, metavar="STORE")
    step: float | None = option(None, metavar="HOURS")


@dataclass(frozen=True)
class CaseOptions(EventOptions):
    """Options of `ens10 case`.

    Attributes:
        date: valid date, such as 2016-01-31.
        region: name or edges in degrees, such as europe or 35,-10,70,40.
        out: folder to write into (default: case-DATE-REGION in this folder).
        worst: list the N dates with the most extreme truth instead, in the region or in all.
    """

    date: str | None = option(None, metavar="DATE")
    region: str | None = option(None, metavar="NAME_OR_S,W,N,E")
    out: Path | str | None = option(None, metavar="DIR")
    worst: int | None = option(None, metavar="N")


@dataclass(frozen=True)
class ReportOptions:
    """Options of `ens10 report`.

    Attributes:
        reference: name of the run that skill is measured against.
    """

    reference: str = "raw"


@dataclass(frozen=True)
class DemoOptions:
    """Options of `ens10 demo`.

    Attributes:
        seed: of the world and of the training.
        kind: world in which the truth depends on the forecast at its point, or on the flow.
    """

    seed: int = 0
    kind: Literal["pointwise", "displaced"] = "pointwise"
