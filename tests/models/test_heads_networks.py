"""Any network with any head and any loss: one step each, or one clear error."""

from inspect import Parameter, signature

import pytest
import torch
from jsonargparse import ArgumentParser

from ens10.errors import ArgumentError
from ens10.models import PostProcessor, networks
from ens10.models.heads import Head
from ens10.models.layers.smoe import track_loss
from ens10.models.losses import Loss

GRID, CHANNELS = (8, 12), 4
# what makes a network small; others are built from their channels, and the grid if they need one
SMALL = {
    "BiasNet": {"mean": 0},
    "Groenquist": {"inputs": 2, "target": 0, "depth": 2, "width": 2},
    "LocationUNet": {"widths": [4, 4], "embedding": 2},
    "MLP": {"hidden": 4},
    "MemberContext": {"grid": list(GRID), "embedding": 2},
    "PaperSpreadNet": {"spread": 1, "blocks": [4]},
    "PaperPoET": {"widths": [4, 4], "heads": 2},
    "PaperSAET": {"width": 4},
    "PoET": {"widths": [4, 4], "heads": 2, "attention_levels": 1},
    "SAET": {"width": 4, "depth": 1},
    "SMoEResNet": {"width": 4, "blocks": 1},
    "SMoEUNet": {"width": 4},
    "SpreadNet": {"spread": 1, "depth": 2, "width": 2},
    "Transformer": {"width": 4, "heads": 2, "depth": 1},
    "WithMembers": {"channels": 2, "hidden": 4},
}
NETWORKS = [name for name in networks.__all__ if name != "Network"]
FIXED = {
    "BiasNet",
    "Groenquist",
    "PaperBiasUNet",
    "PaperSpreadNet",
    "SpreadNet",
}  # their outputs are what they are
BOUNDS = {"lower": 200.0, "upper": 400.0}
HEADS = {
    "ResidualNormalHead": {},
    "BernsteinHead": {"degree": 4},
    "SplineHead": {"pieces": 3},
    "FamilyHead logistic": {"family": "logistic"},
    "FamilyHead truncated_normal": {"family": "truncated_normal", **BOUNDS},
    "FamilyHead csgd": {"family": "csgd"},
    "MembersHead": {},
    "MembersNormalHead": {},
    "RandomFieldHead": {"lengths": [0.0, 3000.0], "fields": 1},
    "DressingHead": {},
}
LOSSES = {
    "CRPSLoss": {},
    "LogScoreLoss": {},
    "ThresholdCRPSLoss": {"lower": 281.0},
    "MembersCRPSLoss": {"estimator": "fair"},
    "SpectralCRPSLoss": {},
    "EnergyLoss": {},
    "VariogramLoss": {},
    "SumLoss": {
        "losses": [{"class_path": "ens10.models.CRPSLoss"}] * 2,
        "factors": [1.0, 0.5],
    },
}
OF_MEMBERS = {"MembersCRPSLoss", "SpectralCRPSLoss", "EnergyLoss", "VariogramLoss"}
GIVE_MEMBERS = {"MembersHead", "RandomFieldHead"}
NO_DENSITY = {"BernsteinHead", *GIVE_MEMBERS}
CHANNELS_OF = {
    "BernsteinHead": 6,
    "SplineHead": 10,
    "MembersHead": 1,
    "MembersNormalHead": 1,
    "RandomFieldHead": 5,
    "DressingHead": 15,
    "FamilyHead csgd": 3,
}


def of_class(place, name, options):
    return {"class_path": f"ens10.models.{place}{name.split()[0]}", "init_args": options}


def channels_of(name):
    return CHANNELS_OF.get(name, 2)


def parts(network, head, loss="CRPSLoss"):
    """Network, head and loss that YAML of these names makes."""
    options = {"in_channels": CHANNELS, **SMALL.get(network, {})}
    grid = signature(getattr(networks, network)).parameters.get("grid")
    if grid is not None and grid.default is Parameter.empty:
        options["grid"] = list(GRID)
    if network == "WithMembers":
        inner = {"in_channels": 12, "hidden": 4, "out_channels": channels_of(head)}
        options["network"] = of_class("networks.", "MLP", inner)
    elif network == "MemberContext":
        members = head.startswith("Members")
        inner = {"width": 4, "heads": 2, "depth": 1, "out_channels": channels_of(head)}
        inner["in_channels"] = CHANNELS + 5
        options["network"] = of_class("networks.", "SAET" if members else "Transformer", inner)
    elif network not in FIXED:
        options["out_channels"] = channels_of(head)
    parser = ArgumentParser(exit_on_error=False)
    for name, base in (("network", networks.Network), ("head", Head), ("loss", Loss)):
        parser.add_subclass_arguments(base, name)
    given = {
        "network": of_class("networks.", network, options),
        "head": of_class("", head, HEADS[head]),
        "loss": of_class("", loss, LOSSES[loss]),
    }
    made = parser.instantiate_classes(parser.parse_object(given))
    return made["network"], made["head"], made["loss"]


def build(*names):
    return PostProcessor(*parts(*names))


def losses_of(head, batch, model):
    """The forecast's losses of all kinds, each alone or refused."""
    for name in LOSSES:
        loss = build("MLP" if "Members" not in head else "PoET", head, name).loss
        refused = name in OF_MEMBERS and head not in GIVE_MEMBERS
        if refused or (name == "LogScoreLoss" and head in NO_DENSITY):
            with pytest.raises(ArgumentError, match=r"[Cc]hoose"):
                loss.evaluate(model(batch), batch["target"], batch["weights"])
        else:
            yield name, loss.evaluate(model(batch), batch["target"], batch["weights"])


@pytest.mark.parametrize("head", HEADS)
def test_losses_and_their_gradients(head, make_batches):
    """Of each head with a network that fits, and with points that have no truth."""
    torch.manual_seed(0)
    batch = make_batches(1, missing=True)[0]
    if "Members" in head:
        batch["features"] = batch["features"].unsqueeze(1).expand(-1, 5, -1, -1, -1).clone()
        batch["members"][:, :, 0, :3] = torch.nan
    model = build("PoET" if "Members" in head else "MLP", head)
    for name, values in losses_of(head, batch, model):
        assert values.shape == batch["target"].shape, name
        model.zero_grad()
        torch.where(batch["weights"] > 0, values * batch["weights"], 0).mean().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        assert all(g.isfinite().all() for g in gradients), name
        assert any((g != 0).any() for g in gradients), name


@pytest.mark.parametrize("network", NETWORKS)
def test_a_step_of_each_network_with_each_head(network, make_batches):
    torch.manual_seed(0)
    plain = make_batches(1, grid=GRID)[0]
    for head in HEADS:
        made = parts(network, head)
        if made[0].out_channels != channels_of(head):
            assert network in FIXED
            with pytest.raises(ArgumentError, match="Set out_channels to"):
                PostProcessor(*made)
            continue
        if made[0].gives_members != made[1].takes_members:
            with pytest.raises(ArgumentError, match="takes those of"):
                PostProcessor(*made)
            continue
        model = PostProcessor(*made)
        batch = dict(plain)
        if model.network.takes_members:
            batch["features"] = plain["features"].unsqueeze(1).expand(-1, 5, -1, -1, -1).clone()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        loss = model.loss(model(batch), batch["target"]).mean()
        track_loss(loss, model.network).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        assert gradients
        assert all(g.isfinite().all() for g in gradients), head
        optimizer.step()
        assert model(batch).crps(batch["target"]).isfinite().all(), head


def test_a_head_of_other_channels_is_refused():
    with pytest.raises(ArgumentError, match="Set out_channels to 2"):
        PostProcessor(networks.SpreadNet(4, 1), build("MLP", "ResidualNormalHead").head)
