"""A value under a numpy mask is a missing value: every score gives what it gives for NaN."""

import inspect
from importlib import import_module
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import ens10.metrics as metrics
from ens10.errors import Ens10Error
from ens10.metrics import families
from ens10.metrics.distributions import Ensemble, Normal, NormalMixture
from ens10.metrics.verification.alignment import match_truth

RNG = np.random.default_rng(5)
N, M, K = 12, 4, 3
X, Y = RNG.normal(size=(N, M)), RNG.normal(size=N)
Q, LEVELS = np.sort(RNG.normal(size=(N, K)), axis=1), [0.25, 0.5, 0.75]
MU, SIGMA = RNG.normal(size=N), RNG.uniform(0.5, 2, size=N)
P, EVENT = RNG.integers(0, 5, size=N) / 4, RNG.integers(0, 2, size=N)
WEIGHTS = RNG.uniform(1, 2, size=N)
MEMBERS = {"estimator": "plain", "member_dim": 1}
QUANTILES = {"levels": LEVELS, "quantile_dim": 1}
NORMAL = {"mu": MU, "sigma": SIGMA, "y": Y}
FIELDS = RNG.normal(size=(M, 6, 6))
VECTORS = RNG.normal(size=(N, M, K))
CLIMATE = np.sort(RNG.normal(size=(N, 101)), axis=1)
PERCENT = {"member_dim": 1, "quantile_dim": 1, "levels": np.linspace(0, 1, 101)}
SHARES = RNG.dirichlet(np.ones(K), size=N)


def family_case(cls):
    """Parameters inside their domains and observations inside the support."""
    arrays = {
        key: MU if p.domain == "real" else SIGMA
        for key, p in cls.parameters.items()
        if key not in cls.bounds
    }
    bounds = {key: {"lower": -1.0, "upper": 2.0}[key] for key in cls.bounds}
    return arrays | {"y": abs(Y) if cls.support[0] == 0 else Y}, bounds


# the arrays of each score, and its other arguments
CASES = {
    **{
        f"crps_{kind}": family_case(cls)
        for kind, cls in metrics.FAMILIES.items()
        if hasattr(metrics, f"crps_{kind}")
    },
    "anomaly_correlation": ({"forecast": MU, "y": Y, "climatology": 0 * Y}, {}),
    "benjamini_hochberg": ({"p": RNG.uniform(size=N)}, {}),
    "holm": ({"p": RNG.uniform(size=N)}, {}),
    "bias": ({"forecast": MU, "y": Y}, {}),
    "censored_log_score": (NORMAL, {"lower": 0.0}),
    "conditional_log_score": (NORMAL, {"lower": 0.0}),
    "twcrps": (NORMAL, {"lower": 0.0}),
    "brier_ensemble": ({"members": X, "y": Y, "threshold": 0 * Y}, MEMBERS),
    "brier_score": ({"probability": P, "event": EVENT}, {}),
    "cpf": ({"members": X, "climate": CLIMATE}, PERCENT),
    "crps_bernstein": ({"coefficients": Q, "y": Y}, {"coefficient_dim": 1}),
    "crps_ensemble": ({"members": X, "y": Y, "member_weights": abs(X)}, MEMBERS),
    "crps_normal_mixture": (
        {"mu": X, "sigma": 1 + abs(X), "component_weights": np.full((N, M), 0.25), "y": Y},
        {"component_dim": 1},
    ),
    **{
        f"{name}_normal_mixture": (
            {"mu": X, "sigma": 1 + abs(X), "component_weights": np.full((N, M), 0.25), last: P},
            {"component_dim": 1},
        )
        for name, last in (("log_score", "y"), ("pit", "y"), ("quantile", "level"))
    },
    "crps_quantiles": ({"values": Q, "y": Y}, {**QUANTILES, "rule": "linear"}),
    "diebold_mariano": ({"difference": MU - Y}, {}),
    "efi": ({"members": X, "climate": CLIMATE}, PERCENT),
    "energy_score": ({"members": VECTORS, "y": Q}, {**MEMBERS, "variable_dim": 2}),
    "ensemble_error": ({"members": X, "y": Y}, {"member_dim": 1}),
    "ensemble_variance": ({"members": X}, {"member_dim": 1}),
    "event_sums": ({"probability": P, "event": EVENT}, {"dim": "all", "members": 4}),
    "exceedance_event": ({"y": Y, "threshold": 0 * Y}, {}),
    "exceedance_probability": (
        {"members": X, "threshold": 0 * Y}, {"member_dim": 1},
    ),
    "exceedance_probability_normal": ({"mu": MU, "sigma": SIGMA, "threshold": 0 * Y}, {}),
    "fractions_sums": (
        {"forecast": FIELDS[0], "observed": FIELDS[1]},
        {"threshold": 0.0, "window": 3, "latitude_dim": 0, "longitude_dim": 1},
    ),
    "frozen_efi": (
        {"raw_members": X, "climate": CLIMATE}, {**PERCENT, "source": "raw"},
    ),
    "hersbach_sums": ({"members": X, "y": Y}, {"member_dim": 1}),
    "interval_coverage": ({"lower": MU - 3, "upper": MU + 3, "y": Y}, {}),
    "interval_ensemble": ({"members": X}, {"member_dim": 1}),
    "interval_normal": ({"mu": MU, "sigma": SIGMA}, {"level": 0.5}),
    "interval_quantiles": ({"values": Q}, {**QUANTILES, "level": 0.5}),
    "interval_score": ({"lower": MU - 3, "upper": MU + 3, "y": Y}, {"level": 0.5}),
    "interval_width": ({"lower": MU - 3, "upper": MU + 3}, {}),
    "log_score": (NORMAL, {}),
    "logarithmic_score": ({"probability": P, "event": EVENT}, {}),
    "mae": ({"forecast": MU, "y": Y}, {}),
    "mae_median": ({"members": X, "y": Y}, {"member_dim": 1}),
    "owcrps_ensemble": ({"members": X, "y": Y, "lower": Y * 0 - 9}, MEMBERS),
    "pit": (NORMAL, {}),
    "pit_counts": ({"values": P}, {}),
    "pit_ensemble": ({"members": X, "y": Y}, {"member_dim": 1, "seed": 0}),
    "pit_histogram": ({"values": P}, {"dim": "all"}),
    "pit_interval": (NORMAL, {}),
    "pit_normal": (NORMAL, {}),
    "pit_quantiles": ({"values": Q, "y": Y}, {**QUANTILES, "seed": 0}),
    "pit_values": ({"cdf": P, "y": Y}, {}),
    "quantile_score": ({"values": Q, "y": Y}, QUANTILES),
    "quantile_score_sums": ({"values": Q, "y": Y}, {**QUANTILES, "edges": [-1.0, 0, 1]}),
    "qwcrps_ensemble": ({"members": X, "y": Y}, {"member_dim": 1, "emphasis": "tails"}),
    "rank_histogram": ({"members": X, "y": Y}, {"member_dim": 1, "seed": 0, "dim": "all"}),
    "rmse": ({"mean": MU, "y": Y}, {}),
    "rps": ({"probabilities": SHARES, "category": EVENT}, {"category_dim": 1}),
    "rps_ensemble": ({"members": X, "y": Y}, {**MEMBERS, "thresholds": [-1.0, 0.5]}),
    "sot": ({"members": X}, {**PERCENT, "climate": CLIMATE, "level": 90}),
    "spectral_crps": ({"members": VECTORS, "y": Q}, {**MEMBERS, "longitude_dim": 2}),
    "spread_bin_sums": (
        {"mean": MU, "variance": SIGMA, "y": Y}, {"edges": [0.8, 1.5]},
    ),
    "spread_error_ensemble": ({"members": X, "y": Y}, {"member_dim": 1}),
    "spread_error_ratio": ({"mean": MU, "variance": SIGMA, "y": Y}, {}),
    "twcrps_ensemble": ({"members": X, "y": Y, "lower": Y * 0 - 9}, MEMBERS),
    "twcrps_normal": ({**NORMAL, "lower": Y * 0 - 9}, {}),
    "variogram_score": ({"members": VECTORS, "y": Q}, {**MEMBERS, "variable_dim": 2}),
}  # fmt: skip
# those that the tests of a score declare as `EXAMPLES`, in the same form
for path in sorted(Path(__file__).parent.glob("test_*.py")):
    if "\nEXAMPLES = " in path.read_text():
        CASES |= import_module(path.stem).EXAMPLES
# functions of Datasets of sums, of names, of DataArrays alone (which xarray fills), or of settings
WITHOUT_ARRAYS = {
    "area_weights", "automatic_block_length", "available_scores", "brier_decomposition",
    "contingency_scores", "contingency_tables", "corp_decomposition", "corp_diagram",
    "daily_differences", "date_groups",
    "eecrps", "eecrps_state", "finish_eecrps", "finish_mean", "fractions_skill_score",
    "group_masks", "group_state", "hersbach_decomposition", "histogram_flatness", "interval",
    "land_sea", "latitude_bands", "mean_state", "merge_states", "monthly_climatology",
    "monthly_quantiles",
    "nominal_coverage", "origin", "paired_differences", "quantile_score_decomposition",
    "region_boxes", "register_score", "relative_economic_value", "reliability_diagram",
    "roc_curve", "score_states", "skill_score", "spread_edges", "spread_error_by_bins",
    "summarise", "total_over", "verify",
}  # fmt: skip


def call(name, arrays, options):
    function = getattr(metrics, name)
    if name in families.__all__:
        y = arrays["y"]
        return function("normal", {k: v for k, v in arrays.items() if k != "y"}, y, **options)
    return function(**arrays, **options)


def outcome(name, arrays, options):
    """The result, or the message of the error."""
    try:
        return call(name, arrays, options)
    except Ens10Error as error:
        return str(error)


def assert_same(masked, missing):
    assert type(masked) is type(missing)
    if isinstance(masked, tuple):
        for one, other in zip(masked, missing, strict=True):
            assert_same(one, other)
    elif isinstance(masked, xr.Dataset | xr.DataArray):
        xr.testing.assert_identical(masked, missing)
    elif isinstance(masked, str):
        assert masked == missing
    else:
        values = [getattr(one, "values", one) for one in (masked, missing)]
        assert not isinstance(values[0], np.ma.MaskedArray)
        np.testing.assert_array_equal(*values)


def test_every_public_function_is_here():
    functions = {n for n in metrics.__all__ if inspect.isfunction(getattr(metrics, n))}
    assert functions == CASES.keys() | WITHOUT_ARRAYS


@pytest.mark.parametrize("name", CASES)
def test_a_mask_is_a_missing_value_in_every_score(name):
    arrays, options = CASES[name]
    for argument in [k for k, v in arrays.items() if np.ndim(v)]:
        values = np.array(arrays[argument])
        place = (3, *(0,) * (values.ndim - 1))
        hidden = values.astype(float)
        hidden[place] = np.nan
        mask = np.isnan(hidden)
        values[place] = 1  # a plausible value, which a score without the mask would use
        masked = outcome(name, arrays | {argument: np.ma.array(values, mask=mask)}, options)
        assert_same(masked, outcome(name, arrays | {argument: hidden}, options))
        lost = outcome(name, arrays | {argument: values}, options)
        with pytest.raises(AssertionError):  # the mask matters
            assert_same(masked, lost)


def test_masked_members_are_skipped_and_masked_truth_is_omitted():
    members = np.ma.masked_equal([1.0, 3.0, 9999.0], 9999.0)
    options = {"estimator": "plain", "member_dim": 0}
    assert float(metrics.crps_ensemble(members, 2.0, **options, nan="skip-members")) == 0.5
    truth = np.ma.masked_equal([1.0, 9999.0], 9999.0)
    pair = np.array([[1.0, 1.0], [2.0, 2.0]])
    assert float(metrics.crps_ensemble(pair, truth, **options, dim="all", nan="omit")) == 0.25
    weights = np.ma.array([1.0, 5.0], mask=[False, True])
    found = metrics.mae(np.array([1.0, 2.0]), np.zeros(2), dim="all", weights=weights, nan="omit")
    assert float(found) == 1.0


def test_masked_integers_and_float32():
    event = np.ma.array([1, 0, 1], mask=[False, False, True])
    score = metrics.brier_score(np.array([0.5, 0.5, 0.5]), event)
    np.testing.assert_array_equal(score, [0.25, 0.25, np.nan])
    low = np.ma.array(np.float32([1, 2]), mask=[False, True])
    score = metrics.bias(low, np.zeros(2, np.float32))
    assert score.dtype == np.float32
    np.testing.assert_array_equal(score, np.float32([1, np.nan]))


@pytest.mark.parametrize("labelled", [False, True])
def test_lazy_arrays_of_masked_blocks(labelled):
    lazy = da.ma.masked_equal(da.from_array(np.array([[1.0, 3.0], [2.0, 9999.0]]), chunks=1), 9999)
    y, dim = da.from_array(np.array([2.0, 4.0]), chunks=1), 1
    if labelled:
        lazy, y, dim = xr.DataArray(lazy, dims=("n", "m")), xr.DataArray(y, dims="n"), "m"
    options = {"estimator": "plain", "member_dim": dim, "nan": "skip-members"}
    with pytest.warns(metrics._call.RechunkWarning):
        score = metrics.crps_ensemble(lazy, y, **options)
    np.testing.assert_array_equal(np.asarray(score), [0.5, 2.0])


def test_verify_reads_lazy_masks(world):
    ensemble, _, truth = world
    spoilt = truth.fillna(-999.0)
    lazy = spoilt.copy(data=da.ma.masked_equal(da.from_array(spoilt.to_numpy()), -999.0))
    expected, found = (metrics.verify(ensemble, y, ["crps"]) for y in (truth, lazy))
    assert float(found["crps"]) == float(expected["crps"])
    holes = ensemble["members"].where(ensemble["members"] < 290, -999.0)
    masked = da.ma.masked_equal(da.from_array(holes.to_numpy()), -999.0)
    forecast = ensemble.assign(members=holes.copy(data=masked))
    read = match_truth(forecast, truth).forecast["members"]
    np.testing.assert_array_equal(read.isnull(), ensemble["members"] >= 290)


def test_distributions_of_masked_parameters():
    y = np.ma.array(np.zeros((1, 3)), mask=[[False, False, True]])
    mu = np.ma.array(np.zeros((1, 3)), mask=[[False, True, False]])
    normal = Normal(mu, np.ones((1, 3)))
    np.testing.assert_array_equal(np.isnan(normal.crps(y)), [[False, True, True]])
    np.testing.assert_array_equal(np.isnan(normal.cdf(y)), [[False, True, True]])
    ensemble = Ensemble(np.ma.array(np.ones((2, 1, 3)), mask=[[[0, 1, 0]], [[0, 0, 0]]]))
    for value in (ensemble.crps(y), ensemble.cdf(y), ensemble.above(0.5)[..., :2]):
        assert not isinstance(value, np.ma.MaskedArray)
        assert np.isnan(value[0, 1])
    mixture = NormalMixture(np.zeros((2, 1, 3)), np.ones((2, 1, 3)), np.full((2, 1, 3), 0.5))
    np.testing.assert_array_equal(np.isnan(mixture.log_score(y)), [[False, False, True]])


def test_series_and_families_with_masks():
    series = np.ma.array(np.arange(20.0), mask=np.arange(20) == 4)
    with pytest.raises(Ens10Error, match="none missing"):
        metrics.automatic_block_length(series)
    masked_sums = {"sum": np.ma.array([1.0, 2.0, 3.0], mask=[0, 0, 1]), "weight": np.ones(3)}
    assert np.isnan(metrics.interval(masked_sums, lambda s: s["sum"] / s["weight"]).value)
    mean = families.mean("normal", {"mu": np.ma.array([1.0, 2.0], mask=[0, 1]), "sigma": 1.0})
    np.testing.assert_array_equal(mean, [1.0, np.nan])
