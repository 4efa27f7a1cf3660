"""What `ens10 reproduce --plan` refuses."""

import pytest

from ens10.errors import FileError
from ens10.experiments.reproduce.dryrun import dry_run
from ens10.experiments.reproduce.dryrun_rates import read_rates
from ens10.experiments.studies.reproduce.command import Request


@pytest.mark.parametrize("text", ["no JSON", "[]", "{}", '{"grid": [2, 3], "speed": 1}'])
def test_a_file_of_something_else_than_rates(tmp_path, text):
    path = tmp_path / "rates.json"
    path.write_text(text)
    with pytest.raises(FileError, match=r"holds no measured rates .*full_size"):
        read_rates(path)


def test_more_members_than_there_are(tmp_path):
    request = Request(tmp_path, tmp_path, models=("raw",), members=(10, 11))
    found = dry_run(request, read_rates())
    assert [cost.task.members for cost in found.costs] == [10]
    assert "11, but the data have 10" in found.refused["raw (clean, t2m, 11 members)"]
