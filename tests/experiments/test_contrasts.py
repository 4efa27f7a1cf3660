"""Contrasts of methods: bounds against scipy and closed forms, corrections and verdicts."""

from itertools import combinations

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from ens10.experiments.demo import config_path
from ens10.experiments.runner.comparisons import (
    COMPARISONS,
    contrasts_as_markdown,
    leaders_in,
)
from ens10.experiments.scoring.contrasts import (
    Contrast,
    contrast_row,
    corrected,
    leaders,
    over_trainings,
    over_worlds,
    pooled_variance,
    verdict,
)
from ens10.experiments.scoring.run_results import FinishedRun
from ens10.metrics import interval

TIME = np.datetime64("2016-01-01", "ns") + np.arange(80) * np.timedelta64(5, "D")


def test_over_worlds_it_is_the_paired_t_test():
    rng = np.random.default_rng(0)
    gains = [rng.normal(mean, 1, size=40) for mean in (0.5, 0.8, 0.2)]
    found = over_worlds(gains)
    expected = stats.ttest_1samp([gain.mean() for gain in gains], 0)
    low, high = expected.confidence_interval(0.95)
    np.testing.assert_allclose([found.p, found.lower, found.upper], [expected.pvalue, low, high])
    assert found.value == pytest.approx(np.mean(gains))
    one = over_worlds(gains[:1])  # its dates alone
    dates = interval(gains[0])
    assert one.upper - one.lower == pytest.approx(dates.upper - dates.lower)


def test_over_trainings_the_variances_of_dates_and_trainings_are_added():
    rng = np.random.default_rng(1)
    gains = [rng.normal(0.5, 1, size=200) for _ in range(3)]
    dates = interval(np.mean(gains, axis=0))
    variance = 0.3**2 / 3 + 0.4**2 / 3
    found = over_trainings(gains, variance)
    half = np.sqrt(((dates.upper - dates.lower) / 2) ** 2 + 1.959964**2 * variance)
    assert (found.upper - found.lower) / 2 == pytest.approx(half, rel=1e-6)
    assert found.p == pytest.approx(2 * stats.norm.sf(found.value / (half / 1.959964)), rel=1e-5)
    assert over_trainings([np.zeros(40)]).p == 1.0


def test_the_variance_over_trainings_is_pooled_by_degrees_of_freedom():
    # deviations 1 and -1 of two trainings; 1, 0 and -1 of three
    assert pooled_variance([[9.0, 11.0], [4.0, 5.0, 6.0], [3.0]]) == pytest.approx((2 + 2) / 3)
    assert pooled_variance([[1.0], []]) == 0.0


def test_primary_contrasts_are_corrected_by_holm_and_others_by_benjamini_hochberg():
    contrasts = [Contrast(1.0, 0.5, 1.5, p, (1.0,)) for p in (0.01, 0.04, 0.03)]
    assert corrected(contrasts, primary=True) == pytest.approx([0.03, 0.06, 0.06])
    assert corrected(contrasts, primary=False) == pytest.approx([0.03, 0.04, 0.04])
    assert corrected([], primary=True) == []


def test_verdicts():
    bounds = [(0.1, 0.2), (-0.4, -0.1), (-0.2, 0.29), (-0.2, 0.31), (np.nan, np.nan)]
    words = [verdict(*pair) for pair in bounds]
    assert words == ["gains", "loses", "tie", "not distinguished", "no interval"]
    assert verdict(0.1, 0.5, 0.04) == "gains"
    assert verdict(0.1, 0.5, 0.06) == "not distinguished"
    assert verdict(0.1, 0.2, 0.06) == "tie"
    row = contrast_row("a against b", Contrast(0.2, 0.1, 0.5, 0.0002, (0.2, 0.2)), 0.0004)
    assert row == ["a against b", "+0.20", "+0.10", "+0.50", "+0.20", "<0.001", "gains"]


def test_the_comparisons_are_of_configurations_and_each_is_listed_once():
    pairs = [tuple(pair) for kind in ("primary", "others") for pair in COMPARISONS[kind]]
    assert len(pairs) == len({frozenset(pair) for pair in pairs})
    names = {name for pair in pairs for name in pair} - {"optimum"}
    assert [name for name in sorted(names) if not config_path(name).is_file()] == []


def run_of(name, crps):
    states = xr.Dataset(
        {"crps_sum": ("time", 3.0 * crps), "crps_weight": ("time", np.full(len(TIME), 3.0))},
        {"time": TIME},
    )
    return FinishedRun(name, "reference" if name == "raw" else "model", states, {})


@pytest.mark.parametrize("same_data", [False, True])
def test_a_table_has_the_gains_in_percent_of_the_worse(same_data):
    rng = np.random.default_rng(2)
    raw = rng.uniform(0.8, 1.2, size=len(TIME))
    factors = {"location_unet": (0.80, 0.82, 0.81), "unet": (0.90, 0.92, 0.88)}
    runs = {
        seed: [run_of("raw", raw), *(run_of(name, raw * f[seed]) for name, f in factors.items())]
        for seed in range(3)
    }
    families = {"raw": "", "location_unet": "A", "unet": "B"}
    text = contrasts_as_markdown(runs, families, same_data=same_data)
    (row,) = (line for line in text.splitlines() if line.startswith("| location_unet against unet"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    gains = 100 * (1 - np.array(factors["location_unet"]) / np.array(factors["unet"]))
    assert cells[1] == f"{gains.mean():+.2f}"
    assert cells[4] == " ".join(f"{gain:+.2f}" for gain in gains)
    assert cells[-1] == "primary"
    if same_data:
        dates = interval(gains.mean() * raw / raw.mean())
        training = sum(1e4 * np.var(f, ddof=1) / 3 / 0.9**2 for f in factors.values())
        half = np.sqrt(((dates.upper - dates.lower) / 2) ** 2 + 1.959964**2 * training)
    else:
        half = stats.t.ppf(0.975, 2) * np.std(gains, ddof=1) / np.sqrt(3)
        alone = contrasts_as_markdown({0: runs[0]}, families, same_data=False)
        assert "over the test dates (block bootstrap) of one world" in alone
        assert "over the test dates" not in text
    assert float(cells[3]) - float(cells[1]) == pytest.approx(half, abs=0.011)


def test_a_chain_of_small_differences_has_several_leaders():
    level, apart = Contrast(0.1, -0.4, 0.6, 0.7, (0.1,)), Contrast(2.0, 1.5, 2.5, 1e-9, (2.0,))
    near = {("a", "b"), ("b", "c"), ("c", "d")}  # a and c are apart, though b is between
    pairs = combinations("abcd", 2)
    contrasts = {pair: level if pair in near else apart for pair in pairs}
    assert leaders("abcd", contrasts) == {"b": "a", "d": "c"}
    # 0.03 is clear alone and not as one of six
    weak = Contrast(0.1, 0.01, 0.2, 0.03, (0.1,))
    assert leaders("ab", {("a", "b"): weak}) == {}
    others = {pair: Contrast(0.1, -0.4, 0.6, 0.9, (0.1,)) for pair in combinations("acde", 2)}
    assert leaders("ab", {("a", "b"): weak} | others)["b"] == "a"
    assert leaders([], {}) == {}


@pytest.mark.parametrize("same_data", [False, True])
def test_models_of_a_table_are_level_with_the_last_leader(same_data):
    rng = np.random.default_rng(3)
    raw = rng.uniform(0.8, 1.2, size=len(TIME))
    factors = {"best": (0.80, 0.81, 0.79), "level": (0.805, 0.795, 0.81), "worse": (0.9, 0.91, 0.9)}
    runs = {
        seed: [run_of("raw", raw), *(run_of(name, raw * f[seed]) for name, f in factors.items())]
        for seed in range(3)
    }
    families = {"best": "A", "level": "B", "worse": "C"}
    assert leaders_in(runs, families, same_data=same_data) == {"level": "best"}
