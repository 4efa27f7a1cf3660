"""Truth on another grid is interpolated on request, and the store says so."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from storetools import contents

from ens10 import open_store, prepare
from ens10.cli import main
from ens10.convert import verify
from ens10.convert.work_units import ForecastUnit, PlainUnit
from ens10.errors import ArgumentError, FileError
from ens10.grid import area_weights
from ens10.source import open_source
from ens10.source.pairing import pair_truth
from ens10.source.regridding import Weights, regrid_truth

GLOBAL = [(90, -90, 7, 12, 0.0), (80, -80, 9, 16, 7.5), (87.5, -87.5, 36, 24, -180.0)]


def axes(first, last, rows, columns, origin):
    return np.linspace(first, last, rows), origin + 360 / columns * np.arange(columns)


def field_on(lat, lon, values):
    return xr.Dataset(
        {"t2m": (("latitude", "longitude"), values)}, {"latitude": lat, "longitude": lon}
    )


def interpolated(source, target, method, values):
    lat, lon = target
    grid = xr.Dataset(coords={"latitude": lat, "longitude": lon})
    return regrid_truth(field_on(*source, values), grid, method).t2m.to_numpy()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(GLOBAL), st.sampled_from(GLOBAL), st.booleans(), st.integers(0, 99))
def test_the_area_integral_is_conserved(source, target, flipped, seed):
    one, other = axes(*source), axes(*target)
    if flipped:
        one = (one[0][::-1], one[1])
    values = np.random.default_rng(seed).normal(size=(one[0].size, one[1].size))
    weights = Weights(*one, *other, "conservative")
    got = weights._regrid_field(values)
    sums = [
        (area_weights(lat)[:, None] * x).mean() for lat, x in ((one[0], values), (other[0], got))
    ]
    assert sums[1] == pytest.approx(sums[0], abs=1e-12)
    same = interpolated(one, other, "conservative", np.full(values.shape, 281.3))
    np.testing.assert_allclose(same, 281.3, rtol=1e-6)


def test_conservative_means_by_hand():
    """Four cells of 1 degree into one of 2 degrees, weighted by their areas on the sphere."""
    lat, lon = np.array([61.5, 60.5, 59.5, 58.5]), np.array([10.5, 11.5, 12.5, 13.5])
    values = np.arange(16.0).reshape(4, 4)
    got = interpolated(
        (lat, lon), (np.array([61.0, 59.0]), np.array([11.0, 13.0])), "conservative", values
    )
    north, south = (np.sin(np.deg2rad(a)) - np.sin(np.deg2rad(a - 1)) for a in (62, 61))
    assert got[0, 0] == pytest.approx((north * 0.5 + south * 4.5) / (north + south), rel=1e-6)
    values[0, 0] = np.nan  # less than half of the cell
    got = interpolated(
        (lat, lon), (np.array([61.0, 59.0]), np.array([11.0, 13.0])), "conservative", values
    )
    assert got[0, 0] == pytest.approx((north * 1 + south * 9) / (north + 2 * south), rel=1e-6)
    values[:2, :2] = np.nan
    values[0, 1] = 1.0  # more than half is missing
    got = interpolated(
        (lat, lon), (np.array([61.0, 59.0]), np.array([11.0, 13.0])), "conservative", values
    )
    np.testing.assert_array_equal(np.isnan(got), [[True, False], [False, False]])


@pytest.mark.parametrize("origin", [0.0, -180.0, 100.0])
def test_bilinear_equals_xarray(origin):
    lat, lon = axes(90, -90, 19, 24, origin)
    values = np.random.default_rng(1).normal(size=(19, 24))
    to = np.linspace(88, -88, 12), np.array([-179.0, -7.5, 0.0, 3.0, 95.0, 120.0, 179.5])
    got = interpolated((lat, lon), to, "bilinear", values)
    circle = xr.concat([field_on(lat, lon + turn, values) for turn in (-360, 0, 360)], "longitude")
    want = circle.t2m.interp(latitude=to[0], longitude=to[1], method="linear")
    np.testing.assert_allclose(got, want, atol=1e-6)
    nodes = interpolated((lat, lon), (lat[::2], (lon[::3] + 720)), "bilinear", values)
    np.testing.assert_array_equal(nodes, values[::2, ::3].astype("f4"))


def test_bilinear_at_the_poles_and_beside_gaps():
    lat, lon = axes(80, -80, 9, 16, 0.0)
    values = np.random.default_rng(2).normal(size=(9, 16))
    got = interpolated((lat, lon), (np.array([90.0, 85.0, 0.0, -90.0]), lon), "bilinear", values)
    np.testing.assert_allclose(got[0], values[0].mean(), rtol=1e-5)
    np.testing.assert_allclose(got[3], values[-1].mean(), rtol=1e-5)
    np.testing.assert_allclose(got[1], (values[0] + values[0].mean()) / 2, rtol=1e-5, atol=1e-6)
    values[4, 3] = np.nan
    got = interpolated((lat, lon), (np.array([20.0, 0.0]), lon + 11.25), "bilinear", values)
    np.testing.assert_array_equal(np.argwhere(np.isnan(got)), [[1, 2], [1, 3]])


@pytest.mark.parametrize("method", ["bilinear", "conservative"])
def test_truth_that_does_not_cover_the_forecasts(method):
    lat, lon = np.linspace(60, 40, 11), np.linspace(0, 30, 16)
    inside = interpolated((lat, lon), (lat[1:-1] + 0.3, lon[1:-1] + 0.3), method, np.ones((11, 16)))
    np.testing.assert_allclose(inside, 1, rtol=1e-6)
    for to, what in (((lat + 8, lon), "latitudes"), ((lat, lon - 8), "longitudes")):
        with pytest.raises(
            ArgumentError, match=rf"its {what} .* do not cover those of the forecasts"
        ):
            interpolated((lat, lon), to, method, np.ones((11, 16)))


@pytest.fixture(scope="module")
def offset(tiny, tmp_path_factory):
    """The tiny world's truth in degC on a grid that is offset from the forecasts', as netCDF."""
    truth = open_source(tiny / "w" / "truth", optional_dimensions=True)
    lat = np.linspace(86.0, -86.0, 20)
    lon = 4 + np.arange(0, 360, 10.0)
    ring = truth.pad(longitude=(0, 1), mode="wrap")
    ring = ring.assign_coords(longitude=np.append(truth["longitude"], truth["longitude"][0] + 360))
    path = tmp_path_factory.mktemp("offset") / "truth.nc"
    celsius = (ring[["t2m"]].interp(latitude=lat, longitude=lon) - 273.15).astype("f4")
    celsius["t2m"].attrs["units"] = "degC"
    celsius.to_netcdf(path, engine="netcdf4")
    return path


@pytest.mark.parametrize("method", ["bilinear", "conservative"])
def test_a_store_with_interpolated_truth(tiny, offset, tmp_path, method, capsys):
    choice = ["--variables", "t2m", "--steps", "48"]
    command = ["prepare", str(tiny / "w"), str(tmp_path / "s"), "--truth", str(offset), *choice]
    assert main(command) == 1
    assert "Interpolate it with --regrid bilinear or conservative" in capsys.readouterr().err
    assert main([*command, "--regrid", method]) == 0
    said = f"{method}, from 20 x 36 points"
    assert f"interpolated: {said}" in capsys.readouterr().out
    truth = open_store(tmp_path / "s", "truth")["t2m"]
    assert truth.attrs["regridded"] == said
    forecasts = open_store(tmp_path / "s", "sfc")
    want = pair_truth(forecasts, open_source(offset, optional_dimensions=True), regrid=method)
    np.testing.assert_array_equal(truth, want["t2m"])
    near = open_store(tiny / "s.zarr", "truth")["t2m"].sel(step=[48])
    assert abs(float((truth - near).mean())) < 2
    assert np.corrcoef(truth.to_numpy().ravel(), near.to_numpy().ravel())[0, 1] > 0.95
    assert main(["inspect", str(tmp_path / "s")]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    with pytest.raises(FileError, match=f"regrid: {method}, now none given"):
        prepare(tiny / "w", tmp_path / "s", truth=offset, variables=["t2m"], steps=[48])
    assert main([*command, "--regrid", method]) == 0  # complete: nothing to do
    before = contents(tmp_path / "s")
    (damaged,) = (path for path in (tmp_path / "s" / "truth/t2m/c").rglob("3/0/0/0"))
    damaged.write_bytes(damaged.read_bytes()[::-1])
    assert not verify(tmp_path / "s", source=tiny / "w", truth=offset).ok
    verify(tmp_path / "s", source=tiny / "w", truth=offset, repair=True)
    assert contents(tmp_path / "s") == before


@pytest.mark.parametrize("unit", ["forecast", "truth"])
def test_an_interrupted_interpolation_is_resumed(tiny, offset, tmp_path, monkeypatch, unit):
    """The same call resumes after any unit; the store is that of one call."""
    options = {"truth": offset, "variables": ["t2m"], "steps": [48], "regrid": "conservative"}
    prepare(tiny / "w", tmp_path / "whole", **options)
    monkeypatch.setattr("ens10.convert.workers.GROUP_BYTES", 0)  # each unit alone
    kind = {"forecast": ForecastUnit, "truth": PlainUnit}[unit]
    write, written = kind.write, []

    def stops(one, writer):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(one.name)
        write(one, writer)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "write", stops)
        with pytest.raises(KeyboardInterrupt):
            prepare(tiny / "w", tmp_path / "s", **options)
    assert len(written) == 3
    with pytest.raises(FileError, match="regrid: conservative, now bilinear"):
        prepare(tiny / "w", tmp_path / "s", **{**options, "regrid": "bilinear"})

    def counted(one, writer):
        assert one.name not in written
        write(one, writer)

    monkeypatch.setattr(kind, "write", counted)
    prepare(tiny / "w", tmp_path / "s", **options)
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")


def test_regrid_without_truth_is_refused(tiny, tmp_path):
    with pytest.raises(ArgumentError, match="regrid: there is no truth"):
        prepare(tiny / "w", tmp_path / "s", regrid="bilinear")
