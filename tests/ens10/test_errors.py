import pickle

import pytest

from ens10.errors import (
    ArgumentError,
    DamagedFileError,
    Ens10Error,
    FileError,
    MissingDataError,
    OverlapError,
    UnknownNameError,
    listing,
)

ERRORS = [
    (ArgumentError("a", "is odd", "Mend it"), ValueError, "a: is odd. Mend it."),
    (UnknownNameError("kind", "sfx", ["sfc", "pl"]), ValueError, "did you mean 'sfc'?"),
    (MissingDataError("f", ["x", "y"]), ValueError, "f: 2 parts are missing: x; y."),
    (OverlapError("train", "test", [2016]), ValueError, "'train' and 'test' overlap in 2016"),
    (FileError("f", "is gone"), OSError, "f: is gone."),
    (DamagedFileError("f", 7, "is torn"), OSError, "f: damaged at byte 7: is torn."),
]


@pytest.mark.parametrize(("error", "base", "message"), ERRORS)
def test_errors_are_typed_and_survive_pickling(error, base, message):
    assert isinstance(error, base)
    assert isinstance(error, Ens10Error)
    assert message in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


def test_listing_tells_how_many_it_leaves_out():
    assert listing([str(n) for n in range(25)]).endswith("18, 19, and 5 more")
    assert listing(["a", "b"]) == "a, b"
