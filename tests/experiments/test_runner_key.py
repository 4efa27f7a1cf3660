"""When a finished cell still counts."""

import pytest

from ens10.errors import ArgumentError
from ens10.experiments.runner.key import STATIONS, differences, key_of, result_version
from ens10.models.networks import unet

UNET = {"model": {"init_args": {"network": {"class_path": "ens10.models.networks.UNet"}}}}
MLP = {"model": {"network": "ens10.models.networks.MLP", "gain": [1, 2]}}
LOCAL = {"model": "ens10.models.statistical.EMOS"}


def test_a_network_has_a_number_of_its_own_and_a_method_that_of_its_package():
    versions = key_of(UNET, "data")["versions"]
    assert set(versions) == {*STATIONS, "ens10.models.networks.UNet"}
    assert list(result_version("ens10.models.statistical.EMOS")) == ["ens10.models.statistical"]
    assert list(result_version("ens10.models.CRPSLoss")) == ["ens10.models"]
    heat = "ens10.experiments.studies.heat"
    assert list(result_version(f"{heat}.HeatModule")) == [heat]


def test_a_new_number_changes_the_keys_of_those_that_use_it(monkeypatch):
    before = [key_of(config, "d") for config in (UNET, MLP, LOCAL)]
    monkeypatch.setattr(unet, "RESULT_VERSION", unet.RESULT_VERSION + 1)
    after = [key_of(config, "d") for config in (UNET, MLP, LOCAL)]
    changed = [differences(old, new) for old, new in zip(before, after, strict=True)]
    assert changed == [["ens10.models.networks.UNet"], [], []]


def test_configuration_and_data_count():
    other = {**UNET, "trainer": {"max_epochs": 3}}
    assert differences(key_of(UNET, "a"), key_of(other, "b")) == ["config", "data"]


@pytest.mark.parametrize("old", [{}, {"versions": {}}, {"versions": "1"}, {"code": {"a": "b"}}])
def test_a_key_from_before_result_versions_is_older(old):
    new = key_of(UNET, "a")
    kept = {**old, "config": new["config"], "data": "a"}
    assert differences(kept, new) == ["code from before result versions"]


def test_a_class_that_is_not_there():
    with pytest.raises(ArgumentError, match=r"ens10\.models\.networks\.Unet cannot be imported"):
        key_of({"network": "ens10.models.networks.Unet"}, "d")
    with pytest.raises(ArgumentError, match=r"ens10\.grid declares no RESULT_VERSION"):
        key_of({"network": "ens10.grid.area_weights"}, "d")
