"""The options of synthetic worlds, which several studies share."""

import pytest

from ens10.experiments.runner.tasks import WorldSize
from ens10.experiments.studies import coherent_members, matrix
from ens10.experiments.studies.ablation import __main__ as ablation


def test_a_size_is_the_usual_one_but_for_what_is_given():
    assert WorldSize.from_options() == WorldSize()
    size = WorldSize.from_options(grid="6x8", years=3, dates=2, steps=[48], world="displaced")
    assert (size.grid, size.dates, size.steps, size.world) == ("6x8", 2, (48,), "displaced")
    assert size.years == WorldSize().years[:3]
    assert WorldSize.from_options(years=range(2001, 2003)).years == (2001, 2002)


@pytest.mark.parametrize(
    ("study", "words"),
    [
        (matrix, ["--grid", "6x8"]),
        (matrix, ["--world", "displaced"]),
        (coherent_members, ["--years", "5"]),
        (coherent_members, ["--dates", "3"]),
    ],
)
def test_options_of_worlds_are_refused_beside_prepared_data(study, words, tmp_path, capsys):
    places = [str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    assert study.main([*places, "--store", str(tmp_path / "s.zarr"), *words]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{words[0]}: is of synthetic worlds. Leave it out, or --store" in line


def test_an_ablation_refuses_them_as_well(tmp_path, capsys):
    words = ["loss", str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--grid", "6x8"]
    assert ablation.main([*words, "--store", str(tmp_path / "s.zarr")]) == 1
    assert "--grid: is of synthetic worlds" in capsys.readouterr().err
