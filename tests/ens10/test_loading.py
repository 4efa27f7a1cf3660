"""How batches come: threads, resuming, ranks, memory that is kept, damage."""

import json
import shutil

import numpy as np
import pytest
from batchtools import copied, lazy, readers, whole

from ens10.errors import ArgumentError, DamagedFileError, FileError, UnknownNameError
from ens10.loader import Batches, Patches, Points, Slabs
from ens10.loader.batch_layouts import batch_layout, uses_members

INPUTS = ["t2m", "sst", "z500@24"]
KINDS = ["fields", "members", Slabs(first=2, last=5), Patches((3, 6), number=2), Points(size=100)]
IDS = ["fields", "members", "slabs", "patches", "points"]
RARE = KINDS[2:4]


def of_kinds(*values):
    """A case for each kind of batches; those of parts of a grid run with the slow tests."""
    return [
        pytest.param(kind, *values, marks=pytest.mark.slow if kind in RARE else ())
        for kind in KINDS
    ]


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_threads_and_ring_change_no_byte(store, kind):
    settings = {"kind": kind, "members": True, "extras": ["location", "day_of_year"]}
    settings |= {"batch_size": 2, "seed": 3}
    want = copied(Batches(store, "t2m", INPUTS, threads=0, ring=1, **settings))
    for threads, ring in ((2, 1), (3, 5)):
        batches = Batches(store, "t2m", INPUTS, threads=threads, ring=ring, **settings)
        assert len(batches) == len(want)
        batches.set_epoch(1)
        assert copied(batches) != want
        batches.set_epoch(0)
        assert copied(batches) == want
    assert not readers()


@pytest.mark.parametrize(("kind", "threads"), [("fields", 0), *of_kinds(2)], ids=str)
def test_an_epoch_goes_on_where_it_was_left(store, kind, threads):
    def batches():
        made = Batches(store, "t2m", INPUTS, kind=kind, batch_size=2, seed=5, threads=threads)
        made.set_epoch(2)
        return made

    want, following = copied(batches()), batches()
    following.set_epoch(3)
    next_epoch = copied(following)
    for done in (1, len(want)) if threads else (0, 1, len(want) - 1, len(want)):
        first, seen = batches(), []
        for batch in first if done else ():
            seen += copied([batch])
            if len(seen) == done:
                break
        state = json.loads(json.dumps(first.state_dict()))
        assert state["batches"] == done
        second = Batches(store, "t2m", INPUTS, kind=kind, batch_size=2, seed=5, threads=threads)
        second.load_state_dict(state if done else {**state, "epoch": 2})
        assert second.state_dict()["batches"] == done
        assert seen + copied(second) == want
        second.set_epoch(3)
        assert copied(second) == next_epoch
    assert not readers()


def test_a_place_in_another_order_is_refused(store):
    batches = Batches(store, "t2m", ["t2m"], seed=1)
    iterator = iter(batches)
    next(iterator)
    iterator.close()
    state = batches.state_dict()
    for changed, named in (
        ({"seed": 2}, "seed 1, not seed 2"),
        ({"batch_size": 3, "seed": 1}, "batch_size 1, not batch_size 3"),
        ({"world": 2, "seed": 1}, "world 1, not world 2"),
        ({"split": "test", "seed": 1}, "dates 8, not dates 6"),
    ):
        other = Batches(store, "t2m", ["t2m"], **changed)
        with pytest.raises(ArgumentError, match=f"1 batches into an epoch with {named}"):
            other.load_state_dict(state)
        list(batches)
        other.load_state_dict(batches.state_dict())  # an epoch's end fits every order
        assert len(list(other)) == len(other)
    batches.load_state_dict(state)
    batches.set_epoch(4)  # another epoch than that of the place
    assert len(list(batches)) == len(batches)


@pytest.mark.parametrize("even", ["drop", "pad"])
def test_ranks_with_equal_numbers_of_batches(store, even):
    ranks = [
        Batches(store, "t2m", ["t2m"], rank=rank, world=5, even=even, threads=0)
        for rank in range(5)
    ]
    assert len(ranks[0].dates) == 8
    assert {len(batches) for batches in ranks} == {1 if even == "drop" else 2}
    parts = [whole(batches) for batches in ranks]
    dates = np.concatenate([part["dates"] for part in parts])
    counts = np.concatenate([part["weights"].any(axis=(1, 2)) for part in parts])
    held = ranks[0].dates.astype("datetime64[s]").astype(int).tolist()
    assert set(dates[counts]) <= set(held)
    assert len(set(dates[counts])) == counts.sum() == (5 if even == "drop" else 8)


def test_more_ranks_than_dates(store):
    with pytest.raises(ArgumentError, match="6 dates are too few for 7 processes"):
        Batches(store, "t2m", ["t2m"], "test", rank=0, world=7, even="drop")
    with pytest.raises(UnknownNameError, match="did you mean 'drop'"):
        Batches(store, "t2m", ["t2m"], world=2, even="dropp")
    padded = [Batches(store, "t2m", ["t2m"], "test", rank=r, world=7, even="pad") for r in range(7)]
    weights = [whole(batches)["weights"].sum() for batches in padded]
    assert [weight > 0 for weight in weights] == [True] * 6 + [False]


@pytest.mark.parametrize(
    ("kind", "cache"),
    [*of_kinds(0.5), ("fields", "1 GB"), ("members", 0), ("fields", "0.01MB")],
    ids=str,
)
def test_a_part_in_memory_changes_no_byte(store, kind, cache):
    settings = {"kind": kind, "batch_size": 2, "members": True}
    plain = Batches(store, "t2m", INPUTS, threads=0, **settings)
    kept = Batches(store, "t2m", INPUTS, threads=2, cache=cache, **settings)
    for epoch in range(3):  # the second is the first with fields in memory
        plain.set_epoch(epoch)
        kept.set_epoch(epoch)
        assert copied(kept) == copied(plain)
    if kind == "fields" and cache == 0.5:
        dates = len(kept.index)
        assert kept.content.hits == 2 * dates // 2  # two epochs after the first, half the dates
        assert kept.bytes_read == pytest.approx(plain.bytes_read * (1 + 0.5 + 0.5) / 3)
        assert kept.content.cached_bytes * 2 == pytest.approx(
            sum(v.nbytes for k, v in whole(kept).items() if k != "dates"), rel=0.02)  # fmt: skip


def test_layouts_as_in_a_configuration():
    given = {"class_path": "ens10.loader.Points", "init_args": {"size": 7, "features": "members"}}
    assert batch_layout(given) == Points(size=7, features="members")
    assert uses_members({"kind": given})
    assert not uses_members({})
    with pytest.raises(UnknownNameError, match="'Dots' is not known"):
        batch_layout({"class_path": "ens10.loader.Dots"})


def test_points_know_their_place(store):
    batches = Batches(store, "t2m", INPUTS, kind=Points(size=100), batch_size=2)
    for points in batches:
        latitude, longitude = batches.samples.latitude, batches.samples.longitude
        assert np.allclose(latitude[points["rows"]], points["latitude"])
        assert np.allclose(longitude[points["columns"]], points["longitude"])


def test_wrong_numbers(store):
    for wrong, message in (
        ({"cache": "2 gigs"}, "cache: '2 gigs' is not a size"),
        ({"cache": 1.5}, "cache: 1.5 is not a share"),
    ):
        with pytest.raises(ArgumentError, match=message):
            list(Batches(store, "t2m", ["t2m"], **wrong))
    for wrong, message in (
        ({"threads": -1}, "threads: -1 is less than 0"),
        ({"ring": 0}, "ring: 0 is less than 1"),
        ({"ensemble": 5}, "ensemble: needs 5 members, found 4"),
        ({"kind": "patchs"}, "did you mean 'patches'"),
        (
            {"kind": Points(features="member")},
            "features: 'member' is not known; did you mean 'members'",
        ),
        ({"kind": Points(size=0)}, "kind: 0 points"),
        ({"kind": Slabs(first=3, last=9)}, "kind: rows 3 to 9 are no slab of 8 rows"),
        ({"kind": Patches((9, 2))}, "kind: 1 patches of 9 x 2 points cannot be cut from 8 x 16"),
    ):
        with pytest.raises(ArgumentError, match=message):
            Batches(store, "t2m", ["t2m"], **wrong)


@pytest.mark.parametrize(
    ("damage", "threads"), [("missing", 2), ("cut", 1), ("flipped", 0), ("flipped", 2)]
)
def test_damage_comes_at_its_batch(small, tmp_path, threads, damage):
    shutil.copytree(small / "s.zarr", tmp_path / "s")
    batches = Batches(tmp_path / "s", "t2m", ["t2m"], "test", kind="members", threads=threads)
    chunk = tmp_path / "s" / "sfc" / "t2m" / "c" / str(batches.index[1]) / "2" / "0" / "0" / "0"
    content = chunk.read_bytes()
    if damage == "missing":
        chunk.unlink()
    else:
        flipped = content[:40] + bytes([content[40] ^ 4]) + content[41:]
        chunk.write_bytes(content[:-9] if damage == "cut" else flipped)
    seen = []
    with pytest.raises(FileError if damage == "missing" else DamagedFileError) as caught:
        seen.extend(batch["dates"][0] for batch in batches)
    assert str(chunk) in str(caught.value)
    assert seen == batches.dates[:1].astype("datetime64[s]").astype(int).tolist()
    assert not readers()


@pytest.mark.parametrize("kind", of_kinds(), ids=IDS)
def test_a_lazy_dataset_has_every_kind(tiny, store, kind):
    data, truth = lazy(tiny)
    settings = {"kind": kind, "members": True, "batch_size": 2, "threads": 2}
    stored = Batches(store, "t2m", INPUTS, "test", **settings)
    statistics = stored.normaliser
    lazily = Batches(data, "t2m", INPUTS, "test", truth=truth, normaliser=statistics, **settings)
    for want, got in zip(stored, lazily, strict=True):
        for key in want:
            np.testing.assert_array_equal(got[key], want[key], err_msg=key)
