"""Halos come from where they should, go back there, and cost the messages that they should."""

from functools import partial
from itertools import pairwise
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from ranks import assert_as_serial, own, shard

from ens10.errors import ArgumentError
from ens10.models.domain import Edges, Sides, Whole, parts_of
from ens10.models.layers import SameConv2d
from ens10.models.parallel import ProcessGroupExchange
from ens10.models.parallel.exchange import Messages, UnsplitLink
from ens10.models.parallel.halo import Frame

MESHES = [(1, 2), (2, 1), (1, 3), (3, 1), (2, 2), (4, 1), (1, 4)]
EDGES = [
    Edges(rows, columns)
    for rows in ("zeros", "replicate")
    for columns in ("zeros", "replicate", "circular")
]
mesh = pytest.mark.parametrize(("lat", "lon"), MESHES, ids=lambda n: str(n))


def cases(lat, lon, count=24):
    """Grids, sides and edges at random; parts are as uneven as they come."""
    g = torch.Generator().manual_seed(10 * lat + lon)

    def whole(low, high):
        return int(torch.randint(low, high + 1, (1,), generator=g))

    found = []
    for n in range(count):
        grid = whole(2 * lat, 5 * lat), whole(2 * lon, 5 * lon)
        least = []
        for total, parts in zip(grid, (lat, lon), strict=True):
            least.append(min(b - a for a, b in pairwise(parts_of(total, parts))))
        top, bottom, left, right = (whole(0, min(3, least[i // 2])) for i in range(4))
        found.append((n, grid, Sides(top, bottom, left, right), EDGES[n % len(EDGES)]))
    return found


def fields_of(seed, *shape):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def gathered(lat, lon):
    """Fields with their halo and the whole padded ones at the same place, for each case."""
    found = []
    for seed, grid, sides, edges in cases(lat, lon):
        domain = shard(grid, lat, lon)
        whole = fields_of(seed, 2, 3, *grid)
        frame = Frame(domain.exchange, sides, edges)
        mine = own(domain, whole)
        around = frame.add_halo(mine, frame.gather(mine))
        rows, columns = domain.local_slices
        top, bottom, left, right = sides
        expected = Whole().pad(whole, sides, edges)
        expected = expected[
            ..., rows.start : rows.stop + top + bottom, columns.start : columns.stop + left + right
        ]
        found.append(torch.equal(around, expected))
    return found


@mesh
def test_halos_are_those_of_the_whole_grid(ranks, lat, lon):
    for found in ranks(lat * lon, gathered, lat, lon):
        assert all(found), list(zip(found, cases(lat, lon), strict=True))


def products(lat, lon):
    """<gather(x), y> and <x, scatter(y)> over all parts, for each case; of rows alone too."""
    found = []
    for seed, grid, sides, edges in cases(lat, lon):
        domain = shard(grid, lat, lon)
        frame = Frame(domain.exchange, sides, edges)
        x = fields_of(
            1000 * seed + dist.get_rank(), 2, 3, *(s.stop - s.start for s in domain.local_slices)
        )
        around = frame.add_halo(x, frame.gather(x))
        y = fields_of(7000 * seed + dist.get_rank(), *around.shape)
        first = (around * y).sum()
        second = (x * frame.scatter(y.clone())).sum()
        strips = frame.gather_rows(x)
        weights = [y[..., :n, : x.shape[-1]].contiguous() if n else None for n in sides[:2]]
        third = sum((s * w).sum() for s, w in zip(strips, weights, strict=True) if s is not None)
        given = torch.zeros_like(x)
        frame.scatter_rows(given, tuple(weights))
        fourth = (x * given).sum()
        pairs = torch.stack([first, second, torch.as_tensor(third), fourth])
        found.append(domain.exchange.total(pairs).tolist())
    return found


@mesh
def test_giving_back_is_the_adjoint_of_gathering(ranks, lat, lon):
    for found in ranks(lat * lon, products, lat, lon):
        for one, case in zip(found, cases(lat, lon), strict=True):
            assert one[0] == pytest.approx(one[1], rel=1e-12, abs=1e-12), case
            assert one[2] == pytest.approx(one[3], rel=1e-12, abs=1e-12), case


def swapped(around, apart):
    rank = float(dist.get_rank())
    links = ProcessGroupExchange(dist.group.WORLD, 1, dist.get_world_size()).links
    north, south = torch.tensor([rank, 1.0]), torch.tensor([rank, 2.0, 3.0])
    with patch.object(
        Messages, "_all_to_all", Messages._point_to_point if apart else Messages._all_to_all
    ):
        strips = links[1].swap(north, south, around)
    return [None if s is None else s.tolist() for s in strips]


@pytest.mark.parametrize("apart", [False, True], ids=["together", "apart"])
def test_both_neighbours_of_two_parts_around_are_the_other_one(ranks, apart):
    assert ranks(2, swapped, True, apart) == [[[1, 2, 3], [1, 1]], [[0, 2, 3], [0, 1]]]
    assert ranks(2, swapped, False, apart) == [[None, [1, 1]], [[0, 2, 3], None]]
    assert ranks(3, swapped, True, apart)[0] == [[2, 2, 3], [1, 1]]


def test_a_part_alone_is_its_own_neighbour_around():
    before, after = torch.ones(1), torch.zeros(2)
    assert UnsplitLink().ends(True) == (False, False)
    assert UnsplitLink().ends(False) == (True, True)
    assert UnsplitLink().swap(before, after, True) == (after, before)
    assert UnsplitLink().swap(before, after, False) == (None, None)


def counted():
    domain = shard((9, 4), 3)
    exchange = domain.exchange
    frame = Frame(exchange, Sides(2, 1, 1, 1), Edges("zeros", "circular"))
    frame.gather(torch.zeros(2, 3, 3, 4))
    one = exchange.traffic.messages, exchange.traffic.bytes
    frame.scatter(torch.zeros(2, 3, 6, 6))
    two = exchange.traffic.messages, exchange.traffic.bytes
    before = torch.arange(6.0).view(2, 3).T
    total = exchange.total(before)
    assert total is not before
    assert torch.equal(total, 3 * before)
    return *one, *two, exchange.traffic.sums, exchange.traffic.summed_bytes


def test_messages_and_bytes_are_counted(ranks):
    row = 2 * 3 * 4 * 8
    north, middle, south = ranks(3, counted)
    # two rows go south and one goes north, and their gradients the other way
    assert north == (1, 2 * row, 2, 3 * row, 1, 48)
    assert middle == (2, 3 * row, 4, 6 * row, 1, 48)
    assert south == (1, 1 * row, 2, 3 * row, 1, 48)


def too_wide(method, wanted):
    """The message; and that the processes are still in step."""
    domain = shard((7, 8), 3)  # 3, 3 and 1 rows
    fields = torch.zeros(1, 1, domain.local_slices[0].stop - domain.local_slices[0].start, 8)
    try:
        if method == "pad":
            domain.pad(fields, Sides(top=wanted), Edges())
        else:
            domain.convolve(fields, torch.zeros(1, 1, 5, 5), None, wanted, Edges())
    except ArgumentError as error:
        message = str(error)
    else:
        message = "none"
    return message, float(domain.exchange.total(torch.ones(())))


@pytest.mark.parametrize("method", ["pad", "convolve"])
def test_a_halo_wider_than_the_smallest_part_is_refused_by_all(ranks, method):
    found = ranks(3, too_wide, method, 2)
    assert len(set(found)) == 1
    message, count = found[0]
    assert "a process has only 1" in message
    assert count == 3
    if method == "pad":
        assert ranks(3, too_wide, method, 1) == [("none", 3.0)] * 3


def formats():
    domain = shard((8, 8), 2)
    frame = Frame(domain.exchange, Sides(1, 1, 2, 2), Edges("replicate", "circular"))
    plain = own(domain, fields_of(0, 2, 3, 8, 8))
    last = plain.contiguous(memory_format=torch.channels_last)
    one, two = (frame.add_halo(f, frame.gather(f)) for f in (plain, last))
    return torch.equal(one, two), two.is_contiguous(memory_format=torch.channels_last)


def test_the_order_of_memory_is_kept(ranks):
    assert ranks(2, formats) == [(True, True)] * 2


def seeded(make, *args, **options):
    torch.manual_seed(0)
    return make(*args, **options)


@pytest.mark.parametrize("poles", ["zeros", "replicate"])
@pytest.mark.parametrize(("size", "dilation"), [(7, 1), (5, 2)])
def test_filters_that_reach_as_far_as_a_part(ranks, poles, size, dilation):
    make = partial(seeded, SameConv2d, 2, 3, size, dilation=dilation, poles=poles)
    assert_as_serial(ranks, make, (16, 12), 4, shape=(1, 2))
