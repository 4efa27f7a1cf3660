"""Every variant of the shipped ablations is a configuration that `ens10 fit` takes."""

import pytest
import pytorch_lightning as pl
import yaml
from pytorch_lightning.cli import LightningArgumentParser

from ens10 import catalog
from ens10.convert import prepare
from ens10.errors import UnknownNameError
from ens10.experiments.studies.ablation import __main__ as command
from ens10.experiments.studies.ablation.cells import (
    StudySettings,
    find_cell,
    find_cells_of,
    overlay_for_store,
    write_overlay,
)
from ens10.experiments.studies.ablation.spec import ablation_names, load_ablation
from ens10.experiments.training.data_numbers import as_options, numbers_on_store
from ens10.loader import Batches
from ens10.loader.datamodule import EnsembleDataModule
from ens10.synthetic import World

VARIANTS = [(name, v.name) for name in ablation_names() for v in load_ablation(name).variants]
ONE_OF_EACH = [(name, load_ablation(name).variants[1].name) for name in ablation_names()]
SLOW = [pytest.param(*v, marks=pytest.mark.slow) for v in VARIANTS if v not in ONE_OF_EACH]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store of all variables, levels and leads that configurations ask for; wind speed, too."""
    top = tmp_path_factory.mktemp("whole")
    names = [*catalog.names_of_kind("sfc"), "si10", *catalog.names_of_kind("pl")]
    world = World("9x16", range(2000, 2004), 1, names, seed=0, kind="displaced")
    world.write(top / "world")
    return prepare(top / "world", top / "store.zarr", truth=top / "world" / "truth")


def parser_of(**classes):
    parser = LightningArgumentParser(exit_on_error=False)
    parser.add_argument("--config", action="config")
    for name, kind in classes.items():
        parser.add_lightning_class_args(kind, name, subclass_mode=name == "model")
    return parser


@pytest.mark.parametrize(("name", "variant"), [*ONE_OF_EACH, *SLOW])
def test_the_overlay_is_taken_and_the_model_built(whole, tmp_path, name, variant):
    asked = load_ablation(name).variant(variant)
    overlay = overlay_for_store(asked, whole)
    write_overlay(tmp_path / "overlay.yaml", overlay)
    parser = parser_of(data=EnsembleDataModule, model=pl.LightningModule, trainer=pl.Trainer)
    words = ["--config", str(asked.config), "--config", str(tmp_path / "overlay.yaml")]
    words += ["--data.store", str(whole)]
    unfilled = parser.parse_args(words, _skip_validation=True).as_dict()
    held = parser.parse_args([*words, *as_options(numbers_on_store(unfilled, whole))])
    for key, value in asked.overlay.items():  # nothing of it is lost on the way
        if isinstance(value, list | int | float | bool) or value is None:
            assert held[key] == value
        else:
            told = held[key] if isinstance(held[key], str) else held[key]["class_path"]
            assert told == (value if isinstance(value, str) else value["class_path"])
    models = parser_of(model=pl.LightningModule)
    build = getattr(models, "instantiate", None) or models.instantiate_classes
    model = build(models.parse_object({"model": held.model})).model
    network = getattr(model, "network", None)
    if network is not None:
        names = {k: held["data"][k] for k in ("target", "inputs", "extras", "ensemble", "kind")}
        channels = Batches(whole, split="train", **names).channels
        assert network.in_channels == len(channels)


def test_a_variant_that_does_not_fit_the_data_is_told_and_the_others_go_on(whole, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(
        "base: raw\nvariants:\n  unet: {config: unet, data.inputs: [t2m, z300]}\n"
        "  blind: {config: groenquist, data.inputs: [u10]}\n"
        "  thin: {config: emos_global, thin: 3}\n  fine: {config: emos_global}\n"
    )
    place = StudySettings(tmp_path / "work", tmp_path / "out", store=whole)
    cells, refused = find_cells_of(load_ablation(str(path)), [0], place)
    assert [cell.model for cell in cells] == ["raw", "fine"]
    told = " / ".join(refused.values())
    assert "variant unet: " in told
    assert "z300" in told
    assert "variant blind: inputs: the target is not among them" in told
    assert "3 does not divide the 9 rows" in told


def test_a_cell_depends_on_its_overlay_its_budget_and_its_training(whole, tmp_path):
    def cell(name, budget=None, ablation="members", store=whole):
        place = StudySettings(tmp_path, tmp_path / "out", budget, store)
        return find_cell(load_ablation(ablation), name, 0, place)

    cells = [cell("unet"), cell("unet", "half_minute"), cell("train_5_use_5")]
    cells += [cell("train_5_use_all"), cell("train_all_use_5"), cell("log_score", None, "loss")]
    assert len({one.key["config"] for one in cells}) == len(cells)
    assert len({one.run for one in cells}) == len({one.claim for one in cells}) == len(cells)
    assert cell("train_5_use_all").training.key == cell("train_5_use_5").key
    assert cell("train_5_use_all").training.run == cell("train_5_use_5").run
    words = cells[1].overrides
    assert "--trainer.max_epochs=8" in words
    assert words[-2] == "--config"  # the overlay has the last word
    with pytest.raises(UnknownNameError, match="train_5"):
        cell("train_5")


def test_overlays_are_written_for_those_who_train_alone(whole, tmp_path, capsys):
    words = ["inputs", "--overlays", str(tmp_path), "--store", str(whole)]
    assert command.main(words) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) == len(list(tmp_path.glob("*.yaml"))) == len(load_ablation("inputs").variants)
    line = next(line for line in told if "target_alone" in line)
    assert f"location_unet.yaml --config {tmp_path / 'target_alone.yaml'} --data.store" in line
    overlay = yaml.safe_load((tmp_path / "target_alone.yaml").read_text())
    assert overlay["data.inputs"] == ["t2m"]
    assert overlay["model.init_args.network.init_args.grid"] == [9, 16]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["los"], "did you mean 'loss'"),
        (["loss"], "WORK: a folder for data and runs"),
        (["loss", "w", "--out", "o", "--store", "s", "--grid", "6x8"], "--grid: is of synthetic"),
        (["loss", "w", "--out", "o", "--store", "no.zarr"], "no.zarr: no such store"),
        (["loss", "w", "--out", "o", "--store", ".", "--budget", "half_minut"], "did you mean"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    assert command.main(words) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not any(tmp_path.iterdir())
