"""Training on points and patches: the same forecasts as on the fields they are taken from."""

from typing import get_args

import pytest
import pytorch_lightning as pl
import torch

from ens10.errors import ArgumentError, UnknownNameError
from ens10.loader import EnsembleDataModule, Patches, Points
from ens10.metrics.distributions import Ensemble, Normal
from ens10.models import (
    MembersHead,
    MembersNormalHead,
    MethodHead,
    PostProcessor,
    ResidualNormalHead,
    StatisticalPostProcessor,
)
from ens10.models.domain import Places, use
from ens10.models.heads import Spacing, corrected_members
from ens10.models.losses import SpectralCRPSLoss, SumLoss
from ens10.models.matching import as_fields
from ens10.models.networks import MLP, SAET, LocationUNet, MemberContext, PoET, Transformer, UNet
from ens10.models.statistical import ECC, EMOS, SeasonalEMOS

GRID, INPUTS = (8, 16), ["t2m", "u10"]


@pytest.fixture(scope="module")
def store(prepared):
    days, names = ["0104", "0402", "0702", "1003"], ["t2m", "u10"]
    folder = prepared("8x16", range(2000, 2008), days, names, seed=3, members=5, steps=(48,))
    return str(folder / "store.zarr")


def data(store, kind, batch_size=4, **options):
    return EnsembleDataModule(
        store, inputs=INPUTS, kind=kind, batch_size=batch_size, threads=0, **options
    )


def trainer(**options):
    settings = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    settings |= {"enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 1}
    return pl.Trainer(**settings | options)


def awakened(network):
    """The network with weights that are nowhere zero, so that all inputs count."""
    g = torch.Generator().manual_seed(5)
    for parameter in network.parameters():
        parameter.data.copy_(0.3 * torch.randn(parameter.shape, generator=g))
    return network


def context(network=Transformer, **options):
    inner = network(2 + 3 + 2, width=8, heads=2, **options)
    return MemberContext(inner, 2, context=1, grid=GRID, embedding=2)


def frozen(parameters):
    return torch.optim.SGD(parameters, lr=0.0)


POINTWISE = {
    "mlp": (lambda: MLP(4, hidden=8, grid=GRID), "moments", lambda: MethodHead(EMOS(local=True))),
    "mlp_seasonal": (lambda: MLP(4, hidden=8), "moments", lambda: MethodHead(SeasonalEMOS(1))),
    "transformer": (context, "members", ResidualNormalHead),
    "members": (
        lambda: MemberContext(_EachMember(7), 2, context=1, grid=GRID, embedding=2),
        "members",
        lambda: MembersHead(method=SeasonalEMOS(harmonics=1)),
    ),
    "members at quantiles": (
        lambda: MemberContext(_EachMember(7), 2, context=1, grid=GRID, embedding=2),
        "members",
        lambda: MembersHead(method=SeasonalEMOS(harmonics=1), spacing="quantiles"),
    ),
}


class _EachMember(Transformer):
    """A linear function of each member's channels, for a head of members."""

    gives_members = True

    def __init__(self, in_channels):
        super().__init__(in_channels, width=8, heads=2)
        self.out_channels = 1
        self.linear = torch.nn.Linear(in_channels, 1)

    def forward(self, features):
        return self.linear(features.movedim(2, -1)).movedim(-1, 2)


@pytest.mark.parametrize("name", POINTWISE)
def test_a_training_on_all_points_is_that_on_fields(store, name):
    """The mean loss over all dates and points does not depend on how they come."""
    losses = []
    for kind in ("points", "fields"):
        network, features, head = POINTWISE[name]
        torch.manual_seed(0)
        model = PostProcessor(awakened(network()), head(), optimizer=frozen)
        layout = Points(size=50, features=features) if kind == "points" else features
        layout = "fields" if layout == "moments" else layout
        run = trainer(num_sanity_val_steps=0)
        run.fit(model, data(store, layout, members="members" in name))
        losses.append({k: float(v) for k, v in run.callback_metrics.items() if "loss" in k})
    points, fields = losses
    assert points["val_loss"] == fields["val_loss"]  # validated on fields
    assert points["train_loss"] == pytest.approx(fields["train_loss"], rel=1e-5)


def test_training_on_points_learns(store):
    """The loss on the training dates falls below that of the statistical method it starts at."""
    losses = []
    for epochs, rate in ((1, 0.0), (6, 0.02)):
        torch.manual_seed(0)
        model = PostProcessor(
            context(zero_init=True),
            MethodHead(EMOS()),
            optimizer=lambda parameters, rate=rate: torch.optim.Adam(parameters, lr=rate),
        )
        run = trainer(max_epochs=epochs)
        run.fit(model, data(store, Points(size=64, features="members"), 8))
        losses.append(float(run.callback_metrics["train_loss"]))
    assert losses[1] < 0.97 * losses[0]


def test_values_of_a_map_at_places():
    H, W = GRID
    whole = torch.arange(2.0 * H * W).view(2, H, W)
    rows, columns = torch.tensor([0, 3]), torch.tensor([14, 5])
    values = Places(rows, columns, (2, 4), GRID).of_samples(whole)
    assert values.shape == (2, 2, 2, 4)
    assert torch.equal(values[:, 1], whole[:, 3:5, 5:9])
    assert torch.equal(values[:, 0], whole[:, 0:2, [14, 15, 0, 1]])  # around the globe
    single = torch.ones(3, 1, 1)
    assert Places(rows, columns, (2, 4), GRID).of_samples(single).shape == (3, 1, 1, 1)


def test_a_patch_has_the_embedding_of_its_place(store):
    """The forecast of a network without neighbours in a patch is that of the field, cut."""
    network = awakened(MLP(4, hidden=8, grid=GRID))
    model = PostProcessor(network, ResidualNormalHead())
    model.grid = GRID
    batches = data(store, Patches((4, 6), number=3)).batches("train")
    batch = {k: torch.from_numpy(v) for k, v in next(iter(batches)).items()}
    fields = model(
        {k: torch.from_numpy(v) for k, v in next(iter(batches.full_fields())).items()}
    ).mu
    patches = model(batch).mu
    assert len(patches) == 3 * len(fields)
    for n, (row, column) in enumerate(zip(batch["rows"], batch["columns"], strict=True)):
        columns = (column + torch.arange(6)) % GRID[1]
        cut = fields[n // 3, row : row + 4][:, columns]
        torch.testing.assert_close(patches[n], cut, rtol=1e-6, atol=1e-4)


def test_a_u_net_trains_on_patches_and_predicts_fields(store):
    torch.manual_seed(0)
    network = LocationUNet(
        4, GRID, widths=(8, 8), embedding=2, periodic_longitude=False, poles="zeros"
    )
    model = PostProcessor(network, ResidualNormalHead())
    module, run = data(store, Patches((8, 8), number=2)), trainer()
    run.fit(model, module)
    forecasts = run.predict(model, module)
    assert forecasts[0].forecast.mu.shape == (1, *GRID)


def test_points_are_fields_of_one_point():
    batch = {
        "features": torch.zeros(5, 3, 4),
        "raw_mean": torch.zeros(5, 2),
        "raw_std": torch.zeros(5, 2),
        "target": torch.zeros(5, 2),
        "weights": torch.ones(5, 2),
        "members": torch.zeros(5, 2, 3),
        "dates": torch.zeros(5, dtype=torch.int64),
        "latitude": torch.zeros(5),
    }
    fields = as_fields(batch)
    assert fields["features"].shape == (5, 3, 4, 1, 1)
    assert fields["members"].shape == (5, 2, 3, 1, 1)
    assert fields["raw_mean"].shape == (5, 2, 1, 1)
    assert as_fields(fields) is fields


def on_head(network, *loss):
    return PostProcessor(network, ResidualNormalHead(), *loss)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: on_head(UNet(4)), "points", "UNet uses neighbouring points"),
        (
            lambda: on_head(UNet(4, periodic_longitude=True)), Patches((8, 8)),
            "periodic_longitude",
        ),
        (lambda: on_head(MLP(4, grid=(8, 12))), "points", "8 x 16 points"),
        (
            lambda: on_head(context(), SumLoss([SpectralCRPSLoss()], [1.0])),
            Points(features="members"), "the data are points, but SpectralCRPSLoss",
        ),
        (lambda: StatisticalPostProcessor(EMOS()), "points", "fitted on whole fields"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(store, make, kind, message):
    with pytest.raises(ArgumentError, match=message):
        trainer(num_sanity_val_steps=0, limit_val_batches=0).fit(make(), data(store, kind))


def test_maps_of_other_layers_are_refused():
    whole = torch.zeros(1, *GRID)
    with use(Places(torch.zeros(1), torch.zeros(1), (2, 2), GRID)) as domain:
        assert domain.part(torch.ones(1, 1, 1)).shape == (1, 1, 1)
        with pytest.raises(ArgumentError, match="neither patches nor points"):
            domain.part(whole)


def test_context_is_what_it_says():
    """Deviation in units of the spread, its logarithm, and the mean, of the first channel."""
    seen = []

    class Record(Transformer):
        def forward(self, features):
            seen.append(features)
            return super().forward(features)

    g = torch.Generator().manual_seed(1)
    members = torch.randn(2, 5, 3, 4, 6, generator=g)
    network = MemberContext(Record(6, width=8, heads=2), 3, context=1)
    network(members)
    mean, spread = members[:, :, 0].mean(1), members[:, :, 0].std(1)
    given = seen[0]
    assert torch.equal(given[:, :, :3], members)
    expected = (members[:, :, 0] - mean[:, None]) / spread[:, None]
    torch.testing.assert_close(given[:, :, 3], expected, rtol=1e-5, atol=1e-5)
    for m in range(5):
        torch.testing.assert_close(given[:, m, 4], spread.log(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(given[:, m, 5], mean, rtol=1e-5, atol=1e-5)


def test_penalty_is_that_of_the_embedding():
    network = context()
    assert torch.equal(network.penalty(), network.embedding.penalty())
    assert MemberContext(Transformer(5), 2).penalty() is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MemberContext(MLP(4), 4), "takes no members"),
        (lambda: MemberContext(Transformer(4), 4), "Set its in_channels to 7"),
        (lambda: MemberContext(Transformer(7), 4, context=5), "5 of 4 channels"),
        (lambda: MemberContext(Transformer(9), 4, embedding=2), r"Set it to \[rows, columns\]"),
    ],
)
def test_contexts_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def solved_on_gaps(method, batches):
    """A method that is solved on batches without raw members at some points, and the first one."""
    for batch in batches:
        members = batch["members"]
        members[:, :, 0, :3] = torch.nan
        batch["raw_mean"], batch["raw_std"] = members.mean(1), members.std(1)
        method.collect(batch)
    method.solve()
    return method, batches[0], torch.zeros(*batches[0]["members"].shape[:2], 1, 8, 12)


def test_members_start_at_the_statistical_method(make_batches):
    """An output of 0 gives the method's forecast: its mean, deviation, and the members' order."""
    method, batch, zero = solved_on_gaps(EMOS(), make_batches(missing=True))
    expected = method(batch)
    members = MembersHead(method=method)(zero, batch).members
    valid = expected.mu.isfinite()
    assert torch.equal(members.isfinite().all(1), valid)
    torch.testing.assert_close(members.mean(1)[valid], expected.mu[valid], rtol=1e-6, atol=1e-3)
    torch.testing.assert_close(members.std(1)[valid], expected.sigma[valid], rtol=1e-4, atol=1e-4)
    ranks = (x.argsort(1)[valid[:, None].expand_as(x)] for x in (members, batch["members"]))
    assert torch.equal(*ranks)
    normal = MembersNormalHead(method=method)(zero, batch)
    torch.testing.assert_close(normal.sigma[valid], expected.sigma[valid], rtol=1e-4, atol=1e-4)
    one = MembersHead(method=method)(zero + 1, batch).members
    shift = (one - members)[:, 0][valid]
    torch.testing.assert_close(shift, expected.sigma[valid], rtol=1e-3, atol=1e-3)


def test_members_at_quantiles_start_at_ensemble_copula_coupling(make_batches):
    """An output of 0 gives the members of ECC; outputs move them in units of sigma."""
    method, batch, zero = solved_on_gaps(ECC(EMOS()), make_batches(missing=True))
    head = MembersHead(method=method.marginal, spacing="quantiles")
    expected, normal = method(batch).members, method.marginal(batch)
    members = head(zero, batch).members
    valid = normal.mu.isfinite()
    assert torch.equal(members.isfinite().all(1), valid)
    assert torch.equal(members.movedim(1, -1)[valid], expected.movedim(1, -1)[valid])
    outputs = torch.full_like(zero, 0.5, requires_grad=True)
    shift = (head(outputs, batch).members - members).movedim(1, -1)[valid]
    half = 0.5 * normal.sigma[valid][:, None].expand_as(shift)
    torch.testing.assert_close(shift, half, rtol=1e-3, atol=1e-3)
    crps = head(outputs, batch).crps(batch["target"])
    torch.where(crps.isnan(), 0, crps).sum().backward()
    assert outputs.grad.isfinite().all()


def test_quantiles_score_better_than_scaled_deviations():
    """For normal truth and ten members: 0.8 and 3.6 % above the CRPS of the distribution itself."""
    g = torch.Generator().manual_seed(0)
    members, target = (torch.randn(400, n, 8, 12, generator=g) for n in (10, 1))
    batch = {
        "members": members, "raw_mean": members.mean(1), "raw_std": members.std(1),
        "target": target[:, 0], "dates": 86400 * torch.arange(400),
    }  # fmt: skip
    outputs = torch.zeros(400, 10, 1, 8, 12)
    normal = Normal(torch.zeros(400, 8, 12), torch.ones(400, 8, 12))
    ensembles = (corrected_members(outputs, batch, 1e-3, normal, s) for s in get_args(Spacing))
    scaled, quantiles = (Ensemble(m).crps(batch["target"]).mean() for m in ensembles)
    best = normal.crps(batch["target"]).mean()
    assert scaled / best == pytest.approx(1.036, abs=0.004)
    assert quantiles / best == pytest.approx(1.008, abs=0.002)


def test_spacings_that_cannot_be():
    with pytest.raises(ArgumentError, match=r"spacing: quantiles need .* Set method"):
        MembersHead(spacing="quantiles")
    with pytest.raises(UnknownNameError, match="spacing"):
        MembersHead(method=EMOS(), spacing="ecc")


@pytest.mark.parametrize(("inner", "factor"), [(SAET, 1.1), (PoET, 1.06)])
def test_context_lets_the_spread_grow_in_the_first_steps(inner, factor):
    """Members have a third of the spread of the error; after 20 steps they have more of it."""
    torch.set_num_threads(1)

    def growth(context):
        torch.manual_seed(0)
        g = torch.Generator().manual_seed(0)
        centre = torch.randn(4, 1, 8, 16, generator=g)
        members = centre + 0.3 * torch.randn(4, 6, 8, 16, generator=g)
        other = torch.randn(4, 6, 8, 16, generator=g)
        truth = centre[:, 0] + 0.9 * torch.randn(4, 8, 16, generator=g)
        batch = {
            "features": torch.stack([members, other], 2), "members": members, "target": truth,
            "raw_mean": members.mean(1), "raw_std": members.std(1),
        }  # fmt: skip
        size = {"width": 8} if inner is SAET else {"widths": (8, 16)}
        network = inner(2 + 3 * context, **size)
        network = MemberContext(network, 2, context=1) if context else network
        optimizer, head = torch.optim.Adam(network.parameters(), 0.004), MembersHead()
        for _ in range(20):
            optimizer.zero_grad()
            head(network(batch["features"]), batch).crps(truth).mean().backward()
            optimizer.step()
        with torch.no_grad():
            made = head(network(batch["features"]), batch).members
        return float(made.std(1).mean() / members.std(1).mean())

    assert growth(context=True) > max(factor, growth(context=False))


def test_saet_takes_context():
    network = MemberContext(SAET(7, width=8, depth=1, heads=2), 4, context=1)
    outputs = network(torch.randn(1, 4, 4, 8, 12))
    assert network.gives_members
    assert outputs.shape == (1, 4, 1, 8, 12)
