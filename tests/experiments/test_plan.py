"""`ens10 plan`: what it prints, and what it refuses."""

import json
from pathlib import Path

import pytest
import yaml

from ens10.cli import main
from ens10.errors import FileError
from ens10.experiments.demo import config_path
from ens10.experiments.planning import step_counts
from ens10.experiments.planning.plan import plan_config, step_times, subject_of
from ens10.experiments.planning.rates import measured_steps
from ens10.experiments.planning.step_counts import Amount, by_kind, count_config
from ens10.experiments.training.data_numbers import read_config

ROOT = Path(__file__).parents[2]


def command(config, devices=2, memory=4, *more):
    path = config if isinstance(config, Path) else config_path(config)
    numbers = ["--devices", str(devices), "--memory", str(memory)]
    return main(["plan", "--config", str(path), *numbers, *more])


def test_a_plan_in_words(capsys):
    assert command("lenet", 2, 4, "--grid", "37x48", "--batch-size", "2") == 0
    told = capsys.readouterr().out
    assert "LeNet, 2 x 26 x 37 x 48, precision 32: counted, not measured" in told
    assert "Recommended: data 2, lat 1, lon 1: of 3 splits that fit the one that" in told
    assert "Use it by: --trainer.devices=2 --data.batch_size=1\n" in told
    assert "Times: not measured; --machine cpu or h200 shows measured steps" in told
    assert " ms" not in told


def kept_steps():
    """Seconds of a date on both devices that the benchmark measured, by name, precision, dates."""
    found = {}
    for folder in ("", "second_device/"):
        content = json.loads((ROOT / f"benchmarks/results/{folder}cuda.json").read_text())
        for key, step in content["parts"]["steps"].items():
            name, _, kind = key.partition(", ")
            is_plain = "compiled" not in kind and "cudnn" not in kind
            if kind and "milliseconds" in step and is_plain:
                precision = "bf16" if kind.startswith("bfloat16") else "32"
                place = found.setdefault((name, precision, step["dates"]), [])
                place.append(step["milliseconds"] / 1e3 / step["dates"])
    return found


def test_the_times_of_a_device_are_those_of_the_benchmark():
    measured = measured_steps("h200")
    found = {
        (name, precision, dates): seconds
        for name, by_precision in measured.seconds.items()
        for precision, by_dates in by_precision.items()
        for dates, seconds in by_dates.items()
    }
    expected = kept_steps()
    assert found.keys() == expected.keys()
    assert len(found) == 20
    for key, seconds in found.items():
        assert seconds == pytest.approx(expected[key], abs=1e-6), key
    assert measured_steps("cpu").seconds["unet"] == {"32": {4: [5.1822]}}


def test_a_measured_step_is_shown_as_it_was_measured(capsys):
    """The step of the benchmark itself; half of its rows take about half of the time."""
    times = step_times("h200", "paper_unet", "32", 1)
    assert times.seconds == (0.008303, 0.011595)
    assert times.of(times.cost) == "8.3 to 11.6 ms"
    half = subject_of(config_path("paper_unet")).footprints("32")(1, 2, 1)
    least, _, most, _ = times.of(half).split()
    assert 0.5 < float(least) / 8.303 == pytest.approx(float(most) / 11.595, rel=0.01)
    assert float(least) / 8.303 < 0.6
    assert step_times("h200", "paper_unet", "bf16", 3).seconds == (4 * 0.003155, 4 * 0.003465)
    assert command("unet", 2, 4, "--grid", "37x48", "--machine", "h200") == 0
    told = capsys.readouterr().out
    assert "Times: unet is not measured on two NVIDIA H200" in told
    assert "paper_unet, smoe_unet" in told


def test_a_sample_is_split_where_memory_asks_for_it(capsys):
    whole = plan_config(config_path("lenet"), 1, 100, batch_size=1).plan.best.footprint.memory
    # one sample between two devices, because there is no other
    assert command("lenet", 2, 0.9 * whole / 1e9, "--batch-size", "1", "--precision", "32") == 0
    told = capsys.readouterr().out
    assert "--trainer.strategy=SpatialStrategy --trainer.strategy.lat=2" in told
    assert command("lenet", 2, 0.1 * whole / 1e9, "--batch-size", "1") == 1
    assert "the least is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "more", "word"),
    [
        ("raw", [], "raw.yaml: StatisticalPostProcessor has no network to share out"),
        ("nothing", [], "nothing.yaml: no such file"),
        ("lenet", ["--grid", "361"], "--grid: '361' is not a grid. Write ROWSxCOLUMNS"),
        (
            "lenet",
            ["--machine", "a100"],
            "machine: 'a100' is not measured. Measured are cpu and h200",
        ),
        ("lenet", ["--machine", "a100"], "run `ens10 reproduce --plan --probe`, which measures"),
        ("lenet", ["--precision", "16"], "precision: '16' is not known"),
        ("lenet", ["--batch-size", "0"], "batch: 0 is not positive"),
        ("unet", ["--grid", "4x64"], "a grid of 4 x 64 points is too small for 3 levels"),
        ("smoe_unet", ["--grid", "4x64"], "a grid of 4 x 64 points is too small for 3 levels"),
    ],
)
def test_what_is_wrong_is_one_line(config, more, word, capsys):
    assert command(config, 2, 4, *more) == 1
    told = capsys.readouterr()
    assert told.err.startswith("ens10: ")
    assert word in told.err
    assert len(told.err.splitlines()) == 1
    assert not told.out


def test_a_configuration_of_several_targets_and_lead_times(tmp_path, capsys):
    """The network's channels decide; lists of targets and lead times change neither."""
    config = read_config(config_path("unet"))
    config["data"] |= {"target": ["t2m", "z500"], "step": [24, 48], "inputs": ["t2m", "z500"]}
    config["model"]["init_args"]["head"] = {
        "class_path": "ens10.models.TargetHeads",
        "init_args": {"heads": ["ens10.models.ResidualNormalHead"] * 2},
    }
    network = config["model"]["init_args"]["network"]["init_args"]
    network |= {"in_channels": 10, "out_channels": 4}
    file = tmp_path / "both.yaml"
    file.write_text(yaml.safe_dump(config))
    assert command(file, 2, 4, "--grid", "64x128") == 0
    assert "UNet, 4 x 10 x 64 x 128" in capsys.readouterr().out

    def memory():
        file.write_text(yaml.safe_dump(config))
        return plan_config(file, 1, 100, grid="64x128").plan.best.footprint.memory

    of_two = memory()
    network["out_channels"] = 2  # of one target
    assert memory() < of_two < 1.1 * memory()


def test_no_devices_and_no_memory(capsys):
    assert command("lenet", 0) == 1
    assert "devices: 0 is not positive" in capsys.readouterr().err
    assert command("lenet", 2, 0) == 1
    assert "memory: 0.0 is not positive" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("data: {target: t2m}", "it has no model"),
        ("[1, 2", "no valid YAML"),
        ("model: {class_path: ens10.models.PostProcessor}", "PostProcessor has no network"),
        (
            "model: {init_args: {network: {class_path: ens10.models.networks.LeNet, "
            "init_args: {in_channel: 3}}}}",
            "in_channel",
        ),
        ("model: {init_args: {network: ens10.models.networks.Lenet}}", "Lenet"),
    ],
)
def test_configurations_that_say_nothing(text, word, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(FileError, match=word):
        subject_of(path)


def test_a_network_that_is_bound_to_a_grid_gets_the_one_asked_for():
    assert subject_of(config_path("smoe_unet")).grid == (361, 720)
    there = subject_of(config_path("smoe_unet"), (361, 720))
    here = subject_of(config_path("smoe_unet"), (46, 96))
    gates = [sum(p.numel() for p in s.network.parameters() if p.ndim == 3) for s in (here, there)]
    assert gates[1] * 46 * 96 == gates[0] * 361 * 720 > 0
    assert all(p.device.type == "meta" for p in there.network.parameters())
    assert subject_of(config_path("unet")).grid == (361, 720)


def test_members_and_deep_ensembles():
    poet, several = subject_of(config_path("poet")), subject_of(config_path("deep_ensemble"))
    assert poet.channels == (10, 15)
    assert several.copies == 5
    one = subject_of(config_path("location_unet"))
    found, alone = (s.footprints("32")(1, 1, 1) for s in (several, one))
    assert (found.flops, found.parameters) == (5 * alone.flops, 5 * alone.parameters)


def test_counts_are_those_of_the_layers():
    """Products of a perceptron: forward, and back to all weights and the hidden layer."""
    found, dates = count_config(config_path("mlp"), (6, 8), 3)
    channels, points, hidden, outputs = 26, 3 * 6 * 8, 128, 2
    kinds = by_kind(found.counts)
    products = 2 * channels * hidden + 3 * hidden * outputs
    assert dates == 3
    assert kinds["matrix products"].flops == 2 * points * products == found.counts.total.flops
    assert sum(kinds.values(), Amount())[:3] == found.counts.total[:3]
    assert kinds["optimiser"].operations >= 1
    assert not found.counts.syncs


def test_counts_in_words(capsys):
    options = ["plan", "--counts", "--config", str(config_path("location_unet"))]
    assert main([*options, "--grid", "24x48", "--batch-size", "2"]) == 0
    told = capsys.readouterr().out
    assert "location_unet, 2 x 24 x 48 dates and points, precision 32: counted, not" in told
    assert " convolutions " in told
    assert "Waits of the host for the device: none; besides one in each step to read" in told
    assert "Bounds on an H200: " in told


def test_a_part_that_needs_values(capsys, monkeypatch):
    def fail(*_):
        raise RuntimeError("no values.\nMore of it")

    monkeypatch.setattr(step_counts, "count_step", fail)
    options = ["--counts", "--config", str(config_path("mlp")), "--grid", "6x8"]
    assert main(["plan", *options]) == 1
    told = "mlp.yaml: a part of it needs values, which are not counted (no values). Count"
    assert told in capsys.readouterr().err


def test_what_has_no_counts(capsys):
    for name, reason in {
        "raw": "raw.yaml: StatisticalPostProcessor has no network",
        "deep_ensemble": "deep_ensemble.yaml: it has several networks or members. Counts are of",
        "shared_trunk": "shared_trunk.yaml: it has several networks or members. Counts are of one",
    }.items():
        options = ["--grid", "24x48"] if name != "raw" else []
        assert main(["plan", "--counts", "--config", str(config_path(name)), *options]) == 1
        assert reason in capsys.readouterr().err
    for given, reason in {
        ("--devices", "4"): "--devices: has no use with --counts",
        ("--memory", "40"): "--memory: has no use with --counts",
        ("--machine", "h200"): "--machine: has no use with --counts",
        ("--batch-size", "0"): "batch: 0 is not positive",
    }.items():
        assert main(["plan", "--counts", "--config", str(config_path("mlp")), *given]) == 1
        assert reason in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--config", str(config_path("mlp"))])
    assert ended.value.code == 2
    assert "--devices and --memory are required" in capsys.readouterr().err
