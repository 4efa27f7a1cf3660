"""Heads for networks with outputs for each member: corrected members, or their moments."""

from torch import Tensor

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics import Estimator
from ens10.metrics.distributions import Ensemble, Normal
from ens10.models.heads import Head, checked_floor


class MembersHead(Head):
    """Corrected members as a residual on the raw ones: x_m + s * o_m.

    s is the standard deviation of the raw ensemble at that point and date, at least `floor`: an
    output of 0 is the raw ensemble. Where a raw member is NaN, all members are, and the network
    gets no gradient from there. The batch must carry the raw members (`data.members: true`).

    Args:
        estimator: estimator of the CRPS in training and validation; "plain" scores the members as
            the forecast distribution. "fair" and "almost_fair" assume independent members, and
            reward too much spread if the network couples members.
        floor: smallest s, in units of the target, e.g. 0.001 K.

    Raises:
        ArgumentError: a floor that is not positive.
    """

    out_channels = 1
    takes_members = True

    def __init__(self, estimator: Estimator = "plain", floor: float = 1e-3) -> None:
        super().__init__()
        self.estimator, self.floor = estimator, checked_floor(floor)

    def forward(self, outputs: Tensor, batch: Batch) -> Ensemble:
        """Return an ensemble of members (N, M, H, W) from outputs (N, M, 1, H, W).

        Raises:
            ArgumentError: the batch lacks the members, or has another number of them.
        """
        return Ensemble(corrected_members(outputs, batch, self.floor), self.estimator)


class MembersNormalHead(Head):
    """Normal distribution with mean and standard deviation (n - 1) of the corrected members.

    Members are corrected as by `MembersHead`, of which an output of 0 gives the moments of the raw
    ensemble. A standard deviation below `floor` is `floor`, and gets no gradient.

    Args:
        floor: smallest sigma and smallest s, in units of the target, e.g. 0.001 K.

    Examples:
        >>> import torch
        >>> from ens10.models import MembersNormalHead
        >>> members = torch.tensor([279.0, 280.0, 281.0]).reshape(1, 3, 1, 1)
        >>> batch = {"members": members, "raw_std": torch.ones(1, 1, 1)}
        >>> forecast = MembersNormalHead()(torch.zeros(1, 3, 1, 1, 1), batch)
        >>> forecast.mu.item(), forecast.sigma.item()
        (280.0, 1.0)

    Raises:
        ArgumentError: a floor that is not positive.
    """

    out_channels = 1
    takes_members = True

    def __init__(self, floor: float = 1e-3) -> None:
        super().__init__()
        self.floor = checked_floor(floor)

    def forward(self, outputs: Tensor, batch: Batch) -> Normal:
        """Return a normal with mu and sigma (N, H, W) from outputs (N, M, 1, H, W).

        Raises:
            ArgumentError: the batch lacks the members, has another number of them, or only one.
        """
        members = corrected_members(outputs, batch, self.floor)
        if members.shape[1] < 2:
            raise ArgumentError(
                "members", "one member has no standard deviation", "Use at least 2 members"
            )
        # clamped before the root, whose slope at 0 is infinite
        variance = members.var(dim=1).clamp(min=self.floor**2)
        return Normal(members.mean(dim=1), variance.sqrt(), positive=True)


def corrected_members(outputs: Tensor, batch: Batch, floor: float) -> Tensor:
    """Return raw members plus outputs in units of the raw spread, (N, M, H, W).

    Args:
        outputs: (N, M, 1, H, W).
        batch: with `members`.
        floor: smallest spread.

    Raises:
        ArgumentError: the batch lacks the members, or has another number of them.
    """
    if "members" not in batch:
        raise ArgumentError("members", "the batch has no raw members", "Set data.members to true")
    members: Tensor = batch["members"]
    if outputs.shape[1] != members.shape[1]:
        raise ArgumentError(
            "members",
            f"outputs of {outputs.shape[1]} members for {members.shape[1]} raw members",
            "Use features and members of the same ensemble",
        )
    missing = ~(members.isfinite().all(dim=1) & batch["raw_std"].isfinite())
    spread = batch["raw_std"].masked_fill(missing, 1).clamp(min=floor)
    # float32 also of half precision outputs, by promotion: half precision cannot represent Z500
    shift = spread.unsqueeze(1) * outputs.squeeze(2)
    corrected: Tensor = members + shift
    return corrected.masked_fill(missing.unsqueeze(1), float("nan"))
