"""When a finished cell still counts."""

import ast

import pytest

from ens10.errors import ArgumentError
from ens10.experiments.matrix import identity
from ens10.experiments.matrix.identity import closure, differences, digest_of, identity_of

UNET = {"model": {"init_args": {"network": {"class_path": "ens10.models.networks.UNet"}}}}
MLP = {"model": {"network": "ens10.models.networks.MLP", "gain": [1, 2]}}


@pytest.fixture
def source(tmp_path):
    def write(text):
        path = tmp_path / "source.py"
        path.write_text(text)
        return digest_of(path)

    return write


def test_layout_comments_and_docstrings_do_not_count(source):
    plain = source("def f(x):\n    return x + 1\n")
    assert source('"""Doc."""\ndef f(x):  # adds\n    """Adds."""\n\n    return (x + 1)\n') == plain
    assert source("def f(x):\n    return x + 2\n") != plain


def test_a_text_that_is_a_value_counts(source):
    assert source('NAME = "a"\n') != source('NAME = "b"\n')


def test_code_holds_what_is_imported_and_no_other_network():
    code = identity_of(UNET, "data")["code"]
    assert {"ens10.models.networks.unet", "ens10.models.layers.padding"} <= set(code)
    assert "ens10.loader.batches" in code  # through the data module
    assert "ens10.models.networks.mlp" not in code
    assert "ens10.models.networks" not in code


def test_a_change_of_a_layer_changes_those_that_use_it(monkeypatch, tmp_path):
    before = {name: identity_of(config, "d") for name, config in (("u", UNET), ("m", MLP))}
    real = identity.module_file
    changed = tmp_path / "unet.py"
    changed.write_text(real("ens10.models.networks.unet").read_text() + "\nMORE = 1\n")

    def file_of(name):
        return changed if name == "ens10.models.networks.unet" else real(name)

    monkeypatch.setattr(identity, "module_file", file_of)
    assert differences(before["u"], identity_of(UNET, "d")) == ["ens10.models.networks.unet"]
    assert differences(before["m"], identity_of(MLP, "d")) == []


def test_configuration_and_data_count():
    other = {**UNET, "trainer": {"max_epochs": 3}}
    assert differences(identity_of(UNET, "a"), identity_of(other, "b")) == ["config", "data"]


def test_imports_inside_functions_count():
    found = closure(["ens10.models.postprocessor"])
    assert "ens10.models.layers.smoe.tracking" in found
    assert "ens10.models.layers.smoe.layer" not in found
    tree = ast.parse(identity.module_file("ens10.cli").read_text())
    top = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert identity.imported_by("ens10.cli") - top


def test_a_class_that_is_not_there():
    with pytest.raises(ArgumentError, match=r"ens10\.models\.networks\.Unet cannot be imported"):
        identity_of({"network": "ens10.models.networks.Unet"}, "d")
