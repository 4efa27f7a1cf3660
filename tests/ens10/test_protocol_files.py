"""Protocols as data: the two of the package in full, and files of one's own."""

import re
import shutil

import numpy as np
import pytest
import yaml

from ens10.climate import years_of
from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.loader import Batches
from ens10.protocol import (
    _FOLDER,
    EfiRules,
    Protocol,
    content_of,
    names_of,
    protocol_names,
    protocol_of,
    reference_of,
)
from ens10.quantiles import (
    ClimateOptions,
    model_climate,
    parse_climate,
    stored_climate,
    write_climate,
)
from ens10.splits import split_dates
from ens10.store import open_store
from ens10.store.manifest import read_manifest


@pytest.fixture
def mine(tmp_path):
    """Writes a protocol, and gives its path."""

    def write(text, name="mine.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def test_the_package_has_two():
    assert protocol_names() == ("clean", "paper")


@pytest.mark.parametrize("name", ["clean", "paper"])
def test_files_of_the_package_say_everything(name):
    content = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text())
    assert tuple(sorted(content)) == tuple(sorted(names_of(Protocol)))
    assert tuple(sorted(content["efi"])) == tuple(sorted(names_of(EfiRules)))
    assert content_of(protocol_of(name)) == content


def test_what_is_left_out_is_that_of_clean():
    assert Protocol(name="clean") == protocol_of("clean")


def test_the_traps_of_the_paper_are_marked_and_no_others():
    """Each line marked as a trap differs from `clean`, and what is not marked does no harm."""
    text = (_FOLDER / "paper.yaml").read_text()
    marked = set(re.findall(r"^ *(\w+):.*# TRAP", text, re.M))
    paper, clean = (content_of(protocol_of(name)) for name in ("paper", "clean"))
    flat = [{**c.pop("efi"), **c} for c in (paper, clean)]
    differing = {key for key in flat[0] if flat[0][key] != flat[1][key]}
    assert marked <= differing
    # with the method go its levels; 2 of 105 dates have a window that is cut; fair is a column
    assert differing - marked == {"name", "levels", "round", "fair_crps"}


def test_a_file_of_ones_own(mine):
    path = mine("test: [2016]\nval: [2015]\nefi: {window: 5}\n")
    made = protocol_of(path)
    assert made == Protocol("mine", [2016], [2015], efi=EfiRules(window=5))
    assert protocol_of(content_of(made)) == made
    assert protocol_of("{name: mine, test: [2016], val: [2015], efi: {window: 5}}") == made
    assert reference_of(path) == content_of(made)
    assert reference_of("paper") == reference_of(protocol_of("paper")) == "paper"
    assert protocol_of(mine("", "empty.yml")) == Protocol("empty")
    copied = mine((_FOLDER / "clean.yaml").read_text(), "copied.yaml")
    assert reference_of(copied) == "clean"


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("tset: 1", UnknownNameError, r"field of .*mine.yaml: 'tset' .*did you mean 'test'"),
        ("efi: {years: 19, windw: 5}", UnknownNameError, "efi of .*did you mean 'window'"),
        ("weighting: cells", UnknownNameError, r"weighting of .*mine.yaml: .* mean 'cell'"),
        ("split_by: date", UnknownNameError, "Known: valid, start"),
        ("efi: {method: ens10}", UnknownNameError, "efi.method of .*'ens10-paper'"),
        ("efi: {method: ens10-paper}", ArgumentError, "101, but .* is one of 21 levels"),
        ("efi: {years: trian}", UnknownNameError, "did you mean 'train'"),
        ("efi: {years: 0}", ArgumentError, r"mine.yaml: efi.years: 0 is too few\. Use 1"),
        ("efi: {window: 4}", ArgumentError, "4 dates have no middle"),
        ("efi: {round: 1}", ArgumentError, "1 is not true or false"),
        ("efi: 21", ArgumentError, "efi: 21 is not a mapping"),
        ("test: -1", ArgumentError, "mine.yaml: test: -1 years are not possible"),
        ("test: 2.5", ArgumentError, "2.5 is not a whole number of years, nor a share"),
        ("test: [2016, 2016]", ArgumentError, "test: 2016 occurs twice"),
        ("test: ['2016']", ArgumentError, "'2016' is not a period such as 1998-01-01/"),
        ("val: tset", UnknownNameError, "did you mean 'test'"),
        ("train: 5", ArgumentError, "train: 5 is not a list of years, periods or a share"),
        ("masks: maybe", ArgumentError, "masks: 'maybe' is not true or false"),
        ("members: 5", ArgumentError, "members: 5 is not a list"),
        ("members: []", ArgumentError, "members: 0 is too few"),
        ("members: [1]", ArgumentError, r"members: 1 is too few\. Use 2"),
        ("name: a/b", ArgumentError, "name: 'a/b'. Use letters"),
        ("name: paper", FileError, "'paper' is another protocol"),
        ("[2016]", FileError, "not a mapping of fields"),
        ("test: [2016", FileError, "not valid YAML"),
    ],
)
def test_a_wrong_file_is_told_with_field_and_remedy(mine, text, error, told):
    with pytest.raises(error, match=told):
        protocol_of(mine(text))


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileError, match=r"no such file.*one of clean, paper"):
        protocol_of(str(tmp_path / "none.yaml"))
    with pytest.raises(UnknownNameError, match="Known: clean, paper, the path of a YAML file"):
        protocol_of("papr.yam")


def test_splits_by_start():
    """31 December 2001 is valid in 2002: a training date if dates are split by their start."""
    starts = np.array(["2001-06-01", "2001-12-31", "2002-06-01", "2003-06-01"], "datetime64[ns]")
    valid = starts + np.timedelta64(48, "h")
    rules = {"test": [2003], "val": [2002], "train": [2001]}
    assert split_dates(protocol_of(rules), starts, valid).index["train"].tolist() == [0]
    by_start = split_dates(protocol_of({**rules, "split_by": "start"}), starts, valid)
    assert by_start.index["train"].tolist() == [0, 1]
    assert by_start.index["val"].tolist() == [2]


def test_splits_by_start_change_neither_statistics_nor_masks(store):
    valid, start = (
        Batches(store, "t2m", ["t2m", "sst"], protocol=Protocol(split_by=by))
        for by in ("valid", "start")
    )
    assert valid.normaliser.channels == start.normaliser.channels
    np.testing.assert_array_equal(valid.normaliser.mean, start.normaliser.mean)


def test_statistics_of_splits_that_cut_a_year_are_those_of_the_training_dates(store):
    """Sums of whole blocks, and other dates one by one, equal plain means over the dates."""
    valid = open_store(store, "truth")["valid_time"].sel(step=48).to_numpy()
    first, last = (str(valid[n])[:10] for n in (0, -1))
    middle = str(valid[len(valid) * 3 // 4])[:10]
    before = str(np.datetime64(middle) - 1)
    rules = {"train": f"{first}/{before}", "val": 0, "test": f"{middle}/{last}"}
    batches = Batches(store, "t2m", ["t2m", "sst"], protocol=Protocol(**rules))
    train = batches.splits.index["train"]
    years = years_of(valid)
    assert np.isin(years[train], years[batches.splits.index["test"]]).any()  # a year is cut
    assert not np.isin(years[train], years[batches.splits.index["test"]]).all()
    moments = open_store(store, "statistics").sel(step=48, channel=["t2m", "sst"])
    moments = moments.isel(time=train).compute()
    for n, name in enumerate(("ensemble_mean", "ensemble_std")):
        want = moments[name].astype(float).mean("time").fillna(0).to_numpy()
        np.testing.assert_allclose(batches.normaliser.mean[2 * n : 2 * n + 2], want, rtol=1e-6)
    everything = Batches(store, "t2m", ["t2m"], protocol=Protocol(**rules, normalise_on="all"))
    dates = np.concatenate(list(everything.splits.index.values()))
    want = open_store(store, "statistics")["ensemble_mean"].sel(step=48, channel="t2m")
    want = want.isel(time=np.sort(dates)).astype(float).mean("time").to_numpy()
    np.testing.assert_allclose(everything.normaliser.mean[0], want, rtol=1e-6)


def test_a_file_reaches_batches_and_climate(mine, store):
    own = mine("unbiased: false\nweighting: none\nefi: {levels: 11, window: 3, years: 3}\n")
    batch = next(iter(Batches(store, "t2m", ["t2m"], "test", protocol=own)))
    clean = next(iter(Batches(store, "t2m", ["t2m"], "test")))
    ratio = batch["raw_std"][clean["raw_std"] > 0] / clean["raw_std"][clean["raw_std"] > 0]
    np.testing.assert_allclose(ratio, ratio.flat[0], rtol=1e-5)
    assert ratio.flat[0] < 1
    assert np.ptp(batch["weights"]) == 0 < np.ptp(clean["weights"])
    dates = Batches(store, "t2m", ["t2m"], "test").samples.time[-1:]
    climate = model_climate(store, "t2m", step=48, dates=dates, protocol=own)
    assert climate.sizes["quantile"] == 11
    assert (climate.attrs["protocol"], climate.attrs["window"]) == ("mine", 3)
    options = parse_climate(["t2m@48"], protocol=own)
    assert (options.protocol, options.window) == (protocol_of(own), 3)
    assert parse_climate(["t2m@48"], protocol="paper").protocol == "paper"


def test_climate_years_are_those_of_the_protocol(store):
    """The year judged is in a climate of years that roll, and in none of training years."""
    about = Batches(store, "t2m", ["t2m"], "test").samples
    date = about.time[-2:-1]  # the last one is valid in the year after the data
    year = int(years_of(about.valid_time[-2:-1])[0])
    counts = {
        years: int(
            model_climate(
                store, "t2m", step=48, dates=date,
                protocol=Protocol(test=[year], val=0, efi=EfiRules(years=years, window=99)),
            )["members"][0]
        )
        for years in (1, 2, "train")
    }  # fmt: skip
    assert 0 < counts[1] < counts[2] < counts["train"]


def test_a_climate_of_ones_own_is_kept_with_its_rules(mine, store, tmp_path):
    own, copied = mine("efi: {levels: 3, window: 3, years: 2}\n"), tmp_path / "store.zarr"
    shutil.copytree(store, copied)
    write_climate(copied, parse_climate(["t2m@48"], protocol=own))
    held = open_store(copied, "climate")
    assert (held.attrs["protocol"], held.attrs["window"]) == ("mine", 3)
    assert protocol_of(held.attrs["rules"]) == protocol_of(own)
    options = read_manifest(copied).plan["options"]["climate"]  # as `verify --repair` makes it anew
    given = {key: tuple(v) if isinstance(v, list) else v for key, v in options.items()}
    assert protocol_of(ClimateOptions(**given).protocol) == protocol_of(own)
    dates = Batches(copied, "t2m", ["t2m"], "test").samples.time[-3:-1]
    want = model_climate(copied, "t2m", step=48, dates=dates, protocol=own)
    got = stored_climate(copied, "t2m", dates, step=48)
    np.testing.assert_array_equal(got.to_numpy(), want.to_numpy())
