"""A transformer over the members at each grid point: a reconstruction of a baseline."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from ens10.errors import ArgumentError
from ens10.models.networks.base import Network

RESULT_VERSION = 1  # raise it when results change


_FEW_MEMBERS = 32  # half of the tokens that CUDA's kernels of fused attention work on at a time


# for a channel of a token in a layer; 42 are counted in bfloat16 (benchmarks/step_counts.py)
_SAVED_BYTES = 100


def _faster_attention(tokens: Tensor) -> AbstractContextManager[None]:
    """Return a context in which torch computes attention between members by the faster method.

    CUDA's fused kernels pad the members to 64, and fail for very many points in half precision.
    For few members, matrix products and a softmax as separate operations take less time.

    Args:
        tokens: (P, M, C), of M members at P points.
    """
    if tokens.is_cuda and tokens.shape[1] <= _FEW_MEMBERS:
        return sdpa_kernel(SDPBackend.MATH)
    return nullcontext()


class Transformer(Network):
    """Self-attention over the members at each grid point, with the same weights everywhere.

    The features of a member at a point are a token. Tokens are embedded linearly, without a
    position since members are exchangeable, and pass `depth` pre-normalised encoder layers (Vaswani
    et al. 2017, arXiv:1706.03762), a normalisation, the mean over the members, and a linear layer
    to the outputs of the point. The outputs are invariant to permutations of the members; any
    number of members is accepted.

    Ashkboos et al. 2022 name a Transformer as baseline and give neither code nor sizes; this is our
    reconstruction. Parameters with the defaults: 25,794 for 7 channels, 25,922 for 11.

    Args:
        in_channels: channels of a member's features.
        out_channels: output channels at each point.
        width: channels of a token, a multiple of `heads`.
        heads: number of attention heads.
        depth: number of encoder layers.
        chunk: points processed at a time, unless a GPU has memory for all. With several chunks,
            training recomputes each in the backward pass (checkpointing), which limits memory.
        zero_init: initialise the last layer to zero, so that training starts with an output of 0.

    Raises:
        ArgumentError: a width that is not a multiple of heads, or a chunk of no points.
    """

    splittable = True
    takes_members = True
    pointwise = True
    least_members = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 2,
        width: int = 32,
        heads: int = 4,
        depth: int = 2,
        chunk: int = 16384,
        zero_init: bool = False,
    ) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ArgumentError("width", f"{width} is not a multiple of {heads} heads")
        if chunk < 1:
            raise ArgumentError("chunk", f"{chunk} is less than 1")
        self.in_channels, self.out_channels, self.chunk = in_channels, out_channels, chunk
        self.embed = nn.Linear(in_channels, width)
        layers = [
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(depth)
        ]
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, out_channels)
        if zero_init:
            nn.init.zeros_(self.last.weight)
            nn.init.zeros_(self.last.bias)

    def forward(self, features: Tensor) -> Tensor:
        """(N, M, in_channels, H, W) -> (N, out_channels, H, W)."""
        N, M, C, H, W = features.shape
        # points are the batch of the attention, members its sequence
        tokens = features.permute(0, 3, 4, 1, 2).reshape(N * H * W, M, C)
        chunks = torch.split(tokens, len(tokens) if self._fits(tokens) else self.chunk)
        if len(chunks) > 1 and torch.is_grad_enabled():
            # without dropout no layer draws random numbers, whose state need not be saved
            outputs = [
                checkpoint(self._predict, chunk, use_reentrant=False, preserve_rng_state=False)
                for chunk in chunks
            ]
        else:
            outputs = [self._predict(chunk) for chunk in chunks]
        return torch.cat(outputs).view(N, H, W, self.out_channels).permute(0, 3, 1, 2)

    def _fits(self, tokens: Tensor) -> bool:
        """Return True if half of a GPU's memory, free or not, holds what training saves."""
        if not tokens.is_cuda:
            return False
        width, layers = self.embed.out_features, len(self.layers)
        saved = _SAVED_BYTES * tokens.shape[0] * tokens.shape[1] * width * layers
        return saved < torch.cuda.mem_get_info(tokens.device)[1] // 2

    def _predict(self, tokens: Tensor) -> Tensor:
        """Return the outputs of P points: (P, M, in_channels) -> (P, out_channels)."""
        with _faster_attention(tokens):
            members = self.norm(self.layers(self.embed(tokens)))
        outputs: Tensor = self.last(members.mean(dim=1))
        return outputs
