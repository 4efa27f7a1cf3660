"""Places that are left out of a fit: made-up stations, and those of a store."""

import csv

import numpy as np
import pytest
import xarray as xr

from ens10.convert import prepare
from ens10.errors import ArgumentError
from ens10.experiments.studies import unseen_places as study


@pytest.fixture(scope="module")
def stations():
    return study.make_stations(places=40, dates=120)


def rows_of(out):
    with (out / "table.csv").open() as file:
        return {row.pop("places left out"): row for row in csv.DictReader(file)}


def test_distances_are_those_of_great_circles_to_places_of_other_folds():
    """Places 0 and 4 are of one fold: the nearest of another counts."""
    lat, lon = [50.0, 50.0, 52.0, 60.0, 50.1, -50.0], [0.0, 3.0, 0.0, 0.0, 0.0, 0.0]
    points = {"station": range(6), "lat": ("station", lat), "lon": ("station", lon)}
    found = study.nearest_km(xr.DataArray(np.zeros(6), points, ("station",)))
    degree = np.pi / 180 * 6371
    a, b, c = np.radians([50.0, 50.0, 3.0])
    east = np.arccos(np.sin(a) * np.sin(b) + np.cos(a) * np.cos(b) * np.cos(c)) / np.pi * 180
    expected = np.array([min(2, east), east, 1.9, 7.9999, 1.9, 100]) * degree
    np.testing.assert_allclose(found[[0, 2, 4]], expected[[0, 2, 4]], rtol=1e-4)
    np.testing.assert_allclose(found[5], 100 * degree, rtol=1e-4)


def test_no_truth_of_a_place_enters_its_score(stations, monkeypatch):
    """Truth of the training dates at left-out places is NaN-proof: fits never see it."""
    seen = []

    def fit(method, members, truth, real=study.fit, **options):
        if "EMOS(local" not in repr(method):
            seen.append(set(truth["station"].to_numpy().tolist()))
        return real(method, members, truth, **options)

    monkeypatch.setattr(study, "fit", fit)
    monkeypatch.setattr(study, "METHODS", {"emos_global": study.METHODS["emos_global"]})
    study.crps_of_places(*stations)
    names = np.array(stations[0]["station"])
    for fold, used in enumerate(seen[:4]):
        assert used == set(names[np.arange(40) % 4 != fold])


def test_unseen_places_are_better_by_their_climate_and_worse_than_with_truth(
    stations, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(study, "make_stations", lambda: stations)
    assert study.main([str(tmp_path)]) == 0
    rows = rows_of(tmp_path)
    assert next(iter(rows)) == "all"
    assert sum(int(row["number"]) for name, row in rows.items() if "km" in name) == 40
    scores = {name: float(value) for name, value in rows["all"].items()}
    own, local = scores["emos_samos, fitted there"], scores["emos_local, fitted there"]
    assert own < scores["emos_samos"] < 0.9 * scores["emos_global"]
    assert own < local < scores["emos_samos"]
    assert scores["emos_global"] < scores["raw"]
    assert f"| all | 40 | {scores['raw']:.2f} |" in capsys.readouterr().out


@pytest.mark.slow
def test_a_store_of_stations_gives_the_table_of_its_arrays(stations, tmp_path, capsys):
    members, truth = stations
    ahead = members.expand_dims(step=[48]).to_dataset(name="t2m")
    ahead["t2m"].attrs["units"] = "K"
    later = truth.assign_coords(time=truth["time"] + np.timedelta64(48, "h"))
    observed = later.to_dataset(name="t2m")
    observed["t2m"].attrs["units"] = "K"
    prepare(ahead, tmp_path / "s.zarr", truth=observed)
    words = [str(tmp_path / "out"), "--store", str(tmp_path / "s.zarr"), "--target", "t2m@48"]
    assert study.main(words) == 0
    expected = study.crps_of_places(members.astype("f4"), truth.astype("f4"))
    found = rows_of(tmp_path / "out")["all"]
    for name, values in expected.items():
        assert float(found[name]) == pytest.approx(values.mean(), rel=0.01)


def test_gaps_of_truth_and_altitude_are_left_out(stations, monkeypatch):
    """A date on which no place of a fold has truth, and a place without altitude."""
    members, truth = (x.isel(station=slice(0, 12)).copy() for x in stations)
    truth[{"time": 100, "station": slice(0, None, 4)}] = np.nan
    monkeypatch.setattr(study, "METHODS", {"raw": study.METHODS["raw"]})
    monkeypatch.setattr(study, "OWN", {})
    scores = study.crps_of_places(members, truth)["raw"]
    monkeypatch.undo()
    assert np.isfinite(scores).all()
    altitude = members["altitude"].to_numpy().copy()
    altitude[3] = np.nan
    rows = study.groups(members.assign_coords(altitude=("station", altitude)))
    assert not any("nan" in name for name in rows)
    assert sum(mask.sum() for name, mask in rows.items() if "altitude" in name) == 11
    with pytest.raises(ArgumentError, match="3 stations are too few"):
        study.crps_of_places(*(x.isel(station=slice(0, 3)) for x in stations))


def test_a_grid_is_refused(prepared, tmp_path, capsys):
    store = (
        prepared("8x16", range(2000, 2008), 6, ("t2m", "u10", "v10"), steps=(48,)) / "store.zarr"
    )
    assert study.main([str(tmp_path / "out"), "--store", str(store)]) == 1
    assert "it has a grid, not stations" in " ".join(capsys.readouterr().err.split())
