"""Members, slabs, patches and points against what xarray and numpy take from the store."""

import numpy as np
import pytest
from batchtools import members_of, whole

from ens10 import open_store
from ens10.grid import location_features
from ens10.loader import Batches, Fields, Patches, Points, Slabs

INPUTS = ["t2m", "sst", "z500", "u10@24", "t2m@0"]
FIELDS = ("raw_mean", "raw_std", "target", "weights")


def inputs_of(store):
    """(input, time, number, H, W)"""
    held = (("t2m", 48, None), ("sst", 48, None), ("z", 48, 500), ("u10", 24, None),
            ("t2m", 0, None))  # fmt: skip
    return np.stack([members_of(store, name, step, level) for name, step, level in held])


def in_order_of_time(values, dates):
    return values[np.argsort(dates, kind="stable")]


def test_members_of_every_input(store):
    batches = Batches(store, "t2m", INPUTS, "test", kind="members", extras=["location"])
    got, full = whole(batches), whole(Batches(store, "t2m", INPUTS, "test"))
    assert batches.channels == (
        "t2m", "sst", "z_500", "u10@24", "t2m@0", "sst:mask",
        "sin_lat", "cos_lat_sin_lon", "cos_lat_cos_lon",
    )  # fmt: skip
    held = inputs_of(store)[:, batches.index].transpose(1, 2, 0, 3, 4)
    statistics = batches.normaliser
    want = (held - statistics.mean[:5]) / statistics.scale[:5]
    assert got["features"].shape == (6, 4, 9, 8, 16)
    np.testing.assert_allclose(got["features"][:, :, :5], np.nan_to_num(want), atol=1e-4)
    np.testing.assert_array_equal(got["features"][:, :, 5], np.isfinite(held[:, :, 1]))
    located = location_features(batches.samples.latitude, batches.samples.longitude)
    np.testing.assert_array_equal(got["features"][:, :, 6:], np.broadcast_to(
        located, (6, 4, 3, 8, 16)))  # fmt: skip
    for key in (*FIELDS, "dates"):
        np.testing.assert_array_equal(got[key], full[key])


@pytest.mark.parametrize(
    ("features", "first", "last"),
    [("moments", 0, 1), ("moments", 2, 5), ("members", 0, 8), ("members", 7, None)],
)
def test_slabs_are_rows_of_the_fields(store, first, last, features):
    settings = {"extras": ["location", "day_of_year"], "members": True, "batch_size": 4}
    full = whole(Batches(store, "t2m", INPUTS, kind=Fields(features=features), **settings))
    slab = Slabs(features=features, first=first, last=last)
    part = whole(Batches(store, "t2m", INPUTS, kind=slab, **settings))
    for key in full:
        want = full[key] if key == "dates" else full[key][..., first:last, :]
        np.testing.assert_array_equal(part[key], want, err_msg=key)


def test_a_slab_reads_its_own_bytes(store):
    read = {}
    for rows in (8, 4):
        batches = Batches(store, "t2m", ["t2m", "u10"], "test", kind=Slabs(first=0, last=rows))
        list(batches)
        read[rows] = batches.bytes_read
    assert read[8] == 6 * (2 + 2 + 1) * 8 * 16 * 4  # means, deviations and truth, float32
    assert read[4] * 2 == read[8]


@pytest.mark.parametrize(
    ("size", "features"), [((3, 6), "moments"), ((8, 16), "members"), ((1, 1), "members")]
)
def test_patches_are_cut_from_the_fields_around_the_earth(store, size, features):
    settings = {"extras": ["location"], "members": True, "shuffle": False}
    full = whole(Batches(store, "t2m", INPUTS, kind=Fields(features=features), **settings))
    kind = Patches(size, number=9, features=features)
    batches = Batches(store, "t2m", INPUTS, kind=kind, batch_size=3, **settings)
    got = whole(batches)
    assert len(got["dates"]) == len(full["dates"]) * 9
    assert (np.repeat(full["dates"], 9) == got["dates"]).all()
    for n, (row, column) in enumerate(zip(got["rows"], got["columns"], strict=True)):
        for key in set(full) - {"dates"}:
            turned = np.roll(full[key][n // 9], -column, axis=-1)
            want = turned[..., row : row + size[0], : size[1]]
            np.testing.assert_array_equal(got[key][n], want, err_msg=key)
    assert len(set(got["columns"].tolist())) == 16  # any meridian, the last ones too
    assert set(got["rows"].tolist()) == set(range(8 - size[0] + 1))


def test_places_of_patches_depend_on_seed_epoch_and_date_alone(store):
    def places(seed, epoch, **settings):
        batches = Batches(store, "t2m", ["t2m"], kind=Patches((2, 2), 3), seed=seed, **settings)
        batches.set_epoch(epoch)
        got = whole(batches)
        keyed = zip(got["dates"].tolist(), got["rows"].tolist(), got["columns"].tolist(),
                    strict=True)  # fmt: skip
        return sorted(keyed)

    assert places(1, 0) == places(1, 0, batch_size=4, threads=0)
    assert places(1, 0) == sorted(
        place for rank in range(3) for place in places(1, 0, rank=rank, world=3)
    )
    assert places(1, 0) != places(1, 1)
    assert places(1, 0) != places(2, 0)


@pytest.mark.parametrize(("features", "dates"), [("moments", 1), ("members", 3)])
def test_points_are_the_columns_of_the_fields(store, features, dates):
    settings = {"extras": ["day_of_year"], "members": True, "batch_size": dates, "seed": 2}
    full = whole(Batches(store, "t2m", INPUTS, kind=Fields(features=features), **settings))
    kind = Points(features=features, size=50)
    batches = Batches(store, "t2m", INPUTS, kind=kind, **settings)
    parts = list(batches)
    left = len(batches.index) % dates
    assert len(parts) == len(batches) == sum(
        -(-n * 128 // 50) for n in [dates] * (len(batches.index) // dates) + [left] * bool(left)
    )  # fmt: skip
    got = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    assert len(got["dates"]) == 128 * len(full["dates"])
    samples = batches.samples
    row = np.argmin(np.abs(samples.latitude[:, None] - got["latitude"]), axis=0)
    column = np.argmin(np.abs(samples.longitude[:, None] - got["longitude"]), axis=0)
    date = np.array([full["dates"].tolist().index(d) for d in got["dates"]])
    assert len({*zip(date, row, column, strict=True)}) == len(date)  # each point once
    for key in (*FIELDS, "members", "features"):
        moved = np.moveaxis(full[key], (-2, -1), (1, 2))
        np.testing.assert_array_equal(got[key], moved[date, row, column], err_msg=key)
    assert not np.array_equal(np.sort(row[:50]), row[:50])
    assert len(set(date[:50].tolist())) == dates  # the points of several dates are mixed
    batches.set_epoch(1)
    assert not np.array_equal(next(iter(batches))["latitude"], parts[0]["latitude"])


def test_points_in_order(store):
    settings = {"shuffle": False, "batch_size": 2}
    full = whole(Batches(store, "t2m", ["t2m"], **settings))
    got = whole(Batches(store, "t2m", ["t2m"], kind=Points(shuffle=False, size=100), **settings))
    np.testing.assert_array_equal(got["target"], full["target"].reshape(-1))
    latitude = open_store(store, "truth")["latitude"].to_numpy()
    np.testing.assert_array_equal(got["latitude"][:128], np.repeat(latitude, 16).astype("f4"))


def test_features_in_their_units(store):
    batches = Batches(store, "t2m", INPUTS, "test", normalise=False)
    got = whole(batches)["features"]
    held = inputs_of(store)[:, batches.index]
    np.testing.assert_allclose(got[:, 0], held[0].mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(got[:, 6], held[1].std(axis=1, ddof=1), rtol=1e-5)
    np.testing.assert_array_equal(np.isnan(got[:, 1]), np.isnan(held[1]).any(axis=1))
    np.testing.assert_array_equal(got[:, 10], np.isfinite(held[1]).all(axis=1))
