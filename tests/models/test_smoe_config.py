"""The layer as configurations build it, and with frozen choices."""

import numpy as np
import pytest
import torch
import xarray as xr
from jsonargparse import ArgumentParser

from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import area_weights
from ens10.models.layers.smoe import ConvGate, FixedGate, SMoE2d, TensorGate

GRID = (5, 6)


def noise(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def built(text):
    parser = ArgumentParser()
    parser.add_class_arguments(SMoE2d, "layer")
    return parser.instantiate_classes(parser.parse_string(text)).layer


@pytest.mark.parametrize("kind", ["list", "npy", "npz", "nc"])
def test_a_fixed_gate_and_named_area_come_from_yaml(kind, tmp_path):
    weights = noise(4, *GRID)
    path = tmp_path / f"map.{kind}"
    if kind == "npy":
        np.save(path, weights.numpy())
    elif kind == "npz":
        np.savez(path, weights=weights.numpy())
    elif kind == "nc":
        xr.DataArray(weights.numpy(), name="R", dims=("e", "y", "x")).to_netcdf(path)
    given = weights.tolist() if kind == "list" else path
    layer = built(f"""
layer:
  in_channels: 3
  num_experts: 4
  selected: 2
  area: cell
  gate:
    class_path: ens10.models.layers.smoe.FixedGate
    init_args:
      weights: {given}
""")
    torch.testing.assert_close(layer.gate.weight, weights)
    wanted = torch.tensor(area_weights([90, 45, 0, -45, -90])).float()[:, None]
    torch.testing.assert_close(layer.area, wanted)
    assert layer(noise(1, 3, *GRID)).shape == (1, 2, *GRID)


def test_a_tensor_gate_comes_from_yaml_without_area():
    gate = "{class_path: ens10.models.layers.smoe.TensorGate, init_args: "
    gate += "{num_experts: 4, selected: 2, grid: [5, 6]}}"
    layer = built(
        f"layer: {{in_channels: 3, num_experts: 4, selected: 2, area: none, gate: {gate}}}"
    )
    assert layer.area is None
    assert layer.gate.weight.shape == (4, *GRID)


def test_refuses_maps_and_areas_that_are_none(tmp_path):
    with pytest.raises(ArgumentError, match="there is no file"):
        FixedGate(tmp_path / "map.npy")
    (tmp_path / "map.txt").touch()
    with pytest.raises(ArgumentError, match=r"does not end in \.npy"):
        FixedGate(tmp_path / "map.txt")
    np.savez(tmp_path / "two.npz", a=np.zeros(3), b=np.zeros(3))
    with pytest.raises(ArgumentError, match=r"holds 2 arrays \(a, b\)"):
        FixedGate(tmp_path / "two.npz")
    with pytest.raises(UnknownNameError, match="did you mean 'cell'"):
        SMoE2d(3, 4, 2, TensorGate(4, 2, GRID), area="cel")
    with pytest.raises(ArgumentError, match="which this gate does not have"):
        SMoE2d(3, 4, 2, ConvGate(3, 4), area="cos")


def change(layer, how):
    """Another map of weights, in one of the ways that there are."""
    other = noise(*layer.gate.weight.shape, seed=7)
    if how == "in place":
        with torch.no_grad():
            layer.gate.weight.copy_(other)
    elif how == "loaded":
        layer.load_state_dict(layer.state_dict() | {"gate.weight": other})
    elif how == "gate loaded":
        layer.gate.load_state_dict({"weight": other})
    elif how == "trained":
        layer.train()
        layer.gate.weight.data[:] = other
        layer.eval()


@pytest.mark.parametrize("how", ["in place", "loaded", "gate loaded", "trained"])
def test_frozen_choices_are_forgotten_when_the_gate_changes(how, monkeypatch):
    layer, x = SMoE2d(3, 4, 2, TensorGate(4, 2, GRID), weighted=True), noise(2, 3, *GRID)
    wanted = layer(x)
    layer.freeze_routing()
    assert not layer.training
    with monkeypatch.context() as patch:
        patch.setattr(layer, "route", None)  # nothing is routed
        assert torch.equal(layer(x), wanted)
    change(layer, how)
    fresh = SMoE2d(3, 4, 2, TensorGate(4, 2, GRID), weighted=True).eval()
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), fresh(x))
    assert not torch.equal(layer(x), wanted)


def test_choices_that_depend_on_the_input_cannot_be_frozen():
    with pytest.raises(ArgumentError, match="cannot be frozen"):
        SMoE2d(3, 4, 2, ConvGate(3, 4)).freeze_routing()
