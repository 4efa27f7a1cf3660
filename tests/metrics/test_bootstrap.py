"""Block bootstraps and their block lengths: by simulation and in closed form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.uncertainty import (
    automatic_block_length,
    blocks_in_words,
    default_block_length,
    difference_of,
    interval,
    mean_of,
    resample_counts,
)

BLOCKS = ("bootstrap", "moving", "stationary")


def walk(rng, phi, n, trials=None):
    """AR(1) series of mean 0 and variance 1."""
    d = rng.normal(size=(n,) if trials is None else (n, trials))
    for t in range(1, n):
        d[t] = phi * d[t - 1] + np.sqrt(1 - phi**2) * d[t]
    return d


def even(values):
    return {"sum": values, "weight": np.ones(values.size)}


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(BLOCKS), st.integers(1, 40), st.integers(1, 12), st.integers(0, 99))
def test_every_drawn_set_has_as_many_dates(method, n, length, seed):
    length = min(length, n)
    rng = np.random.default_rng(seed)
    counts = resample_counts(n, 20, length, rng, method=method)
    assert counts.shape == (20, n)
    assert (counts.sum(axis=1) == n).all()
    assert (counts >= 0).all()


def test_circular_blocks_are_drawn_as_before():
    rng = np.random.default_rng(0)
    starts = np.random.default_rng(0).integers(7, size=(5, 3))
    wanted = np.zeros((5, 7))
    for row, begins in enumerate(starts):
        dates = [(b + i) % 7 for b in begins for i in range(3)][:7]
        np.add.at(wanted[row], dates, 1)
    np.testing.assert_array_equal(resample_counts(7, 5, 3, rng), wanted)


def test_moving_blocks_do_not_pass_the_ends():
    counts = resample_counts(12, 4000, 4, np.random.default_rng(1), method="moving")
    covers = np.minimum(np.minimum(np.arange(1, 13), np.arange(12, 0, -1)), 4)  # blocks of a date
    np.testing.assert_allclose(counts.mean(axis=0), 3 * covers / 9, atol=0.05)
    assert (resample_counts(6, 30, 6, np.random.default_rng(2), method="moving") == 1).all()


def test_stationary_blocks_have_geometric_lengths():
    n, replicates, length = 400, 300, 5.0
    # on n dates that are far apart, neighbours are drawn together with probability 1 - 1 / length
    rng = np.random.default_rng(3)
    counts = resample_counts(n, replicates, length, rng, method="stationary")
    assert stats.chisquare(counts.sum(axis=0)).pvalue > 1e-6
    noise = np.random.default_rng(4).normal(size=n)
    noise -= noise.mean()
    k = np.arange(n)
    circular = np.array([noise @ np.roll(noise, -s) for s in k]) / n
    # the exact variance of the mean: Politis and Romano (1994), lemma 1
    q = 1 - 1 / length
    b = (1 - k / n) * q**k + (k / n) * q ** (n - k)
    wanted = (circular[0] + (b[1:] * circular[1:]).sum()) / n
    many = resample_counts(n, 6000, length, rng, method="stationary")
    assert np.var(many @ noise / n) == pytest.approx(wanted, rel=0.06)
    single = resample_counts(50, 3000, 1.0, rng, method="stationary")
    assert single.var() == pytest.approx(1 - 1 / 50, rel=0.03)  # multinomial


@pytest.mark.parametrize("phi", [0.3, 0.6])
@pytest.mark.parametrize("method", BLOCKS)
def test_the_block_length_is_the_best_of_theory(method, phi):
    n, rng = 4000, np.random.default_rng(5)
    series = walk(rng, phi, n, 30)
    lengths = [automatic_block_length(series[:, i], method=method) for i in range(30)]
    # AR(1): sum |k| phi^|k| = 2 phi / (1 - phi)^2 and sum phi^|k| = (1 + phi) / (1 - phi)
    best = (2 * phi / (1 - phi**2)) ** (2 / 3) * n ** (1 / 3)
    best *= 1.0 if method == "stationary" else 1.5 ** (1 / 3)
    assert np.median(lengths) == pytest.approx(best, rel=0.2)
    if method != "stationary":
        assert all(length == int(length) for length in lengths)


def test_the_window_reaches_the_first_lag_without_correlation():
    """The rule of np::b.star and arch, step by step: M = 2 m, m the first of 5 quiet lags."""
    rng = np.random.default_rng(12)
    for phi in (0.0, 0.4, 0.7):
        x = walk(rng, phi, 150)
        n, centred = x.size, x - x.mean()
        R = np.array([(centred[: n - k] * centred[k:]).sum() / n for k in range(19)])
        quiet = [abs(r) < 2 * np.sqrt(np.log10(n) / n) for r in R[1:] / R[0]]
        m = next(lag for lag in range(1, 14) if all(quiet[lag - 1 : lag + 4]))
        k = np.arange(1, 2 * m + 1)
        window = np.where(k <= m, 1.0, 2 - k / m)
        G, g = 2 * (window * k * R[k]).sum(), R[0] + 2 * (window * R[k]).sum()
        wanted = min(max(1.0, (G**2 / g**2 * n) ** (1 / 3)), 37)
        assert automatic_block_length(x) == pytest.approx(wanted, rel=1e-10)


def test_block_lengths_of_independent_and_of_constant_dates():
    rng = np.random.default_rng(6)
    lengths = [automatic_block_length(rng.normal(size=400)) for _ in range(60)]
    assert np.median(lengths) < 4
    assert automatic_block_length(np.full(20, 0.1)) == 1.0
    trend = automatic_block_length(np.arange(100.0))
    assert 10 < trend <= 30
    for bad in (np.arange(7.0), np.array([*range(9), np.nan]), np.zeros((9, 9))):
        with pytest.raises(ArgumentError, match=r"series: expected 8 .* Pass block_length"):
            automatic_block_length(bad)
    with pytest.raises(UnknownNameError, match="'moving'"):
        automatic_block_length(np.arange(9.0), method="movin")


@pytest.mark.slow
@pytest.mark.parametrize("length", [None, "auto", 12])
@pytest.mark.parametrize("method", BLOCKS)
def test_intervals_cover_dependent_dates(method, length):
    rng = np.random.default_rng(7)
    phi, n, trials = 0.5, 250, 400
    hits = naive = 0
    for trial in range(trials):
        sums = even(walk(rng, phi, n))
        got = interval(sums, mean_of, method=method, confidence=0.9, seed=trial, replicates=300,
                       block_length=length)  # fmt: skip
        hits += got.lower <= 0 <= got.upper
        plain = interval(sums, mean_of, method="student", confidence=0.9)
        naive += plain.lower <= 0 <= plain.upper
    assert naive / trials < 0.75
    assert 0.79 < hits / trials < 0.94  # fixed blocks cut some of the dependence: below 0.9


@pytest.mark.parametrize("method", BLOCKS)
def test_intervals_are_those_of_the_means_variance(method):
    series = walk(np.random.default_rng(8), 0.4, 600) + 3.0
    got = interval(even(series), mean_of, method=method, block_length=12, replicates=3000)
    true = np.sqrt((1 + 0.4) / (1 - 0.4) / 600)
    assert got.value == pytest.approx(series.mean(), rel=1e-12)
    assert got.upper - got.lower == pytest.approx(2 * 1.96 * true, rel=0.2)
    same = interval(even(series), mean_of, method=method, block_length=12, replicates=3000)
    assert got == same


def test_the_length_is_that_of_the_series_whose_mean_is_taken():
    rng = np.random.default_rng(9)
    hard, own = 5 * rng.normal(size=300), walk(rng, 0.7, 300)
    mean, pair = even(hard + own), even(hard + own)
    pair |= {f"reference_{k}": v for k, v in even(hard).items()}
    for method in BLOCKS:
        lengths = {}
        for sums, statistic, series in ((mean, mean_of, hard + own), (pair, difference_of, own)):
            got = interval(sums, statistic, method=method)
            assert got == interval(sums, statistic, method=method, block_length="auto")
            wanted = default_block_length(series, method=method)
            assert got.block_length == pytest.approx(wanted, rel=1e-6)
            lengths[statistic] = wanted
            plain = interval(sums, statistic, method=method, block_length=got.block_length)
            assert plain.lower > got.lower
            assert plain.upper < got.upper
        assert lengths[difference_of] > 2 * lengths[mean_of]
    with pytest.raises(UnknownNameError, match="did you mean 'auto'"):
        interval(mean, mean_of, block_length="aut")


def test_short_and_constant_series_have_a_default_length():
    for n, wanted in ((2, 1), (3, 1), (5, 2), (7, 2)):
        assert default_block_length(np.arange(n)) == wanted
        got = interval(even(np.arange(n) + 0.5), mean_of)
        assert got.block_length == wanted
        assert got.lower < got.value < got.upper
    noise = np.random.default_rng(0).normal(size=40)
    assert default_block_length(7.0 + 1e-14 * noise) == 1.0
    assert interval(even(np.full(40, 0.1)), mean_of).block_length == 1.0
    assert interval(even(np.full(40, 0.1)), mean_of).upper == pytest.approx(0.1, rel=1e-12)
    assert default_block_length(np.r_[noise, np.nan]) == 3.0
    assert interval(even(noise), mean_of, method="student").block_length is None
    for method in BLOCKS:
        assert 10 < default_block_length(np.arange(100.0), method=method) <= 30


def test_the_default_is_as_long_as_theory_asks_for_tens_of_dates():
    rng = np.random.default_rng(11)
    series = [walk(rng, 0.55, 80) for _ in range(150)]
    best = (1.5 * (2 * 0.55 / (1 - 0.55**2)) ** 2 * 80) ** (1 / 3)  # 6.7
    lengths = [default_block_length(one) for one in series]
    assert np.median(lengths) == pytest.approx(best, abs=1)
    free = [default_block_length(rng.normal(size=80)) for _ in range(150)]
    assert np.median(free) <= 2


@pytest.mark.parametrize("seasons", [1, 4])
def test_default_intervals_cover_dependent_differences(seasons):
    """AR(1) differences of 80 dates in a row, or of 4 seasons of 20 dates with gaps between."""
    rng, phi, trials = np.random.default_rng(12), 0.55, 250
    hits = {"default": 0, "cube root": 0}
    for trial in range(trials):
        series = np.concatenate([walk(rng, phi, 80 // seasons) for _ in range(seasons)])
        hard = 3 * rng.normal(size=80)
        sums = even(hard + series) | {f"reference_{k}": v for k, v in even(hard).items()}
        for name, length in (("default", None), ("cube root", 4)):
            got = interval(sums, difference_of, seed=trial, replicates=200, block_length=length)
            hits[name] += got.lower <= 0 <= got.upper
    assert 0.90 <= hits["default"] / trials <= 0.98
    assert hits["default"] - hits["cube root"] > 0.04 * trials


def test_default_intervals_of_independent_dates_are_not_too_wide():
    rng, wide = np.random.default_rng(13), []
    for trial in range(100):
        series = rng.normal(size=80)
        got = interval(even(series), mean_of, seed=trial, replicates=300)
        exact = stats.t.ppf(0.975, 79) * series.std(ddof=1) / 80**0.5
        wide.append((got.upper - got.lower) / 2 / exact)
    assert np.mean(wide) == pytest.approx(1.0, abs=0.08)


def test_block_lengths_in_a_caption():
    series = walk(np.random.default_rng(9), 0.7, 300)
    one = interval(even(series), mean_of)
    assert blocks_in_words([one, None]).startswith(f"blocks of {one.block_length:.0f} dates")
    other = interval(even(series), mean_of, block_length=2)
    assert f"blocks of 2 to {one.block_length:.0f} dates" in blocks_in_words([one, other])
    assert blocks_in_words([interval(even(series), mean_of, method="student")]) == "no blocks"


def test_bad_input_is_refused():
    rng = np.random.default_rng(10)
    sums = even(np.arange(5.0))
    with pytest.raises(UnknownNameError, match="did you mean 'moving'"):
        resample_counts(5, 2, 2, rng, method="movin")
    for method, length in (("moving", 6), ("moving", 2.5), ("bootstrap", 1.5), ("stationary", 0.5),
                           ("stationary", np.nan)):  # fmt: skip
        with pytest.raises(ArgumentError, match="block_length"):
            interval(sums, mean_of, method=method, block_length=length)
    with pytest.raises(ArgumentError, match="replicates"):
        interval(sums, mean_of, replicates=0)
    for unequal in ({}, sums | {"weight": np.ones(4)}, {"sum": np.ones((2, 2))}):
        with pytest.raises(ArgumentError, match="sums: expected one entry a date"):
            interval(unequal, mean_of)


@pytest.mark.parametrize("method", [*BLOCKS, "student"])
def test_a_missing_date_leaves_no_bounds(method):
    sums = even(np.array([1.0, np.nan, 3.0])) | {
        "reference_sum": np.ones(3), "reference_weight": np.ones(3)
    }  # fmt: skip
    got = interval(sums, difference_of, method=method)
    assert np.isnan([got.value, got.lower, got.upper]).all()
