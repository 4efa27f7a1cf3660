"""Splits by the valid date."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.catalog import HINDCAST_YEARS, month_days
from ens10.errors import ArgumentError, OverlapError, UnknownNameError
from ens10.protocol import Protocol, protocol_of, split_dates

STARTS = np.array(
    sorted(f"{year}-{md[:2]}-{md[2:]}" for year in HINDCAST_YEARS for md in month_days()),
    dtype="datetime64[ns]",
)
AHEAD = np.timedelta64(48, "h")


def split(protocol, starts=STARTS, ahead=AHEAD):
    return split_dates(protocol, starts, starts + ahead)


def year_of(times):
    return times.astype("datetime64[Y]").astype(int) + 1970


def test_clean_protocol_on_the_calendar_of_ens10():
    splits = split(protocol_of("clean"))
    assert splits.years == {"train": list(range(1998, 2015)), "val": [2015], "test": [2016, 2017]}
    valid = STARTS + AHEAD
    for name, index in splits.index.items():
        np.testing.assert_array_equal(
            index, [n for n, year in enumerate(year_of(valid)) if year in splits.years[name]]
        )
    assert [str(STARTS[n])[:10] for n in splits.outside] == ["2017-12-31"]
    carried = np.flatnonzero((year_of(valid) == 2015) & (year_of(STARTS) == 2014))
    assert carried.size == 1  # 31 December 2014 + 48 h is a validation date, not a training one
    assert set(carried) <= set(splits.index["val"])


def test_paper_protocol_on_the_calendar_of_ens10():
    splits = split(protocol_of("paper"))
    assert {name: len(index) for name, index in splits.index.items()} == {
        "train": 1889, "val": 210, "test": 210,
    }  # fmt: skip
    assert len(splits.outside) == 1
    np.testing.assert_array_equal(splits.index["val"], splits.index["test"])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(0, 4), st.integers(0, 4))
def test_counts_are_taken_from_the_end_or_refused(years, test, val):
    starts = np.array([f"{2000 + n}-06-01" for n in range(years)], dtype="datetime64[ns]")
    protocol = Protocol(test=test, val=val)
    held = list(range(2000, 2000 + years))
    if test + val >= years:
        with pytest.raises(ArgumentError, match="no years are left to train on"):
            split(protocol, starts)
        return
    left = years - test - val
    want = {"train": held[:left], "val": held[left : left + val], "test": held[left + val :]}
    splits = split(protocol, starts)
    assert splits.years == want
    assert [len(splits.index[name]) for name in want] == [left, val, test]


def test_explicit_years():
    protocol = Protocol(test=[1998], val=[2017], train=[2000, 2001])
    splits = split(protocol)
    assert splits.years == {"train": [2000, 2001], "val": [2017], "test": [1998]}
    assert len(splits.index["train"]) == 210
    together = np.concatenate([*splits.index.values(), splits.outside])
    np.testing.assert_array_equal(np.sort(together), np.arange(len(STARTS)))
    assert 2010 not in split(Protocol(test=[2010], val=[1999])).years["train"]


@pytest.mark.parametrize(
    ("protocol", "names"),
    [
        (Protocol(test=[2016], val=[2016, 2015]), ("val", "test")),
        (Protocol(test=[2016], val=[2015], train=[2014, 2015]), ("train", "val")),
        (Protocol(test=2, val=1, train=[2014, 2017]), ("train", "test")),
        (Protocol(test=2, val="test", train=[2017]), ("train", "val")),
    ],
)
def test_overlaps_are_refused(protocol, names):
    with pytest.raises(OverlapError, match="overlap in") as caught:
        split(protocol)
    assert all(repr(name) in str(caught.value) for name in names)


def test_selecting_on_the_test_split_must_be_asked_for():
    assert split(Protocol(test=[2016], val="test")).years["val"] == [2016]
    with pytest.raises(OverlapError):
        split(Protocol(test=[2016], val=[2016]))


def test_years_that_the_data_lack():
    with pytest.raises(ArgumentError, match=r"no valid date .* test years \[2030\].*1998 to 2018"):
        split(Protocol(test=[2030]))


@pytest.mark.parametrize(
    "wrong",
    [{"normalise_on": "trian"}, {"epsilon": "papr"}, {"weighting": "cells"}, {"val": "tset"}],
)
def test_unknown_choices_get_a_suggestion(wrong):
    with pytest.raises(UnknownNameError, match="did you mean"):
        Protocol(**wrong)


def test_wrong_protocols():
    with pytest.raises(ArgumentError, match="-1 years"):
        Protocol(test=-1)
    with pytest.raises(UnknownNameError, match="did you mean 'paper'"):
        protocol_of("papper")
    own = Protocol(name="mine")
    assert protocol_of(own) is own
    assert protocol_of("clean") is protocol_of("clean")
