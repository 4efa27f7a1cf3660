"""What commands share: an error of ens10 is one line, any other is not hidden."""

import pytest

from ens10.errors import ArgumentError
from ens10.usage import reports_errors


def test_an_error_is_one_line_and_status_1(capsys):
    @reports_errors
    def command(arguments):
        raise ArgumentError("--seeds", f"{arguments[0]} is none", "Give 1 or more")

    assert command(["0"]) == 1
    found = capsys.readouterr()
    assert found.err == "ens10: --seeds: 0 is none. Give 1 or more.\n"
    assert found.out == ""


def test_the_command_gets_its_words_and_its_status_is_kept():
    asked = []

    @reports_errors
    def command(arguments=None):
        asked.append(arguments)
        return 3

    assert command() == command(["a"]) == 3
    assert asked == [None, ["a"]]


def test_an_accident_is_not_told_as_bad_input():
    @reports_errors
    def command(arguments):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command(None)
