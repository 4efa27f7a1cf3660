"""The weighted mean that validation reports, exact over batches and processes."""

import torch
from torch import Tensor
from torchmetrics import Metric


class WeightedMean(Metric):
    """Sum of w x over sum of w, as two sums that merge exactly; 0 if all weights are 0.

    torchmetrics' MeanMetric adds in place, which fails when a module is fitted after it was
    validated: Lightning validates in inference mode, whose tensors must not be written to later.
    """

    full_state_update = False
    total: Tensor
    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("weight", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, total: Tensor, weight: Tensor) -> None:
        """Add one batch's sums of w x and of w."""
        self.total = self.total + total
        self.weight = self.weight + weight

    def compute(self) -> Tensor:
        """Return the mean over all batches."""
        return self.total / self.weight.clamp(min=torch.finfo(self.weight.dtype).tiny)
