"""Class paths and names of buffers that stand in kept results and checkpoints stay as they are."""

import inspect
import json
from importlib import import_module

import pytest
import stored_names as record

from ens10.experiments.runner.key import VERSION, result_version
from ens10.models import networks

TABLE = json.loads(record.CLASS_PATHS.read_text())


def test_every_class_that_is_stored_can_be_imported():
    texts = list(record.stored_texts())
    assert len(texts) > 1000
    paths = {path for text in texts for path in record.PATH.findall(text)}
    assert {"ens10.models.statistical.EMOS", "ens10.loader.Points"} <= paths
    for path in sorted(paths):
        assert inspect.isclass(record.imported(path)), path
    homes = {home for text in texts for home in record.VERSIONED.findall(text)}
    assert {"ens10.models", "ens10.models.networks.UNet"} <= homes
    for home in sorted(homes):
        if home not in paths:  # a package, whose number it is
            assert isinstance(getattr(import_module(home), VERSION), int), home


@pytest.mark.parametrize("path", TABLE)
def test_a_class_path_is_what_it_was(path):
    entry, cls = TABLE[path], record.imported(path)
    assert record.kind_of(cls) == entry["kind"]
    assert list(result_version(path)) == [entry["version"]]  # it enters the key of kept cells
    parameters = inspect.signature(cls).parameters
    assert set(entry["arguments"]) <= set(parameters)


def test_parameters_and_buffers_have_the_names_and_shapes_that_are_recorded():
    recorded = record.read_states()
    models = {path.stem: record.built(path) for path in record.CONFIGS if path.stem in recorded}
    assert sorted(models) == sorted(recorded)
    classes = {type(part).__name__ for model in models.values() for part in model.modules()}
    assert set(networks.__all__) - {"Network"} <= classes  # each network is in a configuration
    for name, model in models.items():
        state = record.state_of(model)
        assert state == recorded[name], (
            f"{name}: {sorted(set(recorded[name]) ^ set(state)) or 'other shapes'}; checkpoints of "
            "earlier versions have the recorded names"
        )
