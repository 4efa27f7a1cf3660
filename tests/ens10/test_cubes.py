import pickle
from itertools import product

import numpy as np
import pytest
from gribfiles import GRID, cube, values_of
from packedmessages import SHAPE, message, scanned

from ens10.errors import ArgumentError, DataNote, FileError, MissingDataError, UnknownNameError
from ens10.grib import Message, decode, pack, scan, to_float32
from ens10.selection import Selection
from ens10.source.gribs import GribFields

FIELD = np.arange(40.0).reshape(SHAPE) + 250
NAMES = (("t2m", 0), ("z", 500), ("z", 850), ("t", 850))
LOCAL = {"setLocalDefinition": 1, "localDefinitionNumber": 1, "type": "pf", "stream": "enfo"}


def values(m):
    with m.path.open("rb") as file:
        return to_float32(pack(m, file))


def numbered(number, edition=1, field=FIELD, **keys):
    """A message of a member."""
    local = {**LOCAL, "perturbationNumber": number} if edition == 1 else {}
    if edition == 2:
        local = {"productDefinitionTemplateNumber": 1, "perturbationNumber": number}
    return message(field + number, edition, {**local, **keys})


@pytest.fixture
def files(tmp_path):
    """A function that writes one file for each list of messages."""

    def written(*lists):
        paths = [tmp_path / f"{n}.grib" for n in range(len(lists))]
        for path, raws in zip(paths, lists, strict=True):
            path.write_bytes(b"".join(raws))
        return paths

    return written


def test_every_field_is_found_whatever_the_order(write):
    fields = cube(NAMES)
    order = np.random.default_rng(3).permutation(len(fields))
    paths = [write([fields[n] for n in order[part::3]], f"{part}.grib") for part in range(3)]
    found = GribFields(paths)
    assert found.variables == ["t", "t2m", "z"]
    assert found.levels == {"t": [850.0], "t2m": [], "z": [500.0, 850.0]}
    assert [str(time)[:10] for time in found.times] == ["2016-01-01", "2016-01-05", "2016-01-08"]
    assert (found.steps, found.numbers, found.grid) == ([24, 48], [1, 2, 3], GRID)
    for name, t, s in product(found.variables, range(3), range(2)):
        for n, level in enumerate(found.levels[name] or [0]):
            for number, ((m, factor, offset),) in enumerate(found.messages(name, t, s, n), 1):
                assert (factor, offset) == (1, 0)
                day = int(str(found.times[t])[:10].replace("-", ""))
                want = values_of((name, int(level), day, found.steps[s], number))
                assert (m.number, m.meaning.step, m.meaning.name) == (number, found.steps[s], name)
                np.testing.assert_allclose(values(m), want, atol=1e-3)


def test_a_unit_of_work_is_small_and_travels_alone(write):
    found = GribFields([write(cube(NAMES))])
    unit = [m for name in found.variables for ((m, *_),) in found.messages(name, 0, 1)]
    data = pickle.dumps(unit)
    assert len(data) < 300 * len(unit)
    assert pickle.loads(data) == unit
    assert all(isinstance(m, Message) for m in unit)


def test_attributes_and_unknown_variables(write):
    found = GribFields([write(cube(NAMES))])
    assert found.attributes("z")["levels_hpa"] == [500, 850]
    assert found.attributes("t2m")["units"] == "K"
    assert found.dataset()["z"].attrs == found.attributes("z")
    for use in (found.attributes, lambda name: found.messages(name, 0, 0)):
        with pytest.raises(UnknownNameError, match="did you mean 't2m'"):
            use("t2n")


def test_a_variable_outside_the_catalogue_keeps_its_number(files):
    found = GribFields(files([numbered(n, paramId=3) for n in (1, 2)]))
    (name,) = found.levels
    assert found.attributes(name)["paramId"] == 3
    assert "paramId" not in GribFields(files([numbered(1)])).attributes("t2m")


SELECTIONS = {
    "variables": (Selection.of(variables=["2t", "z"]), lambda f: f[0] in ("t2m", "z")),
    "levels": (Selection.of(levels=[850]), lambda f: f[1] in (0, 850)),
    "steps": (Selection.of(steps=[48]), lambda f: f[3] == 48),
    "numbers": (Selection.of(members=range(1, 3)), lambda f: f[4] < 3),
    "day": (Selection.of(dates=["2016-01-05"]), lambda f: f[2] == 20160105),
    "hour": (Selection.of(dates=[np.datetime64("2016-01-08T00")]), lambda f: f[2] == 20160108),
    "month": (Selection.of(dates=["2016-01"]), lambda f: True),
    "all": (
        Selection.of(["t"], [850], [24], [2], ["2016-01-01"]),
        lambda f: f == ("t", 850, 20160101, 24, 2),
    ),
}


@pytest.mark.parametrize("which", SELECTIONS)
def test_a_selection_is_what_a_smaller_file_would_hold(write, which):
    selection, asked = SELECTIONS[which]
    some = GribFields([write(cube(NAMES))], selection=selection).dataset()
    fields = [field for field in cube(NAMES) if asked(field)]
    want = GribFields([write(fields, "b.grib")]).dataset()
    assert some.compute(scheduler="synchronous").identical(want.compute(scheduler="synchronous"))


UNKNOWN = {
    "variables": (
        Selection.of(variables=["tm2"]),
        "variables: 'tm2' .*did you mean 't2m'.*t, t2m, z",
    ),
    "levels": (Selection.of(["z"], levels=[700]), r"levels: 700.* Known: 500, 850\."),
    "levels of": (Selection.of(["t"], levels=[500]), r"levels: 500.* Known: 850\."),
    "steps": (Selection.of(steps=[24, 72]), r"steps: 72 .*Known: 24, 48\."),
    "numbers": (Selection.of(members=[0]), r"members: 0 .*Known: 1, 2, 3\."),
    "dates": (
        Selection.of(dates=["2016-01-02"]),
        "dates: '2016-01-02' .*Known: 2016-01-01, ",
    ),
}


@pytest.mark.parametrize("which", UNKNOWN)
def test_what_no_file_holds_is_refused_with_what_they_hold(write, which):
    selection, words = UNKNOWN[which]
    with pytest.raises(UnknownNameError, match=words):
        GribFields([write(cube(NAMES))], selection=selection)


EMPTY = {
    "no date": ({"dates": ["monday"]}, ArgumentError, "dates: 'monday' is not a date"),
    "no level": (
        {"levels": [500]}, ArgumentError, "levels: no selected variable lies on pressure",
    ),
    "no step": ({"steps": []}, ArgumentError, "steps: nothing is selected"),
    "a step of another date": (
        {"steps": [48], "dates": ["2016-01-01"]},
        MissingDataError, "2016-01-01T00 step 48 h: all members",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", EMPTY)
def test_selections_of_nothing(write, which):
    asked, error, words = EMPTY[which]
    path = write([("t2m", 0, 20160101, 24, 1), ("t2m", 0, 20160105, 48, 1)])
    with pytest.raises(error, match=words):
        GribFields([path], selection=Selection.of(**asked))


def test_no_files():
    with pytest.raises(ArgumentError, match="files: none are given"):
        GribFields([])


def test_what_was_not_asked_for_is_no_gap(write):
    fields = [f for f in cube(NAMES) if f != ("z", 850, 20160105, 24, 3)]
    path = write(fields)
    with pytest.raises(MissingDataError, match="2016-01-05T00 step 24 h number 3: z 850 hPa"):
        GribFields([path])
    for selection in (
        Selection.of(variables=["t2m", "t"]),
        Selection.of(levels=[500], variables=["z", "t2m"]),
        Selection.of(steps=[48]),
        Selection.of(members=[1, 2]),
        Selection.of(dates=["2016-01-01", "2016-01-08"]),
    ):
        GribFields([path], selection=selection)
    holed = GribFields([path], "nan").messages("z", 1, 0, 1)
    assert [m is None for m in holed] == [False, False, True]
    skipped = GribFields([path], "skip")
    assert [str(time)[:10] for time in skipped.skipped_times] == ["2016-01-05"]
    assert len(skipped.times) == 2


@pytest.mark.parametrize(("other", "words"), [(1.0, "different values"), (0.0, "the same values")])
def test_a_field_given_twice(files, other, words):
    paths = files([numbered(1), numbered(2)], [numbered(2, field=FIELD + other)])
    with pytest.raises(
        FileError,
        match=rf"1\.grib: the message at byte 0 holds t2m of .*number 2 a second time, after "
        rf".*0\.grib at byte {len(numbered(1))}, with {words}\. Remove one",
    ):
        GribFields(paths)


def test_a_control_and_another_run_for_the_same_member(files):
    control = numbered(0, type="cf")
    high = message(FIELD + 5, 1, {**LOCAL, "type": "fc", "stream": "oper"})
    with pytest.raises(FileError, match="with the same values, dataType cf and pf"):
        GribFields(files([control, numbered(0), numbered(1)]))
    with pytest.warns(DataNote, match="are left out: 1 x deterministic field of t2m"):
        found = GribFields(files([control, numbered(1), high, numbered(2)]))
    assert found.numbers == [0, 1, 2]
    types = [part.message.meaning.data_type for (part,) in found.messages("t2m", 0, 0)]
    assert types == ["cf", "pf", "pf"]


def test_a_hindcast_of_two_model_versions(files):
    keys = {"localDefinitionNumber": 30, "stream": "enfh", "type": "pf", "setLocalDefinition": 1}
    made = [
        message(FIELD, 1, {**keys, "referenceDate": day, "perturbationNumber": 1})
        for day in (20180104, 20190104)
    ]
    with pytest.raises(FileError, match="the same values, model version 20180104 and 20190104"):
        GribFields(files(made))


def test_members_scanned_and_packed_in_their_own_way_are_placed_alike(files):
    def rolled(number, first):
        keys = {"longitudeOfFirstGridPointInDegrees": first}
        last = {"longitudeOfLastGridPointInDegrees": first + 315}
        columns = np.roll(FIELD, -round(first / 45), axis=1)
        return numbered(number, field=columns, **keys, **last)

    raws = [
        numbered(1),
        numbered(2, field=FIELD[::-1], **scanned(64)),
        rolled(3, -180),
        numbered(4, field=FIELD[::-1, ::-1], **scanned(192)),
        numbered(5, bitsPerValue=24),
        numbered(6, edition=2, packingType="grid_ccsds"),
        numbered(7, edition=2),
    ]
    found = GribFields(files(raws[:4], raws[4:6], raws[6:]))
    for number, ((m, *_),) in enumerate(found.messages("t2m", 0, 0), 1):
        np.testing.assert_allclose(values(m), FIELD + number, atol=1e-3)
        with m.path.open("rb") as file:
            np.testing.assert_array_equal(values(m), decode(m, file))


def at_level(number, kind, level, **keys):
    return numbered(number, **{"paramId": 130, "typeOfLevel": kind, "level": level, **keys})


ODD = {
    "grid": (
        numbered(
            3,
            **scanned(0)
            | {"latitudeOfLastGridPointInDegrees": 20.0, "jDirectionIncrementInDegrees": 10.0},
        ),
        "lies on the grid 5 x 8, 60 to 20 N",
    ),
    "kind of level": (
        numbered(3, typeOfLevel="heightAboveGround", level=2),
        "gives t2m with typeOfLevel heightAboveGround 2, that at .* with surface 0",
    ),
    "pressure": (
        numbered(3, typeOfLevel="isobaricInhPa", level=850),
        "gives t2m with typeOfLevel isobaricInhPa 850, that at .* with surface 0",
    ),
}


@pytest.mark.parametrize("which", ODD)
@pytest.mark.parametrize("place", [0, 2])
def test_the_message_that_does_not_agree_is_named(files, which, place):
    odd, words = ODD[which]
    raws = [numbered(1), numbered(2)]
    raws.insert(place, odd)
    offset = sum(len(raw) for raw in raws[:place])
    with pytest.raises(FileError, match=rf"0\.grib: the message at byte {offset} {words}"):
        GribFields(files(raws))


def test_members_in_other_units_are_converted(files):
    # Total precipitation is 228 in m, and 228228 in kg m-2; both are called tp.
    odd = numbered(3, edition=2, paramId=228228, productDefinitionTemplateNumber=11)
    assert scan(files([odd])[0])[0].meaning.name == "tp"
    raws = [numbered(number, paramId=228) for number in (1, 2)]
    tp = GribFields(files([*raws, odd])).dataset()["tp"]
    assert tp.attrs["units"] == "m"
    wanted = [FIELD + 1, FIELD + 2, (FIELD + 3) / 1000]
    np.testing.assert_allclose(tp.values.squeeze(), wanted, rtol=1e-5)


def test_pascal_and_hectopascal_are_one_axis(files):
    raws = [at_level(n, "isobaricInhPa", 500) for n in (1, 2)]
    raws += [at_level(n, "isobaricInPa", 50, edition=2) for n in (1, 2)]
    found = GribFields(files(raws))
    assert found.levels == {"t": [0.5, 500.0]}
    assert [part.message.meaning.level for (part,) in found.messages("t", 0, 0, 0)] == [50, 50]


def test_lagged_members_are_called_so(files):
    raws = [numbered(n, dataDate=20010101 + n, step=24 * (20 - n)) for n in range(1, 6)]
    with pytest.raises(
        MissingDataError, match=r"fill 4% of their cube\. The members may be lagged"
    ):
        GribFields(files(raws))
    alone = GribFields(files(raws), selection=Selection.of(members=[3]))
    assert alone.steps == [24 * 17]
