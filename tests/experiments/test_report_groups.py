"""Runs by target and lead time; the score card; what is said in words."""

import numpy as np
import pytest
import xarray as xr
from fakereports import Page
from fakeruns import MODELS, provenance_of, world, write_run

from ens10.errors import UnknownNameError
from ens10.experiments.reporting.assembly import assemble
from ens10.experiments.reporting.groups import read_groups
from ens10.experiments.reporting.scorecard import card_of_runs
from ens10.experiments.reporting.summary import duration, in_short
from ens10.metrics import score_states, summarise
from ens10.metrics.uncertainty import blocks_in_words


@pytest.fixture(scope="module")
def scored():
    """States by name of dates over a whole year; `twin` is unet with errors of its own."""
    truth, forecasts = world(dates=120)
    names = ("raw", *MODELS)
    states = {name: score_states(forecasts[name], truth) for name in names}
    rng = np.random.default_rng(5)
    mu = forecasts["optimum"]["mu"]
    twin = forecasts["unet"].assign(mu=mu + 0.3 * rng.normal(size=mu.shape))
    return states | {"twin": score_states(twin, truth)}


def written(folder, scored, names, step=48, **known):
    told = {"step": step, **known}
    return [
        write_run(
            folder / name,
            scored[name].assign_coords(step=((), float(step), {"units": "h"})),
            provenance_of(name) | {"name": name} | told,
        )
        for name in names
    ]


def test_a_run_of_several_lead_times_is_one_for_each(scored, tmp_path):
    folders = []
    for name, factor in (("raw", 3.0), ("unet", 2.0)):
        states = scored[name].drop_vars(["step", "valid_time"])
        apart = [v for v in states if "time" in states[v].dims]
        later = states.assign({v: factor * states[v] for v in apart if v.endswith("_sum")})
        both = [part[apart].expand_dims(step=[float(s)]) for s, part in ((24, states), (48, later))]
        joined = xr.concat(both, "step", join="exact").assign(states.drop_vars(apart))
        joined["step"].attrs["units"] = "hours"
        folders.append(write_run(tmp_path / name, joined, {"name": name, "target": "t2m"}))
    early, late = read_groups(folders, "raw")
    assert (early.title, late.title) == ("t2m, 24 h", "t2m, 48 h")
    rows = {row.model: row for row in late.rows}
    before = {row.model: row for row in early.rows}
    assert rows["raw"].crps.value == pytest.approx(3 * before["raw"].crps.value)
    assert rows["unet"].crps.value == pytest.approx(2 * before["unet"].crps.value)
    assert "crps_map_sum" not in early.runs[0].states


def test_groups_are_in_order_of_target_and_lead_time(scored, tmp_path):
    for target, step in (("z500", 48), ("t2m", 120), ("t2m", 24), ("t2m", 48)):
        written(tmp_path / f"{target}{step}", scored, ("raw", "unet"), target=target, step=step)
    groups = read_groups(sorted(tmp_path.glob("*/*")), "raw")
    assert [group.title for group in groups] == [
        *("t2m, 24 h", "t2m, 48 h", "t2m, 120 h", "z500, 48 h"),
    ]
    assert [group.slug for group in groups][2:] == ["t2m-120-h", "z500-48-h"]
    for group in groups:
        assert [run.name for run in group.runs] == ["raw", "unet"]
        assert {folder.parent.name for folder in group.folders.values()} == {
            f"{group.target}{group.step.split()[0]}"
        }


def test_who_does_not_tell_its_target_joins_the_only_one(scored, tmp_path):
    (raw,) = written(tmp_path, scored, ("raw",))
    bare = write_run(tmp_path / "bare", scored["emos"])
    assert len(read_groups([raw, bare], "raw")) == 1
    (other,) = written(tmp_path / "other", scored, ("unet",), target="z500")
    assert [g.target for g in read_groups([raw, bare, other], "raw")] == [None, "t2m", "z500"]


def test_another_reference_has_to_be_there(scored, tmp_path):
    runs = written(tmp_path, scored, ("raw", "unet"))
    assert read_groups(runs, "unet")[0].reference_run.name == "unet"
    with pytest.raises(UnknownNameError, match="reference"):
        read_groups(runs, "emos")


@pytest.fixture(scope="module")
def group(scored, tmp_path_factory):
    names = ("raw", "emos", "unet", "twin", "optimum")
    (made,) = read_groups(written(tmp_path_factory.mktemp("runs"), scored, names), "raw")
    return made


@pytest.fixture(scope="module")
def card(group):
    return {line.name: line for line in card_of_runs(group)}


def test_the_card_is_of_paired_differences(card, scored):
    for name in ("emos", "unet", "optimum"):
        own = summarise(scored[name], scored["raw"], maps=False)
        line = card[name].reference
        assert line.skill.value == pytest.approx(float(own["crpss"]))
        assert line.difference.lower == pytest.approx(float(own["crps_difference_lower"]))
        assert line.verdict == "better"
    assert card["raw"].reference is None
    assert card["raw"].best.verdict == "worse"


def test_the_best_other_is_neither_itself_nor_the_optimum(card, group):
    crps = {row.model: row.crps.value for row in group.rows}
    first, second = sorted(("unet", "twin"), key=crps.get)
    assert card[first].best.other == second
    assert {card[name].best.other for name in ("raw", "emos", second, "optimum")} == {first}
    assert card[first].best.verdict == card[second].best.verdict == "unclear"  # of equal quality


def test_seasons_are_those_of_valid_dates(card, scored):
    seasons = {one.season: one for one in card["emos"].seasons}
    assert list(seasons) == ["DJF", "MAM", "JJA", "SON"]
    inside = scored["emos"]["valid_time"].dt.season == "JJA"
    mine, its = (scored[name]["crps_sum"].where(inside, 0).sum() for name in ("emos", "raw"))
    assert seasons["JJA"].skill.value == pytest.approx(1 - float(mine / its))


def test_signs_words_and_colours_agree(card, group):
    html = Page(assemble("x", [group], [{}])).section("Score card")
    cells = [c for line in card.values() for c in (line.reference, line.best, *line.seasons) if c]
    told = blocks_in_words(cell.difference for cell in cells)
    assert told.startswith("blocks of ")
    assert f"intervals: bootstrap, {told}" in html
    for kind, sign, said in (
        ("better", "▲", "clearly better"),
        ("worse", "▼", "clearly worse"),
        ("unclear", "≈", "no clear difference"),
    ):
        cells = [cell for cell in html.split("<td")[1:] if cell.split('"')[1].endswith(kind)]
        assert cells
        assert all(sign in cell and said in cell for cell in cells)
    assert html.count("▲") == html.count("clearly better</span>") + 1  # and the legend


def test_words_do_not_claim_what_is_not_clear(card, group):
    told = " ".join(in_short(group, list(card.values())))
    assert "these dates do not tell" in told
    assert "Clearly better than raw: 3 of 3 models." in told
    assert "take" in told
    assert "equally good" in told


def test_words_on_cost_and_caution(scored, tmp_path):
    runs = [
        *written(tmp_path, scored, ("raw",)),
        *written(tmp_path, scored, ("unet",), seconds=7200.0, seed=1),
        *written(tmp_path, scored, ("twin",), seconds=3.0, kind="model"),
    ]
    (made,) = read_groups(runs, "raw")
    told = " ".join(in_short(made, card_of_runs(made)))
    best = min(made.rows, key=lambda row: row.crps.value).model
    if best == "unet":
        assert "Fitting unet took 2.0 hours; twin took 3.0 s" in told
    else:
        assert "Fitting twin took 3.0 s." in told
    assert "different seeds (0, 1)" in told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(3, "3.0 s"), (45, "45 s"), (89.6, "90 s"), (600, "10 minutes"), (9000, "2.5 hours")],
)
def test_durations(seconds, told):
    assert duration(seconds) == told
