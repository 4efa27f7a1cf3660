"""`ens10 reproduce --plan`: bytes against stores on the disk, hours against sums by hand."""

import json
from pathlib import Path

import pytest

from ens10 import catalog
from ens10.cli import main
from ens10.convert import prepare
from ens10.errors import FileError, MissingDataError, UnknownNameError
from ens10.experiments.demo import config_path
from ens10.experiments.planning import rates as timing
from ens10.experiments.planning.rates import (
    Rates,
    measure,
    measure_in_process,
    measure_rates,
    read_rates,
)
from ens10.experiments.reproduce.command import MODELS, Request
from ens10.experiments.reproduce.plan import (
    cell_of,
    count_channels,
    data_of_store,
    ens10,
    inputs_of,
    plan_table,
    print_table,
    sizes_of,
    sizes_on_disk,
    training_of,
    with_statistics,
)
from ens10.experiments.runner.tasks import Task
from ens10.experiments.scoring.writers import fill_section
from ens10.experiments.training import limits
from ens10.experiments.training.data_numbers import read_config
from ens10.protocol import protocol_of
from ens10.quantiles import parse_climate
from ens10.synthetic import World

CONFIGS = config_path("raw").parent
NETWORKS = ("mlp", "lenet", "unet", "transformer", "smoe_unet", "location_unet")
RATE = {"train_seconds": 5.0, "before_seconds": 0.0, "predict_seconds": 1.25, "memory_gb": 4.0}
RATE |= {"batch": 4, "device": "one core"}
CLEAN = Task("clean", "t2m", 10)


@pytest.fixture
def rates():
    models = dict.fromkeys([*MODELS["clean"], *MODELS["paper"]], RATE)
    return Rates((361, 720), "a machine", 0.005, 0.5, 0.02, models)


@pytest.fixture(scope="module")
def large_store(tmp_path_factory):
    """Both kinds, two levels, two steps, statistics of the first 5, truth, climate."""
    folder = tmp_path_factory.mktemp("large")
    names = ["t2m", "sst", "u10", "v10", "z", "t", "u", "v"]
    World("7x9", range(2000, 2006), 3, names, steps=(24, 48)).write(folder / "world")
    climate = parse_climate(["t2m@48"], window=3)
    truth = folder / "world" / "truth"
    given = {"truth": truth, "ensembles": [5], "climate": climate}
    return prepare(folder / "world", folder / "store.zarr", **given)


def chunks_of(store, part):
    """Bytes of a part's values, without coordinates and metadata."""
    fields = [p for p in (store / part).iterdir() if p.is_dir() and (p / "c/0/0").exists()]
    fields = [p for p in fields if p.name not in ("valid_time", "members", "valid_year")]
    return sum(f.stat().st_size for p in fields for f in (p / "c").rglob("*") if f.is_file())


def test_bytes_are_those_of_a_store_on_the_disk(large_store):
    data = data_of_store(large_store)
    assert (data.grid, data.members, data.steps) == ((7, 9), 10, (24, 48))
    assert (data.ensembles, data.climate) == ((5,), ("t2m",))
    assert data.truth == ("t2m", "z_500", "t_850")
    counted = sizes_of(data, protocol_of("clean"))
    assert set(counted) == {"sfc", "pl", "statistics", "truth", "climate"}
    assert counted == {part: chunks_of(large_store, part) for part in counted}


def test_a_store_that_is_there_has_the_size_of_its_files(store, tmp_path):
    sizes = sizes_on_disk(store)
    assert sum(sizes.values()) == sum(f.stat().st_size for f in store.rglob("*") if f.is_file())
    assert sizes["metadata"] == (store / "zarr.json").stat().st_size
    assert {"sfc", "statistics", "truth", "manifest"} < set(sizes)


def test_ens10_is_three_terabytes():
    whole = ens10(catalog.TARGETS)
    assert (len(whole.time), len(whole.channels), whole.members) == (2100, 11 + 77, 10)
    values = 2100 * 3 * 88 * 10 * 361 * 720 * 2
    found = sizes_of(whole, protocol_of("clean"))
    assert 0 < found["sfc"] + found["pl"] - values < 1e-3 * values
    # mean and deviation in float32; six sums for each year, and for each New Year's Eve
    assert found["statistics"] == 88 * 361 * 720 * (2100 * 3 * 2 * 4 + 40 * 3 * 6 * 8)
    both = with_statistics(whole, [5, 10, 5], ["t2m"])
    assert both.ensembles == (5,)
    more = sizes_of(both, protocol_of("clean"))
    assert more["statistics"] == 2 * found["statistics"]
    assert more["climate"] == 105 * 101 * 361 * 720 * 4
    rolling = sizes_of(both, protocol_of("paper"))
    assert rolling["climate"] == 2 * 105 * 21 * 361 * 720 * 4


@pytest.mark.parametrize("model", [*NETWORKS, "paper_mlp", "paper_unet"])
def test_channels_are_those_the_configurations_were_written_for(model):
    config = read_config(CONFIGS / f"{model}.yaml")
    rules = protocol_of(config["data"].get("protocol", "clean"))
    inputs = inputs_of(config["data"], "t2m", ens10(["t2m"]))
    network = config["model"]["init_args"]["network"]["init_args"]
    assert count_channels(config["data"], inputs, rules) == network["in_channels"]


def test_inputs_go_with_the_target():
    whole = ens10(["z500"])
    inputs = inputs_of({"target": "t2m"}, "z500", whole)
    assert inputs == [(f"{name}_500", 48) for name in catalog.names_of_kind("pl")]
    assert inputs_of({"target": "t2m", "inputs": ["t2m"]}, "z500", whole) == [("z_500", 48)]
    with pytest.raises(UnknownNameError, match="z123"):
        inputs_of({"target": "t2m", "inputs": ["z123"]}, "z500", whole)


def test_dates_are_those_of_the_papers_pairing(rates):
    data = ens10(["t2m"])
    costs = {name: cell("raw", data, rates, Task(name, "t2m", 10)) for name in ("clean", "paper")}
    assert costs["clean"]["dates"] == {"train": 1784, "val": 105, "test": 210}
    assert costs["paper"]["dates"] == {"train": 1889, "val": 210, "test": 210}


def cell(model, data, rates, task=CLEAN, training=None):
    return cell_of(model, task, data, rates, training or training_of(model, CONFIGS, None), CONFIGS)


def test_hours_are_dates_times_epochs_times_seconds(rates):
    data = ens10(["t2m"])
    found = cell("mlp", data, rates)
    assert (found["rate"], found["epochs"], found["memory_gb"]) == ("measured", 12, 4.0)
    assert found["hours"]["train"] == pytest.approx(12 * (1784 * 5 + 105 * 1.25) / 3600)
    assert found["hours"]["predict and score"] == pytest.approx(210 * (1.25 + 0.5) / 3600)
    # 17 years of 9 dates and 10 members, a window cut short nowhere (it reaches over New Year)
    assert found["hours"]["climate"] == pytest.approx(210 * 1530 * 0.02 / 3600, rel=0.01)
    kept = with_statistics(data, [], ["t2m"])
    assert cell("mlp", kept, rates)["hours"]["climate"] == 0
    raw = cell("raw", data, rates)
    assert raw["epochs"] == 1
    assert raw["hours"]["train"] == pytest.approx((1784 * 5 + 105 * 1.25) / 3600)


def test_a_budget_changes_epochs_and_dates(rates):
    short = training_of("transformer", CONFIGS, "five_minutes")
    assert short[1:] == (7, 0.25)
    budgeted = short._replace(config=training_of("mlp", CONFIGS, None).config)
    found = cell("mlp", ens10(["t2m"]), rates, training=budgeted)
    assert found["hours"]["train"] == pytest.approx(7 * (446 * 5 + 105 * 1.25) / 3600)


def test_other_channels_and_points_are_scaled(rates, store):
    upper = cell("mlp", ens10(["z500"]), rates, Task("clean", "z500", 10))
    whole = cell("mlp", ens10(["t2m"]), rates)
    assert upper["rate"] == "scaled"
    assert 0.6 < upper["hours"]["train"] / whole["hours"]["train"] < 0.99
    assert upper["memory_gb"] < whole["memory_gb"]
    small = cell("raw", data_of_store(store), rates)
    assert small["hours"]["train"] == pytest.approx((12 * 5 + 4 * 1.25) / 3600 * 128 / 259920)
    with pytest.raises(MissingDataError, match=r"unet.*--probe"):
        cell("unet", ens10(["t2m"]), Rates((361, 720), "", 0, 0, 0, {}))


@pytest.mark.long  # and needs a machine that nothing else uses
def test_a_network_of_members_takes_less_for_fewer(rates):
    few, ten = (
        cell("transformer", ens10(["t2m"]), rates, Task("clean", "t2m", n)) for n in (5, 10)
    )
    # half of the members, whose attention to each other is a quarter
    assert 0.3 < few["hours"]["train"] / ten["hours"]["train"] < 0.55


def test_what_is_printed_and_kept(rates, capsys):
    asked = {"targets": ("t2m", "z500"), "members": (5, 10), "models": ("raw", "mlp"), "seeds": 2}
    content = plan_table(Request(Path("out"), Path("work"), **asked), rates)
    assert len(content["cells"]) == 8
    assert content["hours"] == pytest.approx(
        2 * sum(sum(cell["hours"].values()) for cell in content["cells"])
    )
    assert content["steps"] == [48]
    assert len(content["channels"]) == 11 + 7
    print_table(content, 4)
    told = capsys.readouterr().out
    assert "1784 to train, 105 to val, 210 to test" in told
    assert "--levels 500 --steps 48 --ensembles 5 --climate t2m@48 z500@48" in told
    assert "download of 2.88 TB, under CC BY 4.0" in told
    assert f"8 cells x 2 seeds: {content['hours']:,.0f} h of one core" in told
    assert f"on 4 at a time {content['hours'] / 96:.1f} days" in told
    messages = 2100 * 10 * (11 + 7)
    climates = 2 * 105 * 1530 * 0.02
    assert content["prepare"]["hours"] == pytest.approx(
        (messages * 0.005 + climates) / 3600, rel=0.01
    )


def test_the_command(store, tmp_path, rates, capsys):
    def says(*words):
        status = main(["reproduce", "--out", str(tmp_path / "out"), *map(str, words)])
        told = capsys.readouterr()
        return status, told.out + told.err

    rates_file = ["--rates", tmp_path / "throughput.json"]
    status, told = says("--plan", *rates_file)
    assert status == 1
    assert "no measured rates" in told
    kept = {"grid": [361, 720], "machine": "a machine", "prepare": 0.005, "score": 0.5}
    kept |= {"climate": 0.02, "models": {"raw": RATE, "mlp": RATE}}
    (tmp_path / "throughput.json").write_text(json.dumps(kept))
    words = "--targets t2m --members 10 --models raw --seeds 1"
    wanted = [*rates_file, "--store", store, *words.split()]
    status, told = says("--plan", tmp_path / "plan.json", *wanted)
    assert status == 0
    assert "12 to train, 4 to val, 8 to test" in told
    assert "download" not in told
    kept = json.loads((tmp_path / "plan.json").read_text())
    assert kept["store_exists"]
    assert kept["store_bytes"] == sizes_on_disk(store)
    assert "is of synthetic worlds" in says("--plan", "--grid", "6x8")[1]
    assert "is of a plan" in says("--probe")[1]
    status, told = says("--plan", *wanted, "--models", "unet")
    assert status == 1
    assert "unet (clean, t2m, 10 members): throughput" in told
    assert not (tmp_path / "out").exists()


def test_a_probe_takes_the_place_of_what_was_kept(rates, monkeypatch):
    other = {**RATE, "train_seconds": 0.1, "device": "an accelerator"}
    monkeypatch.setattr(timing, "measure_in_process", lambda model, grid: other)
    found = measure_rates(rates, ["mlp"], progress=False)
    assert found.models["mlp"] == other
    assert found.models["unet"] == RATE
    assert "(an accelerator)" in found.machine


class CountingClock:
    """Its time is the number of readings so far."""

    def __init__(self):
        self.readings = 0

    def process_time(self):
        self.readings += 1
        return float(self.readings)

    perf_counter = process_time


@pytest.mark.parametrize(
    ("model", "size", "train", "before"),
    [
        # two readings a step; a step of a network has `size` dates, and the first does not count
        ("unet", 4, 2 / 4, 0),
        ("transformer", 2, 2 / 2, 0),
        # one reading from the start of the fit to its first step, for three steps of four dates
        ("location_unet", 4, 2 / 4, round(1 / 12, 4)),
        # 16 dates, from the reading at the start of the fit to that after the last step
        ("emos_local", 1, 32 / 16, 0),
    ],
)
def test_a_model_is_timed_on_random_fields(monkeypatch, model, size, train, before):
    monkeypatch.setattr(limits, "time", CountingClock())
    found = measure(model, (9, 16))
    assert found["train_seconds"] == train
    assert found["before_seconds"] == before
    assert found["predict_seconds"] == 1 / size
    assert 0.05 < found["memory_gb"] < 4
    assert found["batch"] == size


@pytest.mark.slow
def test_a_model_that_fails_apart_is_told_in_a_line():
    with pytest.raises(FileError, match=r"unet\.yaml: could not be run at 0x8 points"):
        measure_in_process("unet", (0, 8))


def test_the_rates_that_come_with_the_package():
    kept = read_rates()
    assert kept.grid == catalog.GRID_SHAPE
    names = {name for models in MODELS.values() for name in models}
    assert {"raw", "unet", "smoe_unet"} <= set(kept.models) <= names
    for one in kept.models.values():
        assert 0 < one["predict_seconds"] < 100
        assert 0.4 < one["memory_gb"] < 12


def test_a_page_is_filled_between_its_marks():
    page = "before\n<!-- plan -->\nold\n<!-- end -->\nafter\n"
    text = fill_section(page, "plan", "new")
    assert text == "before\n<!-- plan -->\n\nnew\n\n<!-- end -->\nafter\n"
    assert fill_section(text, "plan", "new") == text
    with pytest.raises(MissingDataError, match="a place for the log"):
        fill_section(page, "log", "")


@pytest.mark.parametrize("text", ["no JSON", "[]", "{}", '{"grid": [2, 3], "speed": 1}'])
def test_a_file_of_something_else_than_rates(tmp_path, text):
    path = tmp_path / "rates.json"
    path.write_text(text)
    with pytest.raises(FileError, match=r"holds no measured rates .*full_size"):
        read_rates(path)


def test_more_members_than_there_are(tmp_path):
    request = Request(tmp_path, tmp_path, models=("raw",), members=(10, 11))
    content = plan_table(request, read_rates())
    assert [cell["members"] for cell in content["cells"]] == [10]
    assert "needs 11 members, found 10" in content["refused"]["raw (clean, t2m, 11 members)"]
