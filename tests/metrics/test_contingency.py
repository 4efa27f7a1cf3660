"""Scores of contingency tables: the published Finley table, the library scores, float64 numpy."""

import numpy as np
import pytest
import xarray as xr
from scores.categorical import BasicContingencyManager

from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import area_weights
from ens10.metrics import (
    contingency_scores,
    contingency_tables,
    event_sums,
    merge_states,
    score_states,
    summarise,
    verify,
)

IN_SCORES = {
    "pod": "probability_of_detection",
    "far": "false_alarm_ratio",
    "frequency_bias": "frequency_bias",
    "csi": "critical_success_index",
    "ets": "equitable_threat_score",
    "hss": "heidke_skill_score",
    "sedi": "symmetric_extremal_dependence_index",
    "accuracy": "accuracy",
    "peirce": "peirce_skill_score",
    "f1": "f1_score",
}


def dataset(a, b, c, d):
    names = ("hits", "false_alarms", "misses", "correct_negatives")
    return xr.Dataset({k: xr.DataArray(v) for k, v in zip(names, (a, b, c, d), strict=True)})


def oracle(a, b, c, d):
    """All scores by the library."""
    names = ("tp_count", "fp_count", "fn_count", "tn_count", "total_count")
    counts = [xr.DataArray(float(v)) for v in (a, b, c, d, a + b + c + d)]
    manager = BasicContingencyManager(dict(zip(names, counts, strict=True)))
    return {ours: float(getattr(manager, theirs)()) for ours, theirs in IN_SCORES.items()}


def test_finleys_tornadoes():
    """Murphy 1996, doi:10.1175/1520-0434(1996)011<0003:TFAASE>2.0.CO;2; Wilks 2011, table 8.1."""
    scores = contingency_scores(dataset(28.0, 72.0, 23.0, 2680.0))
    published = {"pod": 0.549, "far": 0.720, "frequency_bias": 1.96, "csi": 0.228, "hss": 0.355}
    published |= {"accuracy": 0.966, "peirce": 0.523}
    for name, value in {**published, "ets": 0.216}.items():
        assert float(scores[name]) == pytest.approx(value, abs=6e-4 if value < 1 else 6e-3), name


def test_any_table_is_scored_as_by_the_library():
    rng = np.random.default_rng(1)
    tables = rng.integers(1, 400, size=(4, 50)).astype(float)
    scores = contingency_scores(dataset(*(xr.DataArray(row, dims="n") for row in tables)))
    for n in range(tables.shape[1]):
        for name, value in oracle(*tables[:, n]).items():
            assert float(scores[name][n]) == pytest.approx(value, rel=1e-12, abs=1e-14), name


def test_matthews_correlation_is_that_of_forecast_and_event():
    rng = np.random.default_rng(3)
    event = rng.random(2000) < 0.2
    warned = np.where(rng.random(2000) < 0.7, event, rng.random(2000) < 0.3)
    counts = [(warned == f) & (event == o) for f, o in ((1, 1), (1, 0), (0, 1), (0, 0))]
    scores = contingency_scores(dataset(*(float(part.sum()) for part in counts)))
    assert float(scores["mcc"]) == pytest.approx(np.corrcoef(warned, event)[0, 1], rel=1e-12)
    harmonic = 2 / (1 / scores["pod"] + 1 / (1 - scores["far"]))
    assert float(scores["f1"]) == pytest.approx(float(harmonic), rel=1e-12)
    many = contingency_scores(dataset(*(1e90 * float(part.sum()) for part in counts)))
    assert float(many["mcc"]) == pytest.approx(float(scores["mcc"]), rel=1e-12)


def test_a_perfect_forecast_and_one_that_never_warns():
    perfect = contingency_scores(dataset(5.0, 0.0, 0.0, 95.0))
    for name in ("pod", "csi", "ets", "hss", "frequency_bias"):
        assert float(perfect[name]) == 1.0
    assert float(perfect["far"]) == 0.0
    assert np.isnan(perfect["sedi"])  # the logarithm of no misses
    never = contingency_scores(dataset(0.0, 0.0, 5.0, 95.0))
    assert float(never["csi"]) == 0.0
    assert np.isnan(never["far"])
    no_events = contingency_scores(dataset(0.0, 0.0, 0.0, 9.0))
    assert float(no_events["accuracy"]) == 1.0
    assert no_events.drop_vars("accuracy").to_dataarray().isnull().all()


def test_tables_of_probabilities_are_scored_at_each_threshold():
    rng = np.random.default_rng(2)
    p = np.round(rng.random(500), 1)
    event = (rng.random(500) < p).astype(float)
    tables = contingency_tables(event_sums(p, event, dim="all", digits=1))
    at = tables.sel(threshold=0.5)
    warned = p >= 0.5
    expected = oracle(
        *(((warned == f) & (event == o)).sum() for f, o in ((1, 1), (1, 0), (0, 1), (0, 0)))
    )
    for name, value in expected.items():
        assert float(contingency_scores(at)[name]) == pytest.approx(value, rel=1e-12)
    with pytest.raises(ArgumentError, match="missing: misses"):
        contingency_scores(tables.drop_vars("misses"))


def table_of(warned, observed, y, latitude):
    """Area-weighted frequencies of points with truth."""
    rows = np.broadcast_to(area_weights(latitude.to_numpy())[:, None], y.shape)
    rows = np.where(np.isnan(y), 0, rows)
    pairs = ((1, 1), (1, 0), (0, 1), (0, 0))
    return [rows[(warned == f) & (observed == o)].sum() for f, o in pairs]


@pytest.mark.parametrize("kind", ["ensemble", "normal"])
def test_verify_scores_them_by_name(kind, world):
    ensemble, normal, truth = world
    y = truth.to_numpy()
    if kind == "ensemble":
        forecast, warned = ensemble, (ensemble["members"].to_numpy() > 280).mean(axis=1) >= 0.5
    else:
        forecast, warned = normal, normal["mu"].to_numpy() > 280
    scores = verify(forecast, truth, [f"{name}_280" for name in IN_SCORES])
    expected = oracle(*table_of(warned, y > 280, y, truth["latitude"]))
    for name, value in expected.items():
        got = scores[f"{name}_280"]
        assert float(got) == pytest.approx(value, rel=1e-10), name
        assert float(scores[f"{name}_280_lower"]) < value < float(scores[f"{name}_280_upper"])
        assert got.attrs["units"] == "1"
    assert "values above 280" in scores["csi_280"].attrs["long_name"]


def test_sums_of_parts_and_groups_give_the_scores_of_all(world):
    ensemble, _, truth = world
    names = ["csi_281.5", "hss_281.5"]
    whole = score_states(ensemble, truth, names, by=["latitude_band"])
    parts = [
        score_states(ensemble.isel(time=part), truth, names, by=["latitude_band"])
        for part in (slice(None, 9), slice(9, None))
    ]
    xr.testing.assert_identical(merge_states(parts), whole)
    by = summarise(whole, by=["latitude_band"])
    band = by["csi_281.5"].sel(latitude_band="tropics")
    south_to_north = (truth["latitude"] >= -20) & (truth["latitude"] < 20)
    y = truth.to_numpy()[:, south_to_north]
    warned = ((ensemble["members"] > 281.5).mean("number") >= 0.5).to_numpy()[:, south_to_north]
    table = table_of(warned, y > 281.5, y, truth["latitude"][south_to_north])
    assert not np.allclose(south_to_north.sum(), 0)
    if table[0] + table[1] + table[2] > 0:
        assert float(band) == pytest.approx(oracle(*table)["csi"], rel=1e-10)


def test_a_probability_of_one_half_is_a_warning(world):
    ensemble, _, truth = world
    two = ensemble.isel(number=slice(2))
    y = truth.to_numpy()
    above = (two["members"].to_numpy() > 280).sum(axis=1)
    assert (above == 1).any()
    table = table_of(above >= 1, y > 280, y, truth["latitude"])
    assert float(verify(two, truth, ["csi_280"])["csi_280"]) == pytest.approx(oracle(*table)["csi"])


def test_names_need_a_threshold(world):
    ensemble, _, truth = world
    with pytest.raises(ArgumentError, match="csi needs a threshold"):
        verify(ensemble, truth, ["csi"])
    with pytest.raises(UnknownNameError, match="csx_280"):
        verify(ensemble, truth, ["csx_280"])
