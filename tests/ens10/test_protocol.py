"""Splits by the valid date."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.catalog import HINDCAST_YEARS, month_days
from ens10.errors import ArgumentError, OverlapError, UnknownNameError
from ens10.protocol import Protocol, protocol_of
from ens10.splits import split_dates

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


DAILY = np.arange("2001-01-01", "2003-01-01", dtype="datetime64[D]").astype("datetime64[ns]")


def days(dates, index):
    return [str(dates[index[n]])[:10] for n in (0, -1)] if index.size else []


def test_splits_by_periods():
    """Ends are included; dates whose truth comes after the first later start are dropped."""
    protocol = Protocol(
        train=["2001-01/2001-06-30", "2001-08-01/2001-12"],
        val="2002/2002-03",
        test="2002-04-01/2002",
    )
    splits, valid = split(protocol, DAILY), DAILY + AHEAD
    assert days(valid, splits.index["train"]) == ["2001-01-03", "2001-12-30"]
    assert days(valid, splits.index["val"]) == ["2002-01-01", "2002-03-30"]
    assert days(valid, splits.index["test"]) == ["2002-04-01", "2002-12-31"]
    assert [str(day)[:10] for day in valid[splits.gap]] == ["2001-12-31", "2002-03-31"]
    assert "2001-07-15" not in valid[splits.index["train"]].astype("datetime64[D]").astype(str)
    assert splits.years == {"train": [2001], "val": [2002], "test": [2002]}
    rest = split(Protocol(train=None, val="2002/2002-03", test="2002-04-01/2002"), DAILY)
    assert days(valid, rest.index["train"]) == ["2001-01-03", "2001-12-30"]
    by_hour = Protocol(train="2001/2001", val="test", test="2002-01-01T00/2002-01-01T00")
    assert days(valid, split(by_hour, DAILY).index["test"]) == ["2002-01-01"] * 2


def test_shares_of_several_lead_times_leak_nothing():
    """No lead time trains on truth after the first start of a later split at any other."""
    starts = np.concatenate([DAILY, DAILY])
    valid = starts + np.repeat([np.timedelta64(h, "h") for h in (24, 120)], DAILY.size)
    index = split_dates(Protocol(train=0.7, val=0.1, test=0.2), starts, valid).index
    assert valid[index["train"]].max() == starts[np.r_[index["val"], index["test"]]].min()
    assert valid[index["val"]].max() == starts[index["test"]].min()


@settings(max_examples=80, deadline=None)
@given(
    st.integers(20, 300), st.integers(1, 5), st.integers(0, 100),
    st.sampled_from([(0.7, 0.1, 0.2), (None, 0.15, 0.25), (0.5, 0, 0.3), (None, "test", 0.4)]),
)  # fmt: skip
def test_splits_by_shares_are_in_order_and_leak_nothing(count, every, hours, shares):
    starts = np.datetime64("2000-01-01", "h") + np.arange(count) * np.timedelta64(24 * every, "h")
    train, val, test = shares
    protocol, ahead = Protocol(train=train, val=val, test=test), np.timedelta64(hours, "h")
    try:
        splits = split_dates(protocol, starts, starts + ahead)
    except ArgumentError:
        assert isinstance(val, float)
        assert count * val <= 1 + hours / 24 / every  # nothing is known in time
        return
    index, valid = splits.index, starts + ahead
    assert abs(len(index["test"]) - test * count) <= 0.5
    assert index["test"][-1] == count - 1
    later = min(index["val"][0] if index["val"].size else count, index["test"][0])
    assert valid[index["train"]].max() <= starts[later]
    nothing = index["val"].size == 0 or val == "test"
    assert nothing or valid[index["val"]].max() <= starts[index["test"][0]]
    parts = {tuple(part) for part in index.values()}
    used = np.concatenate([*map(list, parts), splits.gap]).astype(int)
    assert len(set(used)) == len(used)
    if train is None:
        assert len(used) == count  # nothing but the gap is lost


@pytest.mark.parametrize(
    ("rules", "error", "message"),
    [
        ({"test": 0.2}, ArgumentError, r"given in shares \(0.2\), val is given in years \(1\)"),
        ({"test": 0.6, "val": 0.5}, ArgumentError, r"0.6 \+ 0.5 is more than all dates"),
        ({"test": "2002/2001", "val": 0}, ArgumentError, "ends before it begins"),
        ({"test": "2002-13/2003", "val": 0}, ArgumentError, "a date that does not exist"),
        ({"test": "2002", "val": 0}, ArgumentError, "'2002' is not a period such as"),
        ({"test": ["2002/2002", 2001], "val": 0}, ArgumentError, "'2001' is not a period"),
        ({"test": "2002/2002", "val": "2001-12-01/2002-01-02"}, OverlapError, "2002-01-02"),
        ({"test": "2001/2001", "val": 0, "train": "2002/2002"}, ArgumentError, "Order the splits"),
        ({"test": "2010/2011", "val": 0}, ArgumentError, r"test split lies in 2010/2011.*2001-01"),
        ({"test": 0.001, "val": 0.0001}, ArgumentError, "val split is left for a share of 0.0001"),
        ({"test": "2002/2002", "val": "2001-12-31/2001-12-31"}, ArgumentError, "known when the fi"),
    ],
)  # fmt: skip
def test_periods_and_shares_that_cannot_be(rules, error, message):
    with pytest.raises(error, match=message):
        split(Protocol(**rules), DAILY)
