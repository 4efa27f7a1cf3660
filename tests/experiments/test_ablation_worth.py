"""How many members with post-processing equal the raw ones, on Gaussian ensembles of known CRPS."""

import numpy as np
import pytest
import xarray as xr
from fakeruns import coordinates, provenance_of, write_run
from scipy.stats import norm

from ens10.errors import ArgumentError
from ens10.experiments.demo import config_path
from ens10.experiments.studies.ablation.member_sensitivity import (
    answer_in_words,
    lines_by_model,
    sensitivity_figure,
    write_sensitivity,
)
from ens10.experiments.studies.ablation.spec import Ablation, Variant
from ens10.experiments.studies.ablation.tables import Difference, Line, read_lines
from ens10.experiments.studies.members_worth import equal_members, raw_curve
from ens10.metrics import Interval, score_states

GRID, DATES, HELD = (12, 24), 24, 6
BIAS, SPREAD = 0.3, 0.8  # of the raw members, around a truth of N(0, 1) about what is known
UNCLEAR = Difference(Interval(-0.01, -0.03, 0.01), {0: -0.01}, 0.7)
SIGMAS = {2: 3.6, 4: 1.6, HELD: 1.0}  # of normals of the right mean, by members given


def gaussian(members, bias=BIAS, spread=SPREAD):
    """Mean CRPS of members N(bias, spread**2) of a truth N(0, 1), by E|X - Y| and E|X - X'|."""
    wide = np.hypot(1, spread)
    error = wide * 2 * norm.pdf(bias / wide) + bias * (2 * norm.cdf(bias / wide) - 1)
    return error - (1 - 1 / members) * spread / np.sqrt(np.pi)


def variants():
    yield Variant("raw", config_path("raw"))
    yield Variant("raw_2", config_path("raw"), {"data.ensemble": 2}, "raw")
    for given in SIGMAS:
        few = {} if given == HELD else {"data.ensemble": given}
        yield Variant(f"model_{given}", config_path("emos_local"), few, "raw")


ABLATION = Ablation("worth", "worth", "How many?", tuple(variants()), worth=True)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("worth")
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        coords = coordinates(DATES, GRID)
        shape, dims = (DATES, *GRID), ("time", "latitude", "longitude")
        truth = xr.DataArray(rng.normal(size=shape), coords, dims, attrs={"units": "K"})
        x = BIAS + SPREAD * rng.normal(size=(DATES, HELD, *GRID))
        members = xr.DataArray(x, coords, ("time", "number", *dims[1:]), attrs=truth.attrs)
        kind = {"forecast_kind": "ensemble"}
        forecasts = {"raw": xr.Dataset({"members": members}, attrs=kind)}
        few = members.isel(number=slice(2)).assign_attrs(truth.attrs)
        forecasts["raw_2"] = xr.Dataset({"members": few}, attrs=kind)
        for given, sigma in SIGMAS.items():
            mu = xr.zeros_like(truth)
            held = {"mu": mu, "sigma": xr.full_like(mu, sigma)}
            forecasts[f"model_{given}"] = xr.Dataset(held, attrs={"forecast_kind": "normal"})
        for name, forecast in forecasts.items():
            states = score_states(forecast, truth, weights="cell")
            write_run(folder / "worth" / f"seed{seed}" / name, states, provenance_of(name, seed))
    return folder


@pytest.fixture(scope="module")
def lines(out):
    return read_lines(ABLATION, out, (0, 1), same_data=False)


def test_lines_go_by_model_and_members_given(lines):
    models = lines_by_model(ABLATION, lines, HELD)
    assert {name: list(held) for name, held in models.items()} == {
        "raw": [2, HELD],
        "emos_local": [2, 4, HELD],
    }


def test_the_answer_is_the_fewest_that_are_clearly_better(lines):
    curves = {seed: raw_curve(run) for seed, run in lines[0].runs.items()}
    held = lines_by_model(ABLATION, lines, HELD)["emos_local"]
    normal = {given: gaussian(np.inf, 0, sigma) for given, sigma in SIGMAS.items()}
    assert normal[2] > gaussian(HELD) > normal[4] > normal[HELD]
    told = answer_in_words("model", held, curves)
    share = 100 * (1 - normal[4] / gaussian(HELD))
    assert told.startswith("model: 4 members have a CRPS ")
    assert told.endswith(f"below that of the raw {HELD} with it, clearly.")
    assert float(told.partition("CRPS ")[2].split()[0]) == pytest.approx(share, abs=1.5)
    assert "none of these numbers of members is better" in answer_in_words(
        "m", {2: held[2]}, curves
    )
    assert "(the fewest that were tried)" in answer_in_words("m", {4: held[4]}, curves)
    unclear = Line("near", "raw", held[4].runs, {"crps": UNCLEAR})
    assert "with none of these numbers is it clear" in answer_in_words("m", {4: unclear}, curves)
    both = {4: unclear, HELD: held[HELD]}
    assert answer_in_words("m", both, curves).endswith(f"from {HELD} on it is clear.")


def test_the_page(out, lines):
    text = write_sensitivity(ABLATION, lines, out)
    assert text == (out / "worth.md").read_text()
    rows = {row.split("|")[1].strip(): row.split("|") for row in text.splitlines() if "|" in row}
    assert set(rows) == {"Members given", "---:", "2", "4", str(HELD)}
    for given, sigma in SIGMAS.items():
        expected, raw, crps, worth = (cell.strip() for cell in rows[str(given)][2:6])
        assert float(expected) == pytest.approx(gaussian(given), rel=0.02)
        assert raw == "–" if given == 4 else float(raw) == pytest.approx(gaussian(given), rel=0.02)
        assert float(crps) == pytest.approx(gaussian(np.inf, 0, sigma), rel=0.02)
        known = equal_members(gaussian(np.inf, 0, sigma), gaussian(HELD), gaussian(np.inf), HELD)
        number = worth.split()[0]
        assert np.isinf(known) if number == "∞" else float(number) == pytest.approx(known, rel=0.2)
    assert rows[str(HELD)][5].strip() == "∞"
    assert (out / "worth.png").stat().st_size > 10_000


def test_the_figure_has_a_curve_and_a_line_for_each_model(lines):
    curves = {seed: raw_curve(run) for seed, run in lines[0].runs.items()}
    axes = sensitivity_figure("raw", lines_by_model(ABLATION, lines, HELD), curves).axes[0]
    drawn = {line.get_label(): line for line in axes.get_lines()}
    assert {"raw, expected", "raw, scored", "emos_local"} <= set(drawn)
    np.testing.assert_array_equal(drawn["emos_local"].get_xdata(), list(SIGMAS))
    scored = dict(zip(*drawn["raw, scored"].get_data(), strict=True))
    assert scored[2] == pytest.approx(gaussian(2), rel=0.02)


def test_without_the_base_there_is_nothing_to_count_in(lines, tmp_path):
    with pytest.raises(ArgumentError, match="raw is not there to count in"):
        write_sensitivity(ABLATION, lines[1:], tmp_path)
