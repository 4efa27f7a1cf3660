"""Views of dates by random subsets of members, against numpy and ensembles of these members."""

import numpy as np
import pytest
from batchtools import copied, lazy, members_of, whole

from ens10 import open_store, prepare
from ens10.errors import ArgumentError
from ens10.loader import Batches, Patches, Views, batch_layouts
from ens10.loader.batches import open_samples
from ens10.source import open_source
from ens10.synthetic import World

INPUTS = ["t2m", "z500", "t2m@24"]
FIELDS = (("t2m", 48, None), ("z", 48, 500), ("t2m", 24, None))


def places_of(batches, epoch=0, seed=0):
    """Members of each view of all dates of an epoch, by date and view."""
    kind, samples = batches.kind, batches.samples
    views = {int(i): kind.views(samples, int(i), (seed, epoch)) for i in batches.index}
    return {i: [view.places for view in of_date] for i, of_date in views.items()}


@pytest.fixture(scope="module")
def leads(tmp_path_factory):
    """A store with truth at two lead times and winds."""
    folder = tmp_path_factory.mktemp("leads")
    names, days = ["t2m", "u10", "v10", "z", "v"], ["0104", "0702"]
    options = {"levels": (500,), "steps": (24, 48), "truth_steps": (24, 48), "members": 4}
    World("8x16", range(2000, 2006), days, names, seed=4, **options).write(folder / "w")
    truth = open_source(folder / "w" / "truth").load()
    truth["v10"] = (truth["t2m"] - 280).assign_attrs(units="m s**-1")  # the world has none
    return prepare(folder / "w", folder / "s.zarr", truth=truth, progress=False)


@pytest.mark.parametrize("protocol", ["clean", "paper"])
def test_features_are_moments_of_the_members_of_a_view(store, protocol):
    settings = {"protocol": protocol, "members": True, "extras": ["day_of_year"]}
    kind = Views(members=3, number=2)
    batches = Batches(store, "t2m", INPUTS, kind=kind, batch_size=4, shuffle=False, **settings)
    got = whole(batches)
    full = whole(Batches(store, "t2m", INPUTS, shuffle=False, **settings))
    held = np.stack([members_of(store, *field) for field in FIELDS])  # (input, time, number, H, W)
    statistics, ddof = batches.normaliser, 1 if protocol == "clean" else 0
    subsets = places_of(batches)
    assert len({tuple(p) for views in subsets.values() for p in views}) == 4  # of 4 members, 3
    truth = open_store(store, "truth")["t2m"].sel(step=48).to_numpy()
    n = 0
    for date, views in subsets.items():
        for places in views:
            chosen = held[:, date, places]
            moments = np.concatenate([chosen.mean(1), chosen.std(1, ddof=ddof)])
            want = (moments - statistics.mean[:6]) / statistics.scale[:6]
            np.testing.assert_allclose(got["features"][n, :6], want, rtol=1e-4, atol=2e-4)
            np.testing.assert_allclose(got["raw_mean"][n], moments[0], rtol=1e-6)
            np.testing.assert_allclose(got["raw_std"][n], moments[3], rtol=1e-4)
            np.testing.assert_array_equal(got["members"][n], chosen[0].astype(np.float32))
            np.testing.assert_array_equal(got["target"][n], truth[date])
            n += 1
    assert n == len(got["dates"]) == 2 * len(full["dates"])
    for key in ("target", "weights", "dates"):
        np.testing.assert_array_equal(got[key], np.repeat(full[key], 2, axis=0))
    np.testing.assert_array_equal(got["features"][:, 6:], np.repeat(full["features"][:, 6:], 2, 0))


@pytest.mark.parametrize("features", ["moments", "members"])
@pytest.mark.parametrize("source", ["store", "dataset"])
def test_a_view_is_the_date_of_an_ensemble_of_its_members(tiny, store, source, features):
    data, truth = (store, None) if source == "store" else lazy(tiny)
    kind = Views(members=2, number=1, features=features)
    inputs = [*INPUTS, "sst"]  # with gaps and a mask
    batches = Batches(data, "t2m", inputs, kind=kind, truth=truth, members=True)
    for date, (places,) in list(places_of(batches).items())[:4]:
        labels = [batches.samples.member_labels[n] for n in places]
        samples = open_samples(data, "t2m", truth, lambda _, chosen=labels: chosen)
        other = Batches(samples, "t2m", inputs, normaliser=batches.normaliser, members=True,
                        kind="members" if features == "members" else "fields")  # fmt: skip
        want, got = (b.batch(np.array([date])) for b in (other, batches))
        assert set(want) == set(got)
        for key, values in want.items():
            np.testing.assert_array_equal(got[key], values, err_msg=key)


@pytest.mark.parametrize("settings", [
    {"target": "t2m", "step": 48}, {"target": ["t2m", "z500"], "step": 24},
    {"target": "t2m", "step": [24, 48]},
])  # fmt: skip
def test_all_members_are_the_plain_batch(leads, settings):
    inputs = ["t2m", "u10"]
    options = {**settings, "inputs": inputs, "members": True, "batch_size": 4, "threads": 2}
    plain = list(Batches(leads, **options))
    views = list(Batches(leads, kind=Views(members=4, number=2), **options))
    assert len(plain) == len(views)
    for want, got in zip(plain, views, strict=True):
        for key, values in want.items():
            tolerance = {"rtol": 1e-6, "atol": 1e-5}
            repeated = np.repeat(values, 2, axis=0)
            np.testing.assert_allclose(got[key], repeated, err_msg=key, **tolerance)


def test_views_depend_on_seed_epoch_and_date_alone(store):
    def views(seed=0, epoch=0, **settings):
        kind = Views(members=2, number=3)
        batches = Batches(store, "t2m", INPUTS, kind=kind, seed=seed, **settings)
        batches.set_epoch(epoch)
        found = whole(batches)
        order = np.argsort(found["dates"], kind="stable")
        return found["raw_mean"][order].tobytes()

    first = views()
    assert first == views(batch_size=4, threads=2) == views(shuffle=False)
    assert len({first, views(epoch=1), views(seed=1)}) == 3


def test_an_iteration_resumes_with_the_same_views(store):
    def batches():
        return Batches(store, "t2m", INPUTS, kind=Views(members=2, number=2), batch_size=2)

    whole_epoch = copied(batches())
    begun, other = batches(), batches()
    iteration = iter(begun)
    next(iteration)
    state = begun.state_dict()
    iteration.close()
    other.load_state_dict(state)
    assert copied(other) == whole_epoch[1:]


def test_members_of_a_date_are_read_once(store):
    def bytes_of(number):
        batches = Batches(store, "t2m", ["t2m", "z500"], kind=Views(members=2, number=number))
        truth = number * len(batches.index)
        list(batches)
        return batches.bytes_read - truth * 8 * 16 * 4

    assert bytes_of(1) == bytes_of(4) > 0


def test_a_repeated_date_has_no_weight_in_any_view(store):
    kind, settings = Views(members=2), {"rank": 19, "world": 20, "even": "pad"}
    (batch,) = Batches(store, "t2m", INPUTS, kind=kind, **settings)
    assert batch["weights"].shape[0] == 2
    assert not batch["weights"].any()


def test_evaluation_is_of_full_fields(store):
    batches = Batches(store, "t2m", INPUTS, kind=Views(members=2), shuffle=False)
    plain = Batches(store, "t2m", INPUTS, shuffle=False)
    assert copied(batches.full_fields()) == copied(plain)


@pytest.mark.parametrize(("kind", "words"), [
    (Views(members=1), "2 views of 1 members"),
    (Views(members=5), "Choose at least one view, and 2 to 4 members"),
    (Views(members=2, number=0), "0 views"),
])  # fmt: skip
def test_views_that_cannot_be(store, kind, words):
    with pytest.raises(ArgumentError, match=words):
        Batches(store, "t2m", INPUTS, kind=kind)


def test_a_cache_is_refused(store):
    batches = Batches(store, "t2m", INPUTS, kind=Views(members=2), cache=0.5)
    with pytest.raises(ArgumentError, match=r"cache.*anew in each epoch"):
        next(iter(batches))
    next(iter(Batches(store, "t2m", INPUTS, kind=Patches((2, 2)), cache=0.5)))  # others are kept


@pytest.mark.parametrize("features", ["moments", "members"])
def test_a_view_is_rolled_and_mirrored_as_a_whole(leads, features):
    """The mirrored world: rows reversed, north-south winds reversed, half a year later."""
    options = {"target": ["v10", "t2m"], "inputs": ["v10", "t2m", "v500"], "step": 48}
    options |= {"extras": ["day_of_year"], "members": True, "shuffle": False}
    kind = Views(members=4, number=3, roll=True, mirror=True, features=features)
    batches = Batches(leads, kind=kind, **options)
    plain = "members" if features == "members" else "fields"
    full = list(Batches(leads, kind=plain, **options))
    odd = {"v10:mean", "v_500:mean", "sin_day", "cos_day", "v10", "v_500"}
    signs = np.where([c in odd for c in batches._date_content.channels], -1, 1)
    seen = set()
    for date, batch, want in zip(batches.index.tolist(), batches, full, strict=True):
        for n, view in enumerate(batches.kind.views(batches.samples, date, (0, 0))):
            seen.add(view.shift if not view.mirrored else -1 - view.shift)
            for key in set(want) - {"dates"}:
                values = np.concatenate(  # columns that leave in the east enter in the west
                    [want[key][0][..., 16 - view.shift :], want[key][0][..., : 16 - view.shift]], -1
                )
                if view.mirrored:
                    values = np.flip(values, -2)
                    if key == "features":
                        values = values * signs[:, None, None]
                    elif key != "raw_std" and key != "weights":  # of v10, and of t2m
                        values = np.stack([-values[0], values[1]])
                np.testing.assert_allclose(batch[key][n], values, rtol=1e-6, atol=1e-5, err_msg=key)
    assert len(seen) > 6
    assert min(seen) < 0 < max(seen)


def test_moved_views_of_a_region_are_refused(leads, tiny):
    data, truth = lazy(tiny)
    regions = {"roll": {"longitude": slice(0, 8)}, "mirror": {"latitude": slice(0, 5)}}
    for move, part in regions.items():
        kind = Views(members=4, **{move: True})
        with pytest.raises(ArgumentError, match="region cannot be moved"):
            Batches(data.isel(part), "t2m", ["t2m"], truth=truth.isel(part), kind=kind)
    located = Batches(leads, "t2m", step=48, extras=["location"], kind=Views(members=4, roll=True))
    with pytest.raises(ArgumentError, match="features of places: cos_lat"):
        next(iter(located))


@pytest.mark.parametrize(("channel", "is_odd"), [
    ("v", True), ("v100:mean", True), ("vo_500", True), ("v_500@24:mean", True), ("sin_day", True),
    ("v_500:std", False), ("u10", False), ("w_500", False), ("t2m:mean", False),
])  # fmt: skip
def test_fields_that_change_their_sign_in_a_mirrored_world(channel, is_odd):
    assert batch_layouts._changes_sign(channel) is is_odd
