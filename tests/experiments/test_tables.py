import csv
import io
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from fakeruns import write_run, write_world
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, FileError, MissingDataError, UnknownNameError
from ens10.experiments.runner.tables import Entry, as_markdown
from ens10.experiments.scoring.run_results import read_run, read_runs
from ens10.experiments.scoring.tables import columns, latex, markdown, notes, score_table, to_csv
from ens10.experiments.scoring.writers import csv_of, number
from ens10.metrics import summarise


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def runs(folders):
    return read_runs([folders[name] for name in ("optimum", "unet", "raw", "emos")])


@pytest.fixture(scope="module")
def rows(runs):
    return score_table(runs)


def three(scores, name):
    return tuple(float(scores[name + part]) for part in ("", "_lower", "_upper"))


def as_tuple(made):
    return made.value, made.lower, made.upper


def test_the_reference_is_first_and_the_optimum_last(rows):
    assert [row.model for row in rows] == ["raw", "emos", "unet", "optimum"]
    assert [row.above for row in rows] == [None, "raw", "emos", "unet"]


def test_a_model_worse_than_the_reference_comes_after_it(runs):
    assert [r.model for r in score_table(runs, "unet")] == ["unet", "raw", "emos", "optimum"]


def test_a_distribution_without_variance_shows_no_spread(rows):
    row = rows[1]
    spread = replace(row.spread_error, value=np.inf)
    shown = [Entry(0, replace(row, spread_error=spread), 0.1, 1.0, 700.0)]
    cells = as_markdown([shown]).splitlines()[2].split(" | ")
    assert cells[7:9] == ["–", "10.0"]
    cells = as_markdown([[replace(shown[0], row=row)]]).splitlines()[2].split(" | ")
    assert cells[7] == f"{row.spread_error.value:.3f}"


def test_the_numbers_are_those_of_summarise(runs, rows):
    states = {run.name: run.states for run in runs}
    for row in rows:
        own = summarise(states[row.model])
        for name in ("crps", "rmse", "spread_error"):
            assert as_tuple(getattr(row, name)) == three(own, name)
    paired = summarise(states["unet"], states["raw"])
    assert as_tuple(rows[2].crpss) == three(paired, "crpss")
    step = summarise(states["unet"], states["emos"])
    assert as_tuple(rows[2].difference) == three(step, "crps_difference")


def test_fair_crps_is_of_ensembles_alone(runs, rows):
    raw = next(run for run in runs if run.name == "raw")
    assert as_tuple(rows[0].crps_fair) == three(summarise(raw.states), "crps_fair")
    assert rows[0].members == 5
    assert all(row.crps_fair is None and row.members is None for row in rows[1:])


def test_attained_skill_is_the_share_of_the_possible_improvement(rows):
    raw, emos, unet, best = (row.crps.value for row in rows)
    assert rows[1].attained.value == pytest.approx((raw - emos) / (raw - best), rel=1e-12)
    assert rows[2].attained.value == pytest.approx((raw - unet) / (raw - best), rel=1e-12)
    assert rows[0].attained is None
    assert rows[3].attained is None
    assert rows[1].attained.upper < rows[2].attained.lower


def test_attained_skill_is_paired(rows):
    # the share hardly depends on how hard the dates were, unlike the CRPS
    unet = rows[2]
    width = (unet.attained.upper - unet.attained.lower) / unet.attained.value
    alone = (unet.crps.upper - unet.crps.lower) / unet.crps.value
    assert 0 < width < alone


def test_attained_skill_does_not_depend_on_the_order_of_dates(folders, rows):
    runs = read_runs(list(folders.values()))
    mixed = [
        replace(run, states=run.states.isel(time=slice(None, None, -1)))
        if run.name == "unet"
        else run
        for run in runs
    ]
    made = score_table(mixed)[2].attained
    assert as_tuple(made) == pytest.approx(as_tuple(rows[2].attained), rel=1e-12)


def test_without_raw_the_columns_against_it_are_absent(folders):
    rows = score_table(read_runs([folders["emos"], folders["unet"], folders["optimum"]]))
    assert all(row.crpss is None and row.attained is None for row in rows)
    headings = " ".join(column.heading for column in columns(rows))
    assert "CRPSS" not in headings
    assert "Attained" not in headings
    assert "Δ CRPS" in headings


def test_without_an_optimum_there_is_no_attained_skill(folders):
    rows = score_table(read_runs([folders["emos"], folders["raw"]]))
    assert rows[1].crpss is not None
    assert rows[1].attained is None


def test_few_dates_take_students_t(tmp_path):
    few = score_table(read_runs(list(write_world(tmp_path, ("raw", "emos"), dates=6).values())))
    assert {row.method for row in few} == {"student"}
    assert "Student" in " ".join(notes(few))
    own = summarise(read_run(tmp_path / "emos").states, method="student")
    assert as_tuple(few[1].crps) == three(own, "crps")


def test_one_date_has_no_interval(tmp_path):
    rows = score_table(read_runs(list(write_world(tmp_path, ("raw", "emos"), dates=1).values())))
    assert np.isnan(rows[0].crps.lower)
    assert "[" not in markdown(rows).split("\n\n")[0]
    assert ",nan" not in to_csv(rows)


def test_csv_has_full_precision(rows):
    lines = list(csv.DictReader(io.StringIO(to_csv(rows))))
    for line, row in zip(lines, rows, strict=True):
        assert float(line["crps"]) == row.crps.value
        assert float(line["crps_upper"]) == row.crps.upper
        assert line["model"] == row.model
    assert float(lines[2]["attained_lower"]) == rows[2].attained.lower
    assert lines[0]["crpss"] == lines[0]["above"] == ""
    assert lines[0]["seconds"] == "12.3"


def test_markdown_shows_four_digits_and_no_seconds(rows):
    text = markdown(rows)
    lines = text.split("\n")
    assert lines[0].startswith("| Model | Forecast | CRPS (K) | CRPSS (%) |")
    assert len({line.count("|") for line in lines[:6]}) == 1
    c = rows[2].crps
    assert f"| {c.value:.4f} [{c.lower:.4f}, {c.upper:.4f}] |" in lines[4]
    assert f"| {100 * rows[2].crpss.value:.1f} [" in lines[4]
    assert f"| {100 * rows[2].attained.value:.1f} [" in lines[4]
    assert "12.3" not in text
    assert "plain estimator for members, closed form for normals" in text


def test_the_same_states_give_the_same_bytes(folders, rows):
    again = score_table(read_runs([folders[n] for n in ("emos", "raw", "optimum", "unet")]))
    for write in (markdown, latex, to_csv):
        assert write(again) == write(rows)


def test_a_difference_within_its_interval_is_marked(tmp_path):
    folders = write_world(tmp_path, ("raw", "emos"))
    twin = write_run(tmp_path / "twin", read_run(folders["emos"]).states, {"name": "twin"})
    rows = score_table(read_runs([*folders.values(), twin]))
    cells = next(c.cells for c in columns(rows) if c.heading.startswith("Δ"))
    assert cells[2] == "0.0000 [0.0000, 0.0000] ≈"
    assert "≈" not in cells[1]


def test_latex_escapes_names(tmp_path):
    folders = write_world(tmp_path, ("raw",))
    other = {"name": r"a_b & 50% {x}\y"}
    odd = write_run(tmp_path / "odd", read_run(folders["raw"]).states, other)
    rows = score_table(read_runs([folders["raw"], odd]))
    assert r"a\_b \& 50\% \{x\}\textbackslash{}y &" in latex(rows)
    assert "a\\_b & 50% {x}\\\\y |" in markdown(rows)


def test_csv_keeps_whole_numbers_beside_gaps_and_quotes_what_needs_it():
    rows = [["a,b", 1, 0.1], ['c"d\n', None, float("nan")], {"name": "e", "x": 1 / 3}]
    for digits, third in (("", "0.3333333333333333"), (".3g", "0.333")):
        text = csv_of(["name", "n", "x"], rows[:2], digits) + csv_of(
            ["name", "n", "x"], rows[2:], digits
        )
        assert list(csv.reader(io.StringIO(text)))[1:] == [
            ["a,b", "1", "0.1"], ['c"d\n', "", ""], ["name", "n", "x"], ["e", "", third],
        ]  # fmt: skip


@settings(deadline=None, max_examples=50)
@given(st.floats(-1e6, 1e6), st.integers(0, 6))
def test_numbers_read_back_and_zero_has_no_sign(value, decimals):
    text = number(value, f".{decimals}f")
    assert abs(float(text.replace("−", "-")) - value) <= 0.5 * 10.0**-decimals * (1 + 1e-9)
    assert not (float(text.replace("−", "-")) == 0 and text[0] in "-−")


def test_unknown_reference_is_refused(runs):
    with pytest.raises(UnknownNameError, match="did you mean 'emos'"):
        score_table(runs, "emoss")


def test_two_optima_are_refused(folders, tmp_path):
    states = read_run(folders["optimum"]).states
    other = write_run(tmp_path / "o", states, {"name": "other", "kind": "optimum"})
    with pytest.raises(ArgumentError, match="two optima"):
        score_table(read_runs([folders["optimum"], other]))


def as_emos(folders, path, **known):
    return write_run(path / "run", read_run(folders["emos"]).states, {"name": "emos", **known})


def of_world(_, path, name, **options):
    return write_world(path, (name,), **options)[name]


@pytest.mark.parametrize(
    ("first", "make", "error", "told"),
    [
        ("raw", partial(as_emos, target="z500"), ArgumentError, "target: t2m in raw, z500 in emos"),
        ("raw", partial(as_emos, kind="modl"), ArgumentError, "'model'"),
        ("emos", as_emos, ArgumentError, "both called 'emos'"),
        (
            "raw", partial(of_world, name="emos", weights="none"),
            ArgumentError, "weights: cell in raw, none in emos",
        ),
        (
            "raw", partial(of_world, name="unet", start="2004-01-04"),
            MissingDataError, r"raw .*unet .*2004-01-01.*only in the forecast",
        ),
    ],
    ids=["target", "kind", "name", "weights", "dates"],
)  # fmt: skip
def test_runs_that_do_not_fit_are_refused(folders, tmp_path, first, make, error, told):
    other = make(folders, tmp_path)
    with pytest.raises(error, match=told):
        read_runs([folders[first], other])


def test_no_runs_are_refused():
    with pytest.raises(ArgumentError, match="there are none"):
        read_runs([])


def test_a_run_without_provenance_has_its_folders_name(folders, tmp_path):
    run = read_run(write_run(tmp_path / "plain", read_run(folders["emos"]).states))
    assert (run.name, run.kind, run.log) == ("plain", "model", ())


def test_unscored_missing_and_damaged_runs_are_refused(folders, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match=r"Run `ens10 score .*empty`"):
        read_run(tmp_path / "empty")
    with pytest.raises(FileError, match="no such folder"):
        read_run(tmp_path / "nowhere")
    (tmp_path / "empty" / "scores.nc").write_bytes(b"no netCDF")
    with pytest.raises(FileError, match="cannot be read as netCDF"):
        read_run(tmp_path / "empty")
    states = read_run(folders["emos"]).states
    broken = write_run(tmp_path / "broken", states, log="epoch,step,val_loss\n0,1,oops\n")
    with pytest.raises(FileError, match="line 2 is no row of losses"):
        read_run(broken)
    (broken / "provenance.json").write_text("{")
    with pytest.raises(FileError, match="no valid JSON"):
        read_run(broken)
    without = write_run(tmp_path / "without", states.drop_vars("crps_sum"))
    with pytest.raises(MissingDataError, match="crps"):
        read_run(without)


def test_the_log_has_one_entry_an_epoch(folders):
    log = read_run(folders["unet"]).log
    assert [e.number for e in log] == list(range(6))
    assert log[4].val_loss == log[4].val_crps == pytest.approx(0.6)
    assert log[5].train_loss == pytest.approx(0.7 / 1.5)
