"""Whole fields: draws of a learned random field beside coupled members of a distributional model.

    python -m ens10.experiments.studies.coherent_members WORK --out OUT --grid 24x48
    python -m ens10.experiments.studies.coherent_members WORK --out OUT --store STORE --step 48

WORK keeps the runs and, without other prepared data (STORE), the displaced world. `location_unet`
gives the distributions that ECC and the Schaake shuffle turn into members; `coherent_members` gives
members itself, any number. All are scored on the test dates as ensembles (plain estimators), beside
draws from the world's law, if its data are of such a world. If OUT has folders `seed*` of several
trainings on the same data, `--tables` writes their mean gains to OUT.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import xarray as xr
from jsonargparse import Namespace

from ens10.experiments.demo import config_path
from ens10.experiments.forecasts.couple import couple_run
from ens10.experiments.runner.key import digest_of
from ens10.experiments.runner.pointwise import annual_columns
from ens10.experiments.runner.running import Outcome
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runner.tasks import (
    WorldSize,
    network_options,
    store_of,
)
from ens10.experiments.runner.trainings import ModelCell
from ens10.experiments.runs.commands import add_world_options, world_options_of
from ens10.experiments.runs.reading import PREDICTIONS, open_predictions
from ens10.experiments.scoring.contrasts import (
    TIE,
    Contrast,
    corrected,
    over_trainings,
    pooled_variance,
    verdict,
)
from ens10.experiments.scoring.run_results import read_run
from ens10.experiments.scoring.writers import NOT_CLEAR, columns_of, markdown_of
from ens10.experiments.studies import error_flow
from ens10.experiments.studies.study import (
    compute,
    image_of,
    run_study,
    study_parser,
    with_bounds,
)
from ens10.experiments.training.data_numbers import read_config, training_batches
from ens10.experiments.training.run import run_stage
from ens10.grid import area_weights
from ens10.metrics import (
    Interval,
    brier_ensemble,
    crps_ensemble,
    energy_score,
    fractions_sums,
    interval,
    variogram_score,
)
from ens10.metrics.figures.style import INK, STYLE, line_style, new_figure
from ens10.models.losses import LossPatches
from ens10.partial import write_folder
from ens10.synthetic import World
from ens10.usage import count, reports_errors

Floats = npt.NDArray[np.floating[Any]]
TARGET = "t2m"
MARGINS, GENERATOR, FLOW, LAW = "location_unet", "coherent_members", "flow", "law"
SCORES, SPECTRA, EXAMPLE = "scores.nc", "spectra", "example"
REFERENCE = f"{MARGINS}, ECC"
REGION = (6, 8)  # rows and columns of the patches
WINDOW = 3  # of the fraction skill score, points
RARE = 0.9  # probability level of events, of the anomalies of training dates
_STREAMS = 1000  # of random fields for draws of the law: those of the truth are below
_GENERATED = {  # name: members and variant
    "10 quantiles": (10, "quantile"),
    "50 quantiles": (50, "quantile"),
    "50 draws": (50, "random"),
}
_NAMES = {
    "crps": "CRPS",
    "energy_field": "energy, field",
    "energy": "energy, regions",
    "variogram": "variogram",
    "crps_mean": "CRPS of means",
    "crps_max": "CRPS of maxima",
    "brier_mean": "Brier, mean",
    "brier_max": "Brier, maximum",
}
_NOTE = (
    "Plain estimators, means over the test dates by area. Energy score of fields and of regions of "
    f"{REGION[0]} x {REGION[1]} points (root mean square norm, K), variogram score of order 0.5 as "
    "the mean over pairs within a region (K), CRPS of means and of maxima over a region (K), Brier "
    f"score of their anomalies above the {RARE:.0%} quantile of the training dates, fraction skill "
    f"score of anomalies above it in windows of {WINDOW} x {WINDOW} points, and the power of zonal "
    "waves between 30 and 60 degrees relative to the truth, for waves of 4 to 8 and of 2 to 4 grid "
    "points."
)

_TRAININGS_NOTE = (
    "Means of {count} trainings. In brackets: 95 %, from the variance over the test dates (block "
    "bootstrap) plus that over trainings, pooled over the forecasts of all networks. "
    f"{NOT_CLEAR}: not distinguished, or a tie within {TIE} %; p values are corrected by the "
    "method of Benjamini and Hochberg."
)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a training failed."""
    text = "Generated and coupled members of whole fields on the displaced world; resumable."
    parser = study_parser("coherent_members", text)
    parser.add_argument("--store", type=Path, help="prepared data, instead of a world")
    text = "that both models see (default: all of the store)"
    parser.add_argument("--inputs", nargs="+", default=[], metavar="NAME", help=text)
    text = "lead time of the target, h, if the store has truth at several"
    parser.add_argument("--step", type=int, metavar="HOURS", help=text)
    parser.add_argument("--seed", type=int, default=0, help="of world and trainings")
    parser.add_argument("--epochs", type=count, default=16, help="of each training")
    parser.add_argument("--flow-epochs", type=count, default=error_flow.EPOCHS, help="of the flow")
    add_world_options(parser)
    options = parser.parse_args(arguments)
    return run_study(options, partial(_run, options), lambda *_: _write(options.out), of_call=True)


def _write(out: Path) -> str:
    if files := sorted(out.glob(f"seed*/{SCORES}")):
        text = trainings_table([xr.load_dataset(file) for file in files])
        write_files(out, {"table.md": text})
        return text
    with xr.open_dataset(out / SCORES) as scores:
        text = table_of(scores)
        write_files(out, {"table.md": text, "members.png": figure_of(scores)})
    return text


def _run(options: Namespace) -> Outcome:
    """Train both models on the store, or on a world's surface variables at 48 h, and score them."""
    world_options, store = world_options_of(options), options.store
    if store is None:
        size = WorldSize.from_options(
            **world_options, steps=(48,), kinds=("sfc",), world="displaced"
        )
        store = store_of(options.work / f"seed{options.seed}", options.seed, size)
    cells = [_cell(model, store, options) for model in (MARGINS, GENERATOR)]
    outcome = compute(cells, options)
    if not outcome.failed:
        scores = score_all(members_of(cells, options.flow_epochs), store)
        improving = [c.model for c in cells if read_run(c.run).still_improving]
        scores.attrs["improving"] = " ".join(improving)
        scores.attrs["grid"] = f"{scores.sizes['latitude']}x{scores.sizes['longitude']}"
        packed = scores.assign({n: scores[n].astype(np.float32) for n in (EXAMPLE, SPECTRA)})
        write_files(options.out, {SCORES: bytes(packed.to_netcdf(engine="scipy"))})
    return outcome


def _cell(model: str, store: Path, options: Namespace) -> ModelCell:
    """Return the training of a configuration on the same channels, of equal length."""
    config = config_path(model)
    content = read_config(config)
    inputs = options.inputs or None
    data = {**content["data"], "inputs": inputs}
    settings: dict[str, Any] = {"data.inputs": inputs or "null"}
    if options.step is not None:
        data["step"] = settings["data.step"] = options.step
    settings |= network_options(content["model"], data, store)
    for name in ("trainer.max_epochs", "model.init_args.scheduler.init_args.T_max"):
        settings[name] = options.epochs
    overrides = tuple(f"--{name}={str(v).replace(' ', '')}" for name, v in settings.items())
    return ModelCell(model, options.seed, config, options.work, options.out, overrides, data=store)


# ---------------------------------------------------------------------------------- members


def members_of(cells: Sequence[ModelCell], flow_epochs: int) -> dict[str, xr.DataArray]:
    """Return members (time, number, latitude, longitude) by name, and the truth as "truth"."""
    margins, generator = cells[0].run, cells[1]
    members: dict[str, xr.DataArray] = {}
    for method in ("ecc", "schaake"):
        path = couple_run(margins, method, store=cells[0].store, force=True)
        name = method.upper() if method == "ecc" else "Schaake"
        members[f"{MARGINS}, {name}"] = open_predictions(path)[0]["members"]
    for name, (number, variant) in _GENERATED.items():
        run = _with_members(generator, number, variant)
        forecast, truth = open_predictions(run)
        members[f"{GENERATOR}, {name}"], members["truth"] = forecast["members"], truth
    flow = error_flow.FlowMembers(margins, margins.parent, cells[0].seed, flow_epochs)
    for name, fields in flow.members(sorted({size for size, _ in _GENERATED.values()})).items():
        members[f"{FLOW}, {name}"] = _like(members["truth"], fields)
    world = cells[0].folder / "world"
    if world.exists():
        members[f"{LAW}, 50 draws"] = draws_of_law(World.load(world), members["truth"])
    return members


def _like(truth: xr.DataArray, fields: Floats) -> xr.DataArray:
    """Return members (time, number, latitude, longitude) at the places and dates of the truth."""
    dims = ("time", "number", *truth.dims[1:])
    return xr.DataArray(fields, dims=dims, coords={"time": truth["time"]})


def _with_members(cell: ModelCell, number: int, variant: str) -> Path:
    """Predict with a copy of a cell's run that has another number and variant of members.

    The name of the copy contains the digest of the cell's key, so that it belongs to one training.
    """
    name = f"{cell.run.name}-{number}-{variant}-{digest_of(cell.key)[:8]}"
    copy = cell.run.with_name(name)
    unneeded = shutil.ignore_patterns(PREDICTIONS, "*.lock")
    write_folder(copy, lambda path: shutil.copytree(cell.run, path, ignore=unneeded))
    head = "--model.init_args.head.init_args."
    options = [f"{head}members={number}", f"{head}variant={variant}", "--quiet"]
    if not (copy / PREDICTIONS).exists():
        run_stage("predict", ["--run", str(copy), *options])
    return copy


def draws_of_law(world: World, truth: xr.DataArray, members: int = 50) -> xr.DataArray:
    """Return draws (time, number, latitude, longitude) from the distribution of the truth.

    Args:
        world: whose files have been written.
        truth: (time, latitude, longitude), of the dates and the lead time.
        members: number of draws.
    """
    step = int(truth["step"])
    law, best = world.law(TARGET), world.optimum(TARGET, progress=False, step=step)
    draws = np.empty((len(truth), members, *truth.shape[1:]), np.float32)
    for n, time in enumerate(truth["time"].to_numpy()):
        optimum = best.sel(time=time)
        start = time.astype("datetime64[D]").astype(object)
        for m in range(members):
            draws[n, m] = law.truth(optimum, world._atmosphere.error(start, _STREAMS + m, step))
    return _like(truth, draws)


# ----------------------------------------------------------------------------------- scores


def score_all(members: Mapping[str, xr.DataArray], store: Path) -> xr.Dataset:
    """Return the scores of all forecasts by date, spectra, and an example of each.

    Args:
        members: see `members_of`.
        store: prepared data, whose training dates define the events.
    """
    truth = members["truth"].load()
    climate, threshold, regional = _climate(store, truth)
    y = (truth - climate).to_numpy().astype(np.float32)
    area = area_weights(truth["latitude"].to_numpy())
    scores, spectra, example = [], [spectrum(y, truth)], [y[0]]
    names = [name for name in members if name != "truth"]
    for name in names:
        x = (members[name].load() - climate).transpose("time", "number", ...).to_numpy()
        x = x.astype(np.float32)
        scores.append(field_scores(x, y, area, threshold, regional))
        spectra.append(spectrum(x, truth))
        example.append(x[0, 0])
    result = xr.concat(scores, "forecast").assign_coords(forecast=names)
    result["size"] = "forecast", [members[name].sizes["number"] for name in names]
    result[SPECTRA] = ("shown", "wave"), np.stack(spectra)
    result[EXAMPLE] = ("shown", "latitude", "longitude"), np.stack(example)
    places = {name: truth[name].to_numpy() for name in ("latitude", "longitude")}
    return result.assign_coords({"shown": ["truth", *names], **places})


def _climate(store: Path, truth: xr.DataArray) -> tuple[xr.DataArray, Floats, Floats]:
    """Return the annual cycle at the dates of the truth, and thresholds of anomalies from it.

    The cycle is a constant and one harmonic at each point, fitted to the training dates. The
    thresholds are the quantiles of anomalies: of each point (H, W), and of the mean and the maximum
    over each region (2, regions).
    """
    target = {"target": TARGET, "inputs": [TARGET], "step": int(truth["step"])}
    parts = [(np.array(b["dates"]), np.array(b["target"])) for b in training_batches(target, store)]
    dates, fields = (np.concatenate(one) for one in zip(*parts, strict=True))

    def design(dates: Any) -> Floats:
        columns = annual_columns(dates.astype("datetime64[s]"))
        flat = [np.broadcast_to(np.ravel(column), len(dates)) for column in columns]
        return np.stack(flat, 1)

    flat = fields.reshape(len(fields), -1)
    coefficients = np.linalg.lstsq(design(dates), flat, rcond=None)[0]
    anomaly = (flat - design(dates) @ coefficients).reshape(fields.shape)
    valid_time = truth["valid_time"].to_numpy()
    cycle = (design(valid_time) @ coefficients).reshape(len(valid_time), *fields.shape[1:])
    region_anomalies = regions(anomaly.astype(np.float32))
    region_statistics = np.stack([region_anomalies.mean(-1), region_anomalies.max(-1)])
    return (
        xr.DataArray(cycle, dims=truth.dims),
        np.quantile(anomaly, RARE, axis=0),
        np.quantile(region_statistics, RARE, axis=1),
    )


def regions(fields: Floats) -> Floats:
    """Cut fields (..., H, W) into regions (..., regions, points)."""
    vectors: Floats = LossPatches(REGION).of(torch.from_numpy(np.ascontiguousarray(fields))).numpy()
    return vectors


def field_scores(
    x: Floats, y: Floats, area: Floats, threshold: Floats, regional: Floats
) -> xr.Dataset:
    """Return scores of members by date (plain estimators).

    Args:
        x: (D, M, H, W), members, anomalies.
        y: (D, H, W), truth.
        area: (H,), area weights of the rows.
        threshold: (H, W), of events at points.
        regional: (2, regions), of the mean and the maximum over regions.
    """
    weights = np.broadcast_to(area[:, None], y.shape[1:])
    shares = weights / weights.sum()
    of_region = regions(weights.astype(np.float32)).mean(-1)
    points = REGION[0] * REGION[1]
    by_date: dict[str, list[float]] = {}
    plain: dict[str, Any] = {"estimator": "plain", "member_dim": 0}
    vectors = {**plain, "variable_dim": 2}
    for members, truth in zip(x, y, strict=True):
        m, t = regions(members), regions(truth)
        one: dict[str, Any] = {
            "energy": energy_score(m, t, **vectors) / np.sqrt(points),
            "variogram": variogram_score(m, t, **vectors) / (points * (points - 1)),
        }
        of_regions = {"mean": (m.mean(-1), t.mean(-1)), "max": (m.max(-1), t.max(-1))}
        for n, (name, (values, observed)) in enumerate(of_regions.items()):
            one[f"crps_{name}"] = crps_ensemble(values, observed, **plain)
            excess = values - regional[n], observed - regional[n]
            one[f"brier_{name}"] = brier_ensemble(*excess, threshold=0.0, **plain)
        means = {k: float(np.average(v, weights=of_region)) for k, v in one.items()}
        crps = crps_ensemble(members, truth, **plain)
        means["crps"] = float(np.average(crps, weights=weights))
        field = {"variable_dim": (1, 2), "variable_weights": shares}
        means["energy_field"] = float(energy_score(members, truth, **plain, **field))
        sums = fractions_sums(
            members - threshold, truth - threshold, threshold=0.0, window=WINDOW, member_dim=0,
            latitude_dim=1, longitude_dim=2, weights=weights,
        )  # fmt: skip
        means |= {f"fractions_{k}": float(v) for k, v in sums.items()}
        for name, value in means.items():
            by_date.setdefault(name, []).append(value)
    return xr.Dataset({name: ("time", values) for name, values in by_date.items()})


def spectrum(fields: Floats, truth: xr.DataArray) -> Floats:
    """Return the mean power of zonal waves between 30 and 60 degrees, (waves,)."""
    latitude = np.abs(truth["latitude"].to_numpy())
    rows = fields[..., (latitude >= 30) & (latitude <= 60), :]
    power: Floats = (np.abs(np.fft.rfft(rows)) ** 2).reshape(-1, fields.shape[-1] // 2 + 1).mean(0)
    return power


# ------------------------------------------------------------------------ tables and figure


def table_of(scores: xr.Dataset) -> str:
    """Return the scores of all forecasts, and the gain over ECC with intervals, as Markdown."""
    headings = ["Forecast", "Members", *_NAMES.values(), "FSS", "Power, 4–8", "2–4"]
    rows, gains = [], []
    for name in scores["forecast"].to_numpy():
        one, reference = scores.sel(forecast=name), scores.sel(forecast=REFERENCE)
        values = [f"{float(one[score].mean()):.4f}" for score in _NAMES]
        parts = ("difference", "forecast", "observed")
        difference, *both = (float(one[f"fractions_{part}"].sum()) for part in parts)
        fss = 1 - difference / sum(both)
        power = [f"{ratio:.2f}" for ratio in power_ratios(scores, name)]
        mark = " (+)" if name.split(",")[0] in scores.attrs.get("improving", "").split() else ""
        rows.append([f"{name}{mark}", str(int(one["size"])), *values, f"{fss:.3f}", *power])
        if name != REFERENCE:
            gains.append([name, *(_gain(one[score], reference[score]) for score in _NAMES)])
    text = markdown_of(columns_of(headings, rows))
    gain = markdown_of(columns_of([f"Gain over {REFERENCE} (%)", *_NAMES.values()], gains))
    marked = "\n(+): still improving when its training ended.\n" if "(+)" in text else ""
    return f"{text}\n{_NOTE}\n{marked}\n{gain}\nIn brackets: 95 % interval, paired by date.\n"


def _gain(score: xr.DataArray, reference: xr.DataArray) -> str:
    sums = {"score": score.to_numpy(), "reference": reference.to_numpy()}
    return with_bounds(interval(sums, lambda s: 100 * (1 - s["score"] / s["reference"])), ".1f")


def trainings_table(scores: Sequence[xr.Dataset]) -> str:
    """Return the mean gain over ECC of several trainings on the same data, as Markdown.

    The variance over trainings of a score is pooled over the forecasts of all networks, which are
    of one class. Members of the same training as the reference are compared training by training.

    Args:
        scores: of `score_all`, of each training.
    """
    names = [str(name) for name in scores[0]["forecast"].to_numpy()]
    contrasts = {
        (name, score): _contrast(scores, name, score)
        for name in names
        for score in _NAMES
        if name != REFERENCE
    }
    p_values = corrected(list(contrasts.values()), primary=False)
    cells = {}
    for (place, one), p in zip(contrasts.items(), p_values, strict=True):
        text = with_bounds(Interval(one.value, one.lower, one.upper), ".1f")
        clear = verdict(one.lower, one.upper, p) in ("gains", "loses")
        cells[place] = text if clear else f"{text} {NOT_CLEAR}"
    rows = [[n, *(cells[n, score] for score in _NAMES)] for n in names if n != REFERENCE]
    table = markdown_of(columns_of([f"Gain over {REFERENCE} (%)", *_NAMES.values()], rows))
    return f"{table}\n{_TRAININGS_NOTE.format(count=len(scores))}\n"


def _contrast(scores: Sequence[xr.Dataset], name: str, score: str) -> Contrast:
    """Return the gain of a forecast over ECC, with its variance over dates and trainings."""
    values = [one[score].transpose("forecast", "time") for one in scores]
    unit = float(np.mean([one.sel(forecast=REFERENCE).mean() for one in values])) / 100
    pairs = [(one.sel(forecast=name), one.sel(forecast=REFERENCE)) for one in values]
    gains = [(other - own).to_numpy() / float(other.mean()) * 100 for own, other in pairs]
    if name.split(",")[0] == MARGINS:  # of the same training
        variance = pooled_variance([[float(gain.mean()) for gain in gains]])
    else:
        networks = [str(n) for n in scores[0]["forecast"].to_numpy() if not str(n).startswith(LAW)]
        means = [[float(one.sel(forecast=n).mean()) for one in values] for n in networks]
        variance = 2 * pooled_variance(means) / unit**2
    return over_trainings(gains, variance / len(gains))


def power_ratios(scores: xr.Dataset, name: str) -> tuple[float, float]:
    """Return the power of members relative to the truth, for waves of 4 to 8 and 2 to 4 points."""
    power, truth = scores[SPECTRA].sel(shown=name), scores[SPECTRA].sel(shown="truth")
    last = scores.sizes["wave"] - 1
    bands = (slice(last // 4, last // 2), slice(last // 2, last))
    middle, short = (float(power[band].sum() / truth[band].sum()) for band in bands)
    return middle, short


def figure_of(scores: xr.Dataset) -> bytes:
    """Return a figure of one date as PNG: truth, a member of each forecast, and spectra."""
    import matplotlib as mpl

    names = [name for name in scores["shown"].to_numpy() if not name.endswith("quantiles")]
    places: list[Any] = [*range(len(names)), "spectra"]
    places += ["."] * (len(places) % 2)
    with mpl.rc_context(STYLE):
        figure = new_figure(1.25 * len(places))
        axes: Any = figure.subplot_mosaic(np.array(places, object).reshape(-1, 2).tolist())
        limit = np.quantile(np.abs(scores[EXAMPLE].sel(shown="truth").to_numpy()), 0.99)
        for n, name in enumerate(names):
            mesh = axes[n].pcolormesh(
                scores["longitude"], scores["latitude"], scores[EXAMPLE].sel(shown=name),
                cmap="RdBu_r", vmin=-limit, vmax=limit, shading="nearest",
            )  # fmt: skip
            title = name if name == "truth" else f"{name.removesuffix(' draws')}: member 1"
            axes[n].set(title=title, xticks=[0, 90, 180, 270], yticks=[-60, 0, 60])
        maps = [axes[n] for n in range(len(names))]
        figure.colorbar(mesh, ax=maps, label="anomaly (K)", shrink=0.6)
        for n, name in enumerate(names):
            style = {"color": INK, "linewidth": 2} if name == "truth" else line_style(n - 1)
            power = scores[SPECTRA].sel(shown=name)
            axes["spectra"].loglog(np.arange(1, len(power)), power[1:], label=name, **style)
        axes["spectra"].set(xlabel="zonal wavenumber, 30 to 60 degrees", ylabel="power")
        axes["spectra"].legend(fontsize=7)
        return image_of(figure, 130)


if __name__ == "__main__":
    sys.exit(main())
