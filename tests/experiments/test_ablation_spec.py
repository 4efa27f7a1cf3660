"""What an ablation asks: shipped YAMLs, one's own, and what is refused."""

import re
from pathlib import Path

import pytest
import yaml

from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.experiments.demo import config_path
from ens10.experiments.runner.tasks import WorldSize
from ens10.experiments.studies.ablation.spec import ablation_names, apply_overlay, load_ablation

ASKED = {"inputs", "location", "loss", "members", "members_worth", "resolution", "smoe"}


def test_what_was_asked_for_is_there():
    assert set(ablation_names()) >= ASKED


@pytest.mark.parametrize("name", ablation_names())
def test_a_shipped_ablation_asks_one_thing(name):
    ablation = load_ablation(name)
    assert ablation.question.endswith("?")
    assert ablation.base.reference is None
    assert not ablation.base.thin > 1
    names = [variant.name for variant in ablation.variants]
    assert len(names) > 2
    contents = [
        yaml.safe_dump(v.content) + f"{v.thin} {v.training_variant}" for v in ablation.variants
    ]
    assert len(set(contents)) == len(contents), "two variants are the same"
    for variant in ablation.variants[1:]:
        assert variant.reference in names
        assert variant.content != ablation.variant(variant.reference).content or variant.thin > 1


def write(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return str(path)


def test_one_of_your_own_names_a_configuration_beside_it(tmp_path):
    config = yaml.safe_load(config_path("emos_global").read_text())
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(config))
    source = write(
        tmp_path,
        "question: What\n  else?\nbase: own.yaml\ncommon: {trainer.max_epochs: 3}\n"
        "world: {grid: 9x16, years: 5}\nvariants:\n  local:\n"
        "    model.init_args.method.init_args.local: true\n"
        "  few: {trained: local, data.ensemble: 5}\n  raw: {config: raw, against: local}\n",
    )
    ablation = load_ablation(source)
    assert (ablation.name, ablation.question) == ("mine", "What else?")
    assert [variant.name for variant in ablation.variants] == ["own", "local", "few", "raw"]
    assert ablation.base.config == tmp_path / "own.yaml"
    assert ablation.base.content["trainer"]["max_epochs"] == 3
    local, few, raw = ablation.variants[1:]
    assert local.content["model"]["init_args"]["method"]["init_args"] == {"local": True}
    assert few.content["model"] == local.content["model"]  # it is that training
    assert few.content["data"]["ensemble"] == 5
    assert "ensemble" not in local.content["data"]
    assert (raw.config, raw.reference) == (config_path("raw"), "local")
    assert ablation.size() == WorldSize("9x16", tuple(range(1998, 2003)))
    assert ablation.size(grid="6x8", dates=None).grid == "6x8"


def test_an_overlay_changes_one_value_and_shares_nothing():
    content = {"a": {"b": 1, "c": [1]}, "d": "name"}
    made = apply_overlay(content, {"a.b": 2, "e.f.g": {"h": 3}})
    assert made == {"a": {"b": 2, "c": [1]}, "d": "name", "e": {"f": {"g": {"h": 3}}}}
    made["a"]["c"].append(2)
    assert content == {"a": {"b": 1, "c": [1]}, "d": "name"}
    with pytest.raises(ArgumentError, match="d is 'name' in the configuration"):
        apply_overlay(content, {"d.e": 1})


@pytest.mark.parametrize(
    ("variants", "error", "words"),
    [
        ("{a: {ensemble: 5}}", UnknownNameError, "variant a: 'ensemble' is not known"),
        ("{a: {dat.ensemble: 5}}", UnknownNameError, "'dat.ensemble' is not known"),
        ("{a: [5]}", ArgumentError, "is no mapping"),
        ("{a/b: {}}", ArgumentError, "its name is no word"),
        ("{raw: {data.ensemble: 5}}", ArgumentError, "name of the base"),
        ("{a: {thin: 0}}", ArgumentError, "thin is 0"),
        ("{a: {trained: b}}", UnknownNameError, "variant a: 'b' is not known"),
        ("{a: {against: row}}", UnknownNameError, "did you mean 'raw'"),
        ("{a: {trained: raw, model.x: 5}}", ArgumentError, "model.x cannot change after"),
        ("{a: {trained: raw, thin: 2}}", ArgumentError, "on its own data"),
        ("{a: {thin: 2}, b: {trained: a}}", ArgumentError, "on its own data"),
        ("{a: {against: b}, b: {against: a}}", ArgumentError, "compared with each other"),
        ("{a: {config: rav}}", FileError, "no such configuration"),
        ("{a: {config: rav.yaml}}", FileError, "no such configuration"),
    ],
)
def test_a_variant_that_cannot_be(tmp_path, variants, error, words):
    with pytest.raises(error, match=words):
        load_ablation(write(tmp_path, f"base: raw\nvariants: {variants}\n"))


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("base: raw\nvariant: {a: {}}", UnknownNameError, "did you mean 'variants'"),
        ("variants: {a: {}}", FileError, "no base or no variants"),
        ("base: raw\nvariants: {a: {}}\nworld: {size: 3}", UnknownNameError, "'size'"),
        ("base: [", FileError, "no valid YAML"),
        ("- base", FileError, "no mapping"),
    ],
)
def test_a_file_that_is_no_ablation(tmp_path, text, error, words):
    with pytest.raises(error, match=words):
        load_ablation(write(tmp_path, text))


def test_a_name_that_is_not_known(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'loss'"):
        load_ablation("los")
    with pytest.raises(FileError, match="no such file"):
        load_ablation(str(tmp_path / "no.yaml"))


def test_worlds_of_other_sizes_have_folders_of_their_own():
    assert WorldSize().folder == ""
    sizes = [WorldSize("9x16"), WorldSize("9x16", dates=3), WorldSize("9x16", steps=(48,))]
    sizes += [load_ablation("resolution").size(), load_ablation("resolution").size(years=4)]
    names = [size.folder for size in sizes]
    assert len(set(names)) == len(names)
    assert names[3] == "91x192-10x40-steps_48-kinds_sfc"


def test_the_page_has_all_of_them_and_its_own_one_loads(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "ablations.md").read_text()
    for name in ablation_names():
        assert f"[{name}](../experiments/ablations/{name}.yaml)" in page
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    wide, without, fewer = load_ablation(write(tmp_path, block)).variants[1:]
    assert (without.reference, fewer.training_variant, wide.reference) == (
        "wide",
        "wide",
        "location_unet",
    )
    assert wide.content["trainer"]["max_epochs"] == 6
