"""The EECRPS by name: against whole arrays, in blocks, and refused for the raw ensemble itself."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.grid import area_weights
from ens10.metrics import (
    crps_ensemble,
    crps_normal,
    efi,
    frozen_efi,
    merge_states,
    origin,
    score_states,
    summarise,
    verify,
)
from ens10.metrics.extremes import FrozenEFI
from ens10.metrics.verification import LeftOutWarning, block_scoring
from ens10.metrics.verification.efi_weights import EFIWeights

BOTH = ("crps", "eecrps")
K = 101


@pytest.fixture(scope="module")
def climate(world):
    """Quantiles of each date, wide enough that the index goes from -1 to 1."""
    ensemble = world[0]
    rng = np.random.default_rng(3)
    sizes = [ensemble.sizes[d] for d in ("time", "latitude", "longitude")]
    values = np.sort(280 + 6 * rng.normal(size=(sizes[0], K, *sizes[1:])), axis=1)
    coords = {k: ensemble[k] for k in ("time", "latitude", "longitude")}
    coords["quantile"] = np.linspace(0, 1, K)
    dims = ("time", "quantile", "latitude", "longitude")
    return xr.DataArray(values, coords, dims, attrs={"units": "K"})


def means_of(ensemble, scores, climate, method="exact"):
    """Both normalisations, from whole arrays."""
    x = ensemble["members"].values
    index = efi(
        x, climate.values, method=method, member_dim=1, quantile_dim=1,
        levels=climate["quantile"].values,
    )  # fmt: skip
    there = ~np.isnan(scores + index)
    w = np.broadcast_to(area_weights(ensemble["latitude"].values)[:, None], scores.shape)[there]
    index = np.abs(index[there])
    top = (w * index * scores[there]).sum()
    return top / w.sum(), top / (w * index).sum()


@pytest.mark.parametrize("method", ["exact", "ecmwf"])
def test_by_name_as_on_whole_arrays(method, world, climate):
    ensemble, normal, truth = world
    gap = ensemble.copy(deep=True)
    gap["members"][7, 2, 1, 3] = np.nan
    climate = climate.where((climate["latitude"] < 90) | (climate["longitude"] > 0))
    scores = crps_normal(normal["mu"].values, normal["sigma"].values, truth.values)
    wanted = means_of(gap, scores, climate, method)
    options = {"raw": gap, "climate": climate, "efi_method": method}
    got = verify(normal, truth, BOTH, **options)
    assert float(got["eecrps"]) == pytest.approx(wanted[0], rel=1e-12)
    assert float(got["eecrps_weighted"]) == pytest.approx(wanted[1], rel=1e-12)
    assert float(got["crps"]) == pytest.approx(float(verify(normal, truth)["crps"]), rel=1e-14)
    assert got["eecrps"].attrs["units"] == got["eecrps_weighted"].attrs["units"] == "K"
    assert (got.attrs["efi_source"], got.attrs["efi_method"]) == ("raw", method)
    states = score_states(normal, truth, ["eecrps_weighted"], **options)
    known = (~np.isnan(scores)).sum() - 1 - len(truth["time"])
    assert int(states["eecrps_count"].sum()) == int(states["abs_efi_count"].sum()) == known


def test_skill_against_the_raw_ensemble(world, climate):
    ensemble, normal, truth = world
    y, mu, sigma = truth.values, normal["mu"].values, normal["sigma"].values
    mine = means_of(ensemble, crps_normal(mu, sigma, y), climate)
    x = ensemble["members"].values
    its = means_of(ensemble, crps_ensemble(x, y, member_dim=1, estimator="plain"), climate)
    got = verify(normal, truth, BOTH, reference=ensemble, raw=ensemble, climate=climate)
    assert float(got["eecrpss"]) == pytest.approx(1 - mine[0] / its[0], rel=1e-11)
    assert 1 - mine[0] / its[0] == pytest.approx(1 - mine[1] / its[1], rel=1e-12)
    assert float(got["eecrpss_lower"]) < float(got["eecrpss"]) < float(got["eecrpss_upper"])
    assert float(got["eecrps_difference"]) == pytest.approx(mine[0] - its[0], rel=1e-10)


def test_in_groups_and_of_an_index_made_before(world, climate):
    ensemble, normal, truth = world
    held = frozen_efi(
        ensemble["members"], climate, source="raw", member_dim="number", quantile_dim="quantile"
    )
    by = ("latitude_band", "month")
    wanted = verify(normal, truth, BOTH, by=by, raw=ensemble, climate=climate)
    for raw in (held, held.to_dataarray()):
        xr.testing.assert_allclose(verify(normal, truth, BOTH, by=by, raw=raw), wanted, rtol=1e-13)
    north = normal["latitude"] > 30
    band = wanted["latitude_band"].values[-1]
    alone = verify(
        normal.isel(latitude=north), truth.isel(latitude=north), BOTH, by=by,
        raw=ensemble.isel(latitude=north), climate=climate.isel(latitude=north),
    )  # fmt: skip
    for name in ("eecrps", "eecrps_weighted"):
        np.testing.assert_allclose(
            alone[name].sel(latitude_band=band), wanted[name].sel(latitude_band=band), rtol=1e-12
        )


@pytest.mark.parametrize("values", [1, 7000, 10**7])
def test_blocks_and_merged_states_are_one_pass(values, world, climate, monkeypatch):
    ensemble, normal, truth = world
    wanted = score_states(normal, truth, BOTH, raw=ensemble, climate=climate)
    monkeypatch.setattr(block_scoring, "BLOCK_VALUES", values)
    for scheduler in (None, "threads"):
        got = score_states(
            normal, truth, BOTH, raw=ensemble.chunk(time=4), climate=climate.chunk(time=1),
            scheduler=scheduler,
        )  # fmt: skip
        xr.testing.assert_identical(got, wanted)
    order = climate.isel(time=slice(None, None, -1))
    parts = [
        score_states(normal.isel(time=s), truth, BOTH, raw=ensemble, climate=order)
        for s in (slice(0, 11), slice(11, None))
    ]
    merged = merge_states(parts)
    for name in ("eecrps", "abs_efi"):
        for part in ("sum", "weight", "count"):
            np.testing.assert_array_equal(merged[f"{name}_{part}"], wanted[f"{name}_{part}"])
    assert float(summarise(merged)["eecrps"]) == float(summarise(wanted)["eecrps"])


@pytest.mark.slow
def test_in_processes(world, climate):
    ensemble, normal, truth = world
    wanted = score_states(normal, truth, BOTH, raw=ensemble, climate=climate)
    options = {"raw": ensemble.chunk(time=3), "climate": climate.chunk(time=3)}
    got = score_states(normal.chunk(time=3), truth, BOTH, scheduler="processes", **options)
    xr.testing.assert_identical(got, wanted)


def test_steps(world, climate):
    ensemble, normal, truth = world

    def stepped(data, way):
        days = [data.assign_coords(step=np.timedelta64(h, "h")) for h in (24, 48)]
        bare = [d.drop_vars("valid_time", errors="ignore") for d in days]
        return xr.concat([d * way**n for n, d in enumerate(bare)], "step").assign_attrs(data.attrs)

    raw, q = stepped(ensemble, 1.01), stepped(climate, 1.0)
    forecast, y = stepped(normal, 1.0), truth.assign_coords(time=truth["time"] - 2 * 86400 * 10**9)
    y = stepped(y.assign_attrs({}), 1.0)
    got = score_states(forecast, y, BOTH, raw=raw.isel(step=[1, 0]), climate=q)
    for step in (0, 1):
        one = score_states(
            forecast.isel(step=step), y.isel(step=step), BOTH,
            raw=raw.isel(step=step), climate=q.isel(step=step),
        )  # fmt: skip
        np.testing.assert_array_equal(got["eecrps_sum"].isel(step=step), one["eecrps_sum"])
    assert (got["abs_efi_sum"].isel(step=0) != got["abs_efi_sum"].isel(step=1)).all()
    with pytest.raises(MissingDataError, match="step"):
        score_states(forecast, y, BOTH, raw=raw, climate=q.isel(step=[0]))


def test_the_raw_ensemble_itself_is_refused(world, climate):
    ensemble, _, truth = world
    disguised = ensemble.isel(number=slice(None, None, -1)).astype(np.float32)
    for forecast in (ensemble, ensemble.chunk(time=3), disguised):
        with pytest.raises(ArgumentError, match="improper"):
            score_states(forecast, truth, BOTH, raw=ensemble, climate=climate)
    held = frozen_efi(
        ensemble["members"], climate, source="raw", member_dim="number", quantile_dim="quantile"
    )
    with pytest.raises(ArgumentError, match="improper"):
        score_states(disguised, truth, BOTH, raw=held)
    lazy = ensemble.chunk(time=3)
    held = frozen_efi(
        lazy["members"], climate.chunk(time=3, quantile=-1), source="raw", member_dim="number",
        quantile_dim="quantile",
    )  # fmt: skip
    with pytest.raises(ArgumentError, match="improper"):
        score_states(lazy, truth, BOTH, raw=held)
    other = (ensemble + 0.5).assign_attrs(ensemble.attrs)
    score_states(other, truth, BOTH, raw=ensemble, climate=climate)
    named = other.assign_attrs(forecast_name="raw")
    with pytest.raises(ArgumentError, match="'raw', the ensemble of the EFI"):
        score_states(named, truth, BOTH, raw=ensemble, climate=climate)
    same = [d.assign_attrs(forecast_name="both") for d in (other, ensemble)]
    with pytest.raises(ArgumentError, match="'both', the ensemble of the EFI"):
        score_states(same[0], truth, BOTH, raw=same[1], climate=climate)


def test_the_raw_ensemble_itself_by_name(world, climate):
    ensemble, normal, truth = world
    options = {"raw": ensemble, "climate": climate, "scores_raw": True}
    x, y = ensemble["members"].values, truth.values
    wanted = means_of(ensemble, crps_ensemble(x, y, member_dim=1, estimator="plain"), climate)
    for forecast in (ensemble, ensemble.assign_attrs(forecast_name="raw")):
        got = verify(forecast, truth, BOTH, **options)
        assert float(got["eecrps_weighted"]) == pytest.approx(wanted[1], rel=1e-12)
    packed = (ensemble * 1.0001).assign_attrs(ensemble.attrs, forecast_name="raw")
    got = verify(packed, truth, BOTH, **options)  # the name is enough
    assert float(got["eecrps_weighted"]) == pytest.approx(wanted[1], rel=0.05)
    for other in ((ensemble + 0.5).assign_attrs(ensemble.attrs), normal):
        with pytest.raises(ArgumentError, match="scores_raw: the EFI is of 'raw'"):
            score_states(other, truth, BOTH, **options)


def test_dates_without_contrast_are_not_taken_for_the_raw_ensemble(world, climate):
    ensemble, _, truth = world
    raw = ensemble.copy(deep=True)
    raw["members"][3], raw["members"][5] = 280.0, np.nan
    other = (ensemble + 0.5).assign_attrs(ensemble.attrs)
    other["members"][3], other["members"][5] = 280.0, np.nan
    with pytest.warns(LeftOutWarning):
        states = score_states(other, truth, BOTH, raw=raw, climate=climate, join="inner")
    assert states.sizes["time"] == ensemble.sizes["time"] - 1


def test_what_does_not_fit(world, climate):
    ensemble, normal, truth = world
    fine = {"raw": ensemble, "climate": climate}
    held = FrozenEFI(climate[:, 50] * 0, origin("raw"), "exact")
    later = ensemble.assign_coords(valid_time=ensemble["time"] + np.timedelta64(24, "h"))
    for changed, error, told in (
        ({"raw": None}, ArgumentError, "Pass raw and climate"),
        ({"climate": None}, ArgumentError, "climate: the EFI needs its quantiles"),
        ({"raw": normal}, ArgumentError, "raw: a forecast of kind normal"),
        ({"raw": climate}, ArgumentError, "no attribute source"),
        ({"raw": 3}, ArgumentError, "int is neither an ensemble forecast"),
        ({"raw": held}, ArgumentError, "climate: raw is an EFI already"),
        ({"raw": held, "climate": None, "efi_method": "ecmwf"}, ArgumentError, "made by exact"),
        ({"efi_method": "exakt"}, UnknownNameError, "did you mean 'exact'"),
        ({"raw": ensemble.isel(time=slice(2, None))}, MissingDataError, "2001-11-01"),
        ({"climate": climate.isel(time=slice(2, None))}, MissingDataError, "2001-11-01"),
        ({"climate": climate[[0, *range(30)]]}, ArgumentError, "a date occurs twice"),
        ({"climate": climate[0]}, ArgumentError, "without dates"),
        ({"climate": climate[:, 0]}, ArgumentError, "instead of"),
        ({"climate": climate.drop_vars("quantile")}, ArgumentError, "quantile is missing"),
        ({"climate": climate.assign_attrs(units="degC")}, ArgumentError, "in degC, the truth in K"),
        ({"raw": ensemble.isel(latitude=slice(3))}, MissingDataError, "one grid"),
        ({"climate": climate.isel(longitude=slice(3))}, MissingDataError, "one grid"),
        ({"climate": climate[:, ::-1]}, ArgumentError, "do not ascend"),
        ({"raw": later}, ArgumentError, "valid at other times"),
    ):
        with pytest.raises(error, match=told):
            score_states(normal, truth, BOTH, **fine | changed)
    with pytest.raises(ArgumentError, match="raw: no score that is asked for needs it"):
        score_states(normal, truth, ["crps"], **fine)
    with pytest.raises(ArgumentError, match="climate: no score"):
        score_states(normal, truth, climate=climate)


def test_inner_leaves_out_dates_that_the_raw_ensemble_lacks(world, climate):
    ensemble, normal, truth = world
    few = ensemble.isel(time=slice(2, None))
    with pytest.warns(LeftOutWarning, match=r"2 of 30 dates left out \(not in the raw"):
        got = score_states(normal, truth, BOTH, raw=few, climate=climate, join="inner")
    wanted = score_states(
        normal.isel(time=slice(2, None)), truth, BOTH, raw=ensemble, climate=climate
    )
    xr.testing.assert_identical(got["eecrps_sum"], wanted["eecrps_sum"])
    none = ensemble.assign_coords(time=ensemble["time"] + np.timedelta64(1, "D"))
    with pytest.raises(ArgumentError, match="no date of the forecast"):
        score_states(normal, truth, BOTH, raw=none, climate=climate, join="inner")


def test_few_dates_are_in_memory_at_once(world, climate, monkeypatch):
    ensemble, normal, truth = world
    most = []

    def read(block):
        most.append(len(block))
        return block

    own, load, together = sum(v.size for v in normal.values()), EFIWeights.load, []
    monkeypatch.setattr(block_scoring, "BLOCK_VALUES", own)  # the normals alone would be one block
    monkeypatch.setattr(
        EFIWeights,
        "load",
        lambda part: (together.append(part.fields["climate"].sizes["time"]), load(part))[1],
    )
    lazy = da.from_array(climate.values, chunks=(1, -1, -1, -1)).map_blocks(read, dtype=float)
    del most[:]
    score_states(normal, truth, BOTH, raw=ensemble, climate=climate.copy(data=lazy))
    assert set(most) == set(together) == {1}
    assert len(most) == normal.sizes["time"]  # each date once
