"""Parts of a split grid: what each process reads equals the slice of the whole, and no more."""

import pickle
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from batchtools import lazy, whole

from ens10 import prepare
from ens10.errors import ArgumentError
from ens10.loader import Batches, Fields
from ens10.loader.order import GridPart, Share, full_share, share_of
from ens10.synthetic import World

INPUTS = ["t2m", "sst", "u10"]
ROWS, COLUMNS = (0, 4, 6, 9), (0, 6, 15)
GRID = (9, 15)


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A store of a grid with odd numbers of rows and columns, whose fields are packed."""
    folder = tmp_path_factory.mktemp("odd")
    World("9x15", range(2000, 2006), ["0104", "0702"], ["sst", "t2m", "u10"], members=3,
          steps=(48,)).write(folder / "w")  # fmt: skip
    prepare(folder / "w", folder / "s.zarr", truth=folder / "w" / "truth", codec="none")
    return folder


def shares(rows=ROWS, columns=COLUMNS, rank=0, world=1):
    """The shares of all processes of a rank."""
    return [
        Share(rank, world, slice(*own_rows), slice(*own_columns), (rows, columns))
        for own_rows in pairwise(rows)
        for own_columns in pairwise(columns)
    ]


@pytest.mark.parametrize("features", ["moments", "members"])
@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("columns", [COLUMNS, (0, 15)])
def test_parts_are_slices_of_the_whole_bit_for_bit(odd, features, threads, columns):
    settings = {"extras": ["location", "day_of_year"], "members": True, "batch_size": 3,
                "seed": 5}  # fmt: skip
    full = Batches(odd / "s.zarr", "t2m", INPUTS, kind=Fields(features=features), **settings)
    want = whole(full)
    for share in shares(columns=columns):
        part = Batches(full.samples, "t2m", INPUTS, kind=share.kind(full.kind), threads=threads,
                       **settings)  # fmt: skip
        got = whole(part)
        assert set(got) == set(want)
        for key, values in want.items():
            cut = values if key == "dates" else values[..., share.rows, share.columns]
            np.testing.assert_array_equal(got[key], cut, err_msg=key)
            assert got[key].dtype == cut.dtype


def test_parts_of_a_lazy_dataset_and_of_what_is_kept_in_memory(odd):
    forecasts, truth = (dataset.load() for dataset in lazy(odd))
    settings = {"inputs": INPUTS, "truth": truth, "threads": 0}
    want = whole(Batches(forecasts, "t2m", **settings))
    share = shares()[3]
    part = Batches(forecasts, "t2m", kind=share.kind(Fields()), cache=0.5, **settings)
    for batches in (part, part, pickle.loads(pickle.dumps(part))):
        got = whole(batches)
        for key in ("features", "target", "weights"):
            np.testing.assert_array_equal(got[key], want[key][..., share.rows, share.columns])
    assert part.content.hits == len(part) // 2


def test_a_date_that_is_there_to_make_ranks_equal_has_no_weight_in_its_parts(odd):
    share = shares()[1]
    counted = []
    for rank in range(3):
        part = Batches(odd / "s.zarr", "t2m", INPUTS, "test", kind=share.kind(Fields()), rank=rank,
                       world=3, even="pad", batch_size=9)  # fmt: skip
        counted += [bool(weights.any()) for weights in whole(part)["weights"]]
    assert sorted(counted) == [False] * (len(counted) - 4) + [True] * 4
    assert len(counted) == 6


@pytest.mark.parametrize("features", ["moments", "members"])
def test_a_part_reads_the_bytes_of_its_rows(odd, features):
    samples = Batches(odd / "s.zarr", "t2m", INPUTS).samples
    kind = Fields(features=features)

    def read(kind):
        batches = Batches(samples, "t2m", INPUTS, "test", kind=kind)
        list(batches)
        return batches.bytes_read

    full = read(kind)
    # packed members have a header of 256 bytes for each input and date
    headers = 4 * 3 * 256 if features == "members" else 0
    for share, rows in zip(shares(columns=(0, 15)), (4, 2, 3), strict=True):
        assert (read(share.kind(kind)) - headers) * 9 == (full - headers) * rows
    assert read(shares()[3].kind(kind)) == read(shares(columns=(0, 15))[1].kind(kind))


def test_the_whole_of_a_part(odd):
    share = shares()[2]
    settings = {"members": True, "batch_size": 2}
    full = Batches(odd / "s.zarr", "t2m", INPUTS, kind="members", **settings)
    part = Batches(odd / "s.zarr", "t2m", INPUTS, kind=share.kind(full.kind), cache=1.0, **settings)
    next(iter(part))
    before = part.state_dict(), part.bytes_read
    got, want = part.full_fields().batch(part.index[:3]), full.batch(full.index[:3])
    for key, values in want.items():
        np.testing.assert_array_equal(got[key], values, err_msg=key)
    whole(part.full_fields())
    assert (part.state_dict(), part.bytes_read) == before
    assert part.batch(part.index[:1])["target"].shape == (1, 2, 6)
    assert full.full_fields() is full


def test_a_run_of_one_process_goes_on_in_parts_with_the_same_dates(odd):
    settings = {"batch_size": 2, "seed": 3, "even": "drop", "threads": 1}
    alone = Batches(odd / "s.zarr", "t2m", INPUTS, **settings)
    alone.set_epoch(4)
    running = iter(alone)
    for _ in range(2):
        next(running)
    state, rest = alone.state_dict(), [batch["dates"].tolist() for batch in running]
    assert rest
    for share in shares():
        part = Batches(odd / "s.zarr", "t2m", INPUTS, kind=share.kind(Fields()), rank=share.rank,
                       world=share.world, **settings)  # fmt: skip
        part.load_state_dict(state)
        assert [batch["dates"].tolist() for batch in part] == rest
    part.load_state_dict(part.state_dict() | {"batches": 1})
    with pytest.raises(ArgumentError, match="world 1, not world 2"):
        Batches(odd / "s.zarr", "t2m", INPUTS, world=2, **settings).load_state_dict(state)


def test_what_a_strategy_says_is_the_share(odd):
    given = shares()[1]
    asked = []

    def share(grid):
        asked.append(grid)
        return given

    splits = SimpleNamespace(global_rank=5, world_size=12, strategy=SimpleNamespace(share=share))
    assert share_of(splits, GRID) is given
    assert asked == [GRID]
    other = SimpleNamespace(global_rank=5, world_size=12, strategy=SimpleNamespace())
    assert share_of(other, GRID) == full_share(GRID, 5, 12)
    assert share_of(None, GRID) == full_share(GRID, 0, 1)
    assert full_share(GRID).is_full_grid
    assert not given.is_full_grid
    assert [s.first for s in shares()] == [True, False, False, False, False, False]
    assert len({*shares(), *shares(), *shares(rank=1, world=2)}) == 12


@pytest.mark.parametrize(
    ("rows", "columns", "chunks"),
    [
        ((0, 180, 361), (0, 720), (180, 720)),
        ((0, 96, 192, 280, 361), (0, 360, 720), (8, 360)),
        ((0, 9), (0, 15), (9, 15)),
        (ROWS, COLUMNS, (2, 6)),
    ],
)
def test_no_chunk_lies_in_two_parts(rows, columns, chunks):
    share = shares(rows, columns)[0]
    assert share.chunks == chunks
    assert share.grid == (rows[-1], columns[-1])
    assert share.parts == (len(rows) - 1) * (len(columns) - 1)
    assert all(bound % chunks[0] == 0 for bound in rows[:-1])


def test_what_cannot_be_is_refused(store):
    with pytest.raises(ArgumentError, match=r"rows: slice\(0, 5, None\) is not a part"):
        Share(0, 1, slice(0, 5), slice(0, 15), (ROWS, (0, 15)))
    with pytest.raises(ArgumentError, match="columns"):
        Share(0, 1, slice(0, 4), slice(0, 6), (ROWS, (0, 15)))
    with pytest.raises(ArgumentError, match=r"grid of \(8, 16\).*but \(9, 15\) was split"):
        Batches(store, "t2m", ["t2m"], kind=GridPart(shares()[0]))
