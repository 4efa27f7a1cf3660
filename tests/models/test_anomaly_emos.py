"""EMOS of standardised anomalies on a world whose anomalies have the same law at all places."""

import numpy as np
import pytest
import torch
import xarray as xr

from ens10 import metrics
from ens10.errors import ArgumentError, DataNote, MissingDataError
from ens10.experiments.studies.unseen_places import make_stations
from ens10.models import statistical
from ens10.models.statistical import EMOS, AnomalyEMOS
from ens10.models.statistical.harmonics import annual_cycle
from ens10.models.statistical.place_regression import PlaceRegression, _smooth, places_in
from ens10.stations import as_row

PLACES, DATES, MEMBERS = 60, 360, 8
SLOPE, C, D = 0.85, 0.3, 0.8  # of the anomalies
SEEN, UNSEEN = np.arange(45), np.arange(45, 60)
TRAINING, TEST = slice(0, 240), slice(240, None)


def world(noise=0.2, seed=0):
    """Members and truth; climates follow latitude and altitude, and have `noise` of each place."""
    rng = np.random.default_rng(seed)
    lat, lon = rng.uniform(45, 55, PLACES), rng.uniform(0, 15, PLACES)
    altitude = rng.uniform(0, 2000, PLACES)
    own = rng.normal(size=(4, PLACES)) * noise
    season = np.cos(2 * np.pi * np.arange(DATES) / 60)[:, None]
    raw_mean = 290 - 0.8 * (lat - 50) - 0.004 * altitude + 3 * own[0] - 9 * season
    truth_mean = raw_mean + 2 - 0.003 * altitude + own[1] + season
    raw_std = 3 * np.exp(0.0003 * altitude + 0.3 * own[2] + 0.2 * season)
    truth_std = raw_std * np.exp(0.2 - 0.0001 * altitude + 0.3 * own[3])
    spread = 0.4 * np.exp(0.4 * rng.normal(size=(DATES, PLACES)))
    anomaly = rng.normal(size=(DATES, PLACES)) * np.sqrt(1 - np.mean(spread**2) / MEMBERS)
    noises = rng.normal(size=(DATES, MEMBERS, PLACES))
    members = anomaly[:, None] + spread[:, None] * noises
    mean, std = members.mean(1), members.std(1, ddof=1)
    error = np.hypot(C, D * std) * rng.normal(size=mean.shape)
    truth = truth_mean + truth_std * (SLOPE * mean + error)
    time = np.datetime64("2001-01-01", "ns") + (np.arange(DATES) * 365.2425 / 60 * 24).astype(
        int
    ) * np.timedelta64(1, "h")
    points = {"station": [f"s{n}" for n in range(PLACES)], "lat": ("station", lat),
              "lon": ("station", lon), "altitude": ("station", altitude)}  # fmt: skip
    ahead = raw_mean[:, None] + raw_std[:, None] * members
    return (
        xr.DataArray(ahead, {"time": time, **points}, ("time", "number", "station")),
        xr.DataArray(truth, {"time": time, **points}, ("time", "station")),
        np.stack([truth_mean, np.log(truth_std), raw_mean, np.log(raw_std)]),
    )


def crps(forecast, truth):
    return float(metrics.verify(forecast, truth, ["crps"])["crps"])


@pytest.fixture(scope="module")
def data():
    return world()


@pytest.fixture(scope="module")
def fitted(data):
    members, truth, _ = data
    part = {"time": TRAINING, "station": SEEN}
    return statistical.fit(AnomalyEMOS(), members.isel(part), truth.isel(part))


def climates(method, dates):
    """Mean and log deviation of truth and ensemble mean, (4, N, P), in target units."""
    cycle = annual_cycle(torch.from_numpy(dates.astype("M8[s]").astype(np.int64)), 1).numpy()
    found = np.einsum("nk,vqkp->vqnp", cycle, method.climate.double().numpy()[..., 0, :])
    centre, scale = method.units.double().numpy()
    found[:, 0], found[:, 1] = centre + scale * found[:, 0], found[:, 1] + np.log(scale)
    return found.reshape(4, len(dates), -1)


def test_the_law_of_the_anomalies_is_found(fitted, data):
    """With 10,800 samples coefficients are known to some hundredths, climates to s / sqrt(240)."""
    bias, slope, _, c, d = fitted.method.coefficients[1].tolist()
    assert abs(1 + slope - SLOPE) < 0.03
    assert abs(bias) < 0.02
    assert abs(c - C) < 0.05
    assert abs(d - D) < 0.05
    dates = data[0]["time"].to_numpy()
    found, expected = climates(fitted.method, dates), data[2][:, :, SEEN]
    deviation = np.exp(expected[3])
    for n, error in ((0, 0.2), (2, 0.2)):  # means; the truth's deviation is about that of the mean
        assert np.abs((found[n] - expected[n]) / deviation).mean() < error
    # members' mean and EMOS' law have a deviation near 1 in units of raw_std
    assert np.abs(found[3] - expected[3]).mean() < 0.08


def test_places_without_truth_are_better_than_with_common_coefficients(fitted, data):
    members, truth, _ = data
    common = statistical.fit(
        EMOS(), *(x.isel(time=TRAINING, station=SEEN) for x in (members, truth))
    )
    later = {"time": TEST, "station": UNSEEN}
    scores = [crps(f(members.isel(later)), truth.isel(later)) for f in (fitted, common)]
    raw = metrics.crps_ensemble(members.isel(later), truth.isel(later), estimator="plain",
                                member_dim="number", dim="all")  # fmt: skip
    assert scores[0] < 0.8 * scores[1] < 0.8 * float(raw)
    unseen, seen = fitted.method.coefficients[:, 3:].norm(dim=1).tolist()
    assert unseen > 1.01 * seen
    # the error of their climates is in the spread: squared errors are as large as forecast
    forecast = fitted(members.isel(later))
    ratio = ((truth.isel(later) - forecast["mu"]) ** 2).mean() / (forecast["sigma"] ** 2).mean()
    assert 0.8 < float(ratio) < 1.25
    seen = {"time": TEST, "station": SEEN}
    forecast = fitted(members.isel(seen))
    ratio = ((truth.isel(seen) - forecast["mu"]) ** 2).mean() / (forecast["sigma"] ** 2).mean()
    assert 0.9 < float(ratio) < 1.1


def test_without_a_law_of_each_place_the_prediction_is_the_climate():
    """Covariates explain all: a place that was left out has the forecast of one that was not."""
    members, truth, _ = world(noise=0.0)
    parts = [{"time": TRAINING, "station": s} for s in (SEEN, np.arange(PLACES))]
    some, everywhere = (
        statistical.fit(AnomalyEMOS(), members.isel(p), truth.isel(p)) for p in parts
    )
    later = members.isel(time=TEST, station=UNSEEN)
    difference = some(later)["mu"] - everywhere(members.isel(time=TEST))["mu"].isel(station=UNSEEN)
    assert float(np.abs(difference).mean()) < 0.35  # of errors of about 3 K
    common = statistical.fit(EMOS(), members.isel(parts[0]), truth.isel(parts[0]))
    other = common(later)["mu"] - everywhere(members.isel(time=TEST))["mu"].isel(station=UNSEEN)
    assert float(np.abs(other).mean()) > 1.0


def test_stations_are_matched_by_name_in_any_order(fitted, data):
    members = data[0].isel(time=TEST)
    alone = fitted(members.isel(station=SEEN))
    mixed = fitted(members.isel(station=[50, 7, 3]))
    for name in ("mu", "sigma"):
        np.testing.assert_array_equal(mixed[name][:, 1:], alone[name][:, [7, 3]])
    assert mixed["mu"].notnull().all()
    # a place of the training under another name is a new one
    renamed = members.isel(station=[7]).assign_coords(station=["new"])
    assert float(np.abs(fitted(renamed)["mu"] - alone["mu"][:, [7]].to_numpy()).mean()) > 0.05


def test_few_dates_draw_a_place_to_the_regression_of_the_others(data):
    """A place with eight dates, three standard errors off, comes nearer to its true climate."""
    members, truth, known = (x.copy() for x in data)
    part = {"time": TRAINING, "station": SEEN}
    truth[{"time": slice(8, None), "station": 0}] = np.nan
    few = statistical.fit(AnomalyEMOS(), members.isel(part), truth.isel(part)).method
    dates = members["time"].to_numpy()[TRAINING]
    own = truth[:8, 0].mean().item()  # winter alone
    found = climates(few, dates)[0, :, 0]
    assert np.abs(found - known[0, TRAINING, 0]).max() < 3 < abs(own - known[0, TRAINING, 0].mean())
    truth[{"station": 0}] = np.nan
    none = statistical.fit(AnomalyEMOS(), members.isel(part), truth.isel(part)).method
    np.testing.assert_allclose(none.seen[0], [0.0, *[240 / 249] * 44], rtol=1e-6)
    predicted = none._predicted(coordinates(members.isel(part)))[..., 0]
    np.testing.assert_allclose(none.climate[..., 0], predicted, atol=1e-4)


@pytest.mark.parametrize("dates", [3, 6, 12])
def test_stations_with_few_dates_are_calibrated_and_no_worse_than_without(dates):
    """Of every fourth station, few random dates have truth: means of two worlds, later dates."""
    squares, errors = [], {0: [], dates: []}
    for seed in range(2):
        members, truth = make_stations(40, 180, seed=seed)
        few, past, later = np.arange(0, 40, 4), {"time": slice(0, 120)}, {"time": slice(120, None)}
        for number in errors:
            known, rng = truth.copy(), np.random.default_rng(seed)
            for station in few:
                known[{"time": rng.permutation(120)[number:], "station": station}] = np.nan
            method = statistical.fit(AnomalyEMOS(), members.isel(past), known.isel(past))
            forecast = method(members.isel(later)).isel(station=few)
            error = truth.isel({**later, "station": few}) - forecast["mu"]
            errors[number].append(float((error**2).mean()))
            if number:
                squares.append(float(((error / forecast["sigma"]) ** 2).mean()))
    assert 0.75 < np.mean(squares) < 1.25
    assert np.mean(errors[dates]) < 1.02 * np.mean(errors[0])


def test_what_is_far_from_the_training_is_named_and_limited(fitted, data):
    members = data[0].isel(time=TEST, station=[50, 51, 3])
    places = {"lat": [5.0, 50.0, 50.0], "altitude": [500.0, 9000.0, 500.0]}
    strange = members.assign_coords({n: ("station", x) for n, x in places.items()})
    with pytest.warns(DataNote) as notes:
        forecast = fitted(strange)
    far, high = [str(n.message) for n in notes]
    place = f"(5.00, {float(members['lon'][0]):.2f})"
    assert far == f"1 of 2 new points are far from those of the training: {place}"
    assert high.startswith("1 of 2 new points have another altitude")
    logs = fitted.method.climate[1, 1, 0]
    _, factor = fitted.method.units.tolist()
    seasons = fitted.method.climate[1, 1, 1:].abs().amax((-2, -1)).sum()
    assert float(forecast["sigma"].max()) < 5 * factor * float((logs.max() + seasons).exp())
    feet = members.assign_coords(altitude=members["altitude"] / 0.3048)
    feet["altitude"].attrs["units"] = "feet"
    np.testing.assert_allclose(fitted(feet)["mu"], fitted(members)["mu"], rtol=1e-6)
    feet["altitude"].attrs["units"] = "hPa"
    with pytest.raises(ArgumentError, match="'hPa' is no known unit of an altitude"):
        fitted(feet)


def coordinates(data):
    return np.stack([data[n].to_numpy() for n in ("lat", "lon", "altitude")])[:, None]


def test_a_new_place_without_altitude_is_missing(fitted, data):
    members = data[0].isel(time=TEST, station=[50, 3])
    unknown = members.assign_coords(altitude=("station", [np.nan, np.nan]))
    with pytest.warns(DataNote, match="1 of 1 new points have no altitude, and no forecast"):
        forecast = fitted(unknown)
    assert forecast["mu"][:, 0].isnull().all()
    assert forecast["mu"][:, 1].notnull().all()
    part = {"time": TRAINING, "station": SEEN}
    without = [x.drop_vars("altitude").isel(part) for x in data[:2]]
    assert statistical.fit(AnomalyEMOS(), *without)(unknown)["mu"].notnull().all()


def test_left_out_predictions_are_those_of_fits_without_the_place():
    rng = np.random.default_rng(1)
    x = np.concatenate([np.ones((12, 1)), rng.normal(size=(12, 5))], 1)
    values, w = rng.normal(size=(12, 2)), rng.uniform(0.5, 2, 12)
    found = _smooth(x, values, w, 0.7)
    for n in range(12):
        others = np.arange(12) != n
        without = _smooth(x[others], values[others], w[others], 0.7)
        np.testing.assert_allclose(found.left_out[n], x[n] @ without.weights, rtol=1e-9)


def test_the_regression_follows_altitude_and_nearby_places():
    rng = np.random.default_rng(2)
    places = np.stack([rng.uniform(45, 55, 80), rng.uniform(0, 15, 80), rng.uniform(0, 2000, 80)])
    smooth = np.sin(places[0] / 2) + np.cos(places[1] / 3)
    values = np.stack([0.002 * places[2], 0.002 * places[2] + smooth], 1)
    regression = PlaceRegression(2)
    regression.fit(places[:, :60], values[:60], np.ones(60))
    error = regression.predict(places[:, 60:]) - values[60:]
    assert np.abs(error[:, 0]).max() < 0.15  # of 0 to 4
    assert error[:, 1].std() < 0.5 * smooth.std()
    # a single place predicts itself everywhere
    single = PlaceRegression(2)
    single.fit(places[:, :1], values[:1], np.ones(1))
    np.testing.assert_allclose(single.predict(places), np.tile(values[:1], (80, 1)), atol=1e-5)


def test_a_copy_of_a_fit_is_loaded(fitted, data):
    other = AnomalyEMOS()
    other.load_state_dict(fitted.method.state_dict())
    members = data[0].isel(time=TEST, station=[50, 3])
    expected = fitted(members)
    found = statistical.FittedMethod(other, fitted.points, fitted.names)(members)
    xr.testing.assert_identical(found, expected)


def test_a_single_station_needs_no_dimension(data):
    """Of arrays without stations' dimension, as of one station selected."""
    part = {"time": TRAINING, "station": 3}
    members, truth, _ = data
    one = statistical.fit(AnomalyEMOS(), members.isel(part), truth.isel(part))
    part["station"] = [3]
    row = statistical.fit(AnomalyEMOS(), members.isel(part), truth.isel(part))
    found, expected = one(members.isel(station=3)), row(members.isel(station=[3]))
    np.testing.assert_array_equal(found["mu"], expected["mu"][:, 0])


def test_methods_without_places_need_no_coordinates(data):
    members, truth = (x.drop_vars(["lat", "lon", "altitude"]) for x in data[:2])
    part = {"station": [0, 1, 2]}
    for method in (EMOS(), statistical.MemberEMOS(), statistical.Raw()):
        fitted = statistical.fit(method, members.isel(part), truth.isel(part))
        expected, found = fitted(members.isel(part)), fitted(members.isel(station=[2, 30]))
        for name in expected.data_vars:
            np.testing.assert_array_equal(
                found[name].isel(station=0), expected[name].isel(station=2)
            )


def test_clear_errors(data):
    members, truth, _ = data
    with pytest.raises(ArgumentError, match="harmonics"):
        AnomalyEMOS(-1)
    with pytest.raises(ArgumentError, match="8 training dates do not determine a climatology"):
        statistical.fit(AnomalyEMOS(), members[:8], truth[:8])
    part = {"time": TRAINING, "station": [0, 1]}
    two = statistical.fit(AnomalyEMOS(), members.isel(part), truth.isel(part))
    with pytest.raises(ArgumentError, match="2 with truth in the training do not tell"):
        two(members.isel(station=[0, 5]))
    lat = members["lat"].copy()
    lat[4] = np.nan
    with pytest.raises(ArgumentError, match="latitude or longitude of 1 of 60 points is missing"):
        statistical.fit(AnomalyEMOS(), members.assign_coords(lat=lat), truth)
    with pytest.raises(MissingDataError, match="lat of the stations"):
        statistical.fit(AnomalyEMOS(), *(x.drop_vars(["lat", "lon"]) for x in (members, truth)))
    with pytest.raises(ArgumentError, match="AnomalyEMOS has a climate of each place"):
        statistical.SlidingWindow(AnomalyEMOS())
    altitude = members["altitude"].copy()
    altitude[4] = np.nan
    points = as_row(members.assign_coords(altitude=("station", altitude.to_numpy())))
    with pytest.warns(DataNote, match="1 of 60 points of the training have no altitude"):
        AnomalyEMOS().place(places_in(points.coords.to_dataset()))
    method = AnomalyEMOS()
    ones = torch.ones(12, 1, 3)
    method.collect({"target": ones, "raw_mean": ones, "raw_std": ones, "weights": ones,
                    "dates": 86400 * 30 * torch.arange(12)})  # fmt: skip
    with pytest.raises(ArgumentError, match="needs the coordinates of the points"):
        method.solve()
