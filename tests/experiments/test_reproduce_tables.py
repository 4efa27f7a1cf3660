"""The papers' tables from kept cells: means, spreads, published values, marks, notes."""

import csv
import io

import fakeruns
import numpy as np
import pytest
import xarray as xr

from ens10.errors import MissingDataError
from ens10.experiments.reproduce.command import Request
from ens10.experiments.reproduce.tables import Result, _rank, read_results, write_tables
from ens10.experiments.runner.tasks import Task
from ens10.metrics import score_states

NAMES = {"raw": "raw", "emos": "emos_global", "unet": "unet", "optimum": "optimum"}
TASKS = [Task("clean", "t2m", 5), Task("clean", "t2m", 10)]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Kept cells: two seeds of all models with 10 members, one of raw with 5."""
    folder = tmp_path_factory.mktemp("cells")
    for seed in (0, 1):
        truth, forecasts = fakeruns.world(dates=25, seed=seed)
        for made, name in NAMES.items():
            keep(folder / f"seed{seed}" / name, forecasts[made], truth, name, seed)
    keep(folder / "clean-t2m-5" / "seed0" / "raw", forecasts["raw"], truth, "raw", 0)
    return folder


def keep(folder, forecast, truth, name, seed):
    states = score_states(forecast, truth)
    fakeruns.write_run(folder, states, {**fakeruns.provenance_of(name, seed), "name": name})
    if name == "raw":
        numbers = {"eecrps_sum": ("time", [1.0 + seed]), "eecrps_weight": ("time", [4.0])}
        xr.Dataset(numbers).to_netcdf(folder / "eecrps.nc", engine="netcdf4")


def request(out, **changed):
    models = ("raw", "emos_global", "unet", "poet")
    given = {"targets": ("t2m",), "members": (10, 5), "models": models, "seeds": 2, **changed}
    return Request(out, out / "work", **given)


@pytest.fixture(scope="module")
def files(out):
    write_tables(request(out), out, {"poet (clean)": "members: too few"})
    return {path.suffix: path.read_text() for path in out.glob("reproduce-clean.*")}


@pytest.fixture(scope="module")
def beside(out, tmp_path_factory):
    """The same cells as those of a store, which has the published values beside."""
    folder = tmp_path_factory.mktemp("store")
    write_tables(request(folder, store=out), out)
    return {path.suffix: path.read_text() for path in folder.glob("reproduce-clean.*")}


def crps(out, name):
    found = []
    for seed in (0, 1):
        states = xr.load_dataset(out / f"seed{seed}" / name / "scores.nc", engine="netcdf4")
        found.append(float(states["crps_sum"].sum() / states["crps_weight"].sum()))
    return np.array(found)


def table(text, heading):
    """Rows of a Markdown table, by their first cell and column."""
    lines = text.split(f"## {heading}\n\n")[1].split("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(cells[0], row, strict=True)) for row in cells[2:]}


def test_mean_and_spread_over_seeds(out, files):
    rows = table(files[".md"], "CRPS")
    assert list(rows) == ["raw", r"emos\_global", "unet", "optimum"]  # poet has no cell
    own = crps(out, "unet")
    assert rows["unet"]["T2m 10-ENS (K)"] == f"{own.mean():.3f} ± {own.std(ddof=1):.3f}"


def test_published_values_stand_beside_those_of_a_store_alone(files, beside):
    rows = table(beside[".md"], "CRPS")
    assert list(rows) == ["raw", r"emos\_global", "unet"]
    assert rows["unet"]["T2m 10-ENS, published"] == "0.644"
    assert rows["raw"]["T2m 5-ENS, published"] == "0.758?"  # unverified
    assert table(beside[".md"], "EECRPS")["raw"]["T2m 10-ENS, published"] == "0.25"
    assert "no second source confirms" in beside[".md"]
    assert "0.758?" in beside[".html"]
    row = next(
        row
        for row in csv.DictReader(io.StringIO(beside[".csv"]))
        if (row["model"], row["members"], row["score"]) == ("emos_global", "10", "crps")
    )
    assert (row["published"], row["confirmed"], row["source"]) == ("0.749", "True", "ens10")
    assert not any("ublished" in text for text in files.values())


def test_one_seed_has_no_spread_and_a_missing_cell_no_number(files):
    rows = table(files[".md"], "CRPS")
    assert float(rows["raw"]["T2m 5-ENS (K)"]) > 0
    assert rows["unet"]["T2m 5-ENS (K)"] == "–"
    columns = list(rows["raw"])
    assert columns.index("T2m 5-ENS (K)") < columns.index("T2m 10-ENS (K)")  # as the paper


def test_the_eecrps_has_a_table_of_its_own(files):
    rows = table(files[".md"], "EECRPS")
    assert list(rows) == ["raw"]
    assert rows["raw"]["T2m 10-ENS (K)"] == "0.375 ± 0.177"  # of 1/4 and 2/4


def test_skill_against_raw_and_the_best_other(out, files):
    rows = table(files[".md"], "T2m 10-ENS: skill, calibration, cost")
    raw, emos, unet, best = (crps(out, name) for name in NAMES.values())
    assert rows["unet"]["Skill against raw (%)"] == f"{100 * (1 - unet / raw).mean():.1f} [2 of 2]"
    # the optimum is no rival
    assert (rows["unet"]["Best other"], rows["raw"]["Best other"]) == (r"emos\_global", "unet")
    worse = f"{100 * (1 - emos / unet).mean():.1f}".replace("-", "−")
    assert rows[r"emos\_global"]["Skill against best other (%)"] == f"{worse} [2 of 2]"
    attained = 100 * ((raw - emos) / (raw - best)).mean()
    assert float(rows[r"emos\_global"]["Attained (%)"]) == pytest.approx(attained, abs=0.05)
    assert rows["unet"]["Parameters"] == "636,002"
    assert "paired over the test dates (blocks of " in files[".md"]


def test_a_difference_that_is_not_clear_is_not_counted(tmp_path):
    truth, forecasts = fakeruns.world(dates=25)
    twin = forecasts["emos"].copy(deep=True)
    flip = np.where(np.arange(25) % 2, 1, -1)[:, None, None]
    twin["mu"] = truth + (twin["mu"] - truth) * (1 + 1e-3 * flip)
    keep(tmp_path / "seed0" / "raw", forecasts["emos"], truth, "raw", 0)
    keep(tmp_path / "seed0" / "unet", twin, truth, "unet", 0)
    text = write_tables(request(tmp_path), tmp_path)
    rows = table(text, "T2m 10-ENS: skill, calibration, cost")
    assert rows["unet"]["Skill against raw (%)"].endswith("[0 of 1]")


def test_the_csv_holds_all_digits(out, files):
    lines = {
        (row["model"], row["members"], row["score"]): row
        for row in csv.DictReader(io.StringIO(files[".csv"]))
    }
    row = lines["emos_global", "10", "crps"]
    assert float(row["mean"]) == pytest.approx(crps(out, "emos_global").mean(), rel=1e-12)
    assert lines["raw", "5", "crps"]["spread"] == ""
    assert lines["raw", "10", "eecrps"]["seeds"] == "2"


def test_cells_of_fewer_seeds_are_told(out):
    shown = {f"seed{seed}/{name}" for seed in (0, 1) for name in ("raw", "unet")}
    text = write_tables(request(out), out, places={*shown, "seed1/emos_global"})
    rows = table(text, "CRPS")
    assert rows[r"emos\_global"]["T2m 10-ENS (K)"].endswith(" (1 of 2 seeds)")
    assert "seeds)" not in rows["unet"]["T2m 10-ENS (K)"]
    assert "are of fewer worlds" in text
    write_tables(request(out), out)


def test_the_best_is_that_of_the_seeds_that_all_have():
    def result(model, **crps):
        held = {int(seed[1]): value for seed, value in crps.items()}
        return Result(model, TASKS[0], "K", dict.fromkeys(held), {"crps": held})

    hard = result("unet", s0=1.0, s1=3.0), result("emos", s0=1.5)
    assert [one.model for one in _rank(hard)] == ["unet", "emos"]
    apart = result("unet", s1=3.0), result("emos", s0=1.5)
    assert [one.model for one in _rank(apart)] == ["emos", "unet"]


def test_a_cell_of_other_code_or_data_is_not_shown(out):
    shown = {"seed0/raw", "seed1/unet"}
    text = write_tables(request(out), out, places=shown)
    rows = table(text, "CRPS")
    assert rows["unet"]["T2m 10-ENS (K)"] == f"{crps(out, 'unet')[1]:.3f}"
    assert rows["raw"]["T2m 10-ENS (K)"] == f"{crps(out, 'raw')[0]:.3f}"
    assert list(rows) == ["raw", "unet"]
    write_tables(request(out), out)


def test_notes_tell_what_a_reader_has_to_know(out, files, beside):
    text = files[".md"]
    assert "280 train, 40 val, 40 test" in text
    assert "seeds (1 to 2)" in text
    assert "Missing: poet (clean): members: too few" in text
    assert "each a synthetic world and a training" in text
    assert "ten epochs" not in write_tables(request(out, models=("raw", "unet"), store=out), out)
    own = beside[".md"]
    assert own.count("EMOS: the paper trained its EMOS for ten epochs") == 1
    assert "each a synthetic world" not in own
    assert "compare them with those of a store of all of ENS-10" in own


def test_latex_and_page(files):
    assert r"$\pm$" in files[".tex"]
    assert r"emos\_global" in files[".tex"]
    assert files[".tex"].count(r"\begin{tabular}") == 4
    assert files[".html"].count("<table>") == 4
    assert "<script" not in files[".html"]


def test_no_cell_at_all(tmp_path):
    with pytest.raises(MissingDataError, match="Let at least one cell end"):
        write_tables(request(tmp_path), tmp_path)
    assert read_results(tmp_path, TASKS, ["raw"], [0]) == []
