"""The spatial mixture-of-experts layer."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.domain import current
from ens10.models.layers.padding import FreeConv2d, Poles
from ens10.models.layers.smoe import compiled
from ens10.models.layers.smoe.gates import (
    Gate,
    area_by_name,
    check_selected,
    largest_weights,
    normalise_area,
    planes,
)
from ens10.models.layers.smoe.routing import (
    ChosenValues,
    ErrorSignal,
    RoutedOutput,
    RoutingRule,
    register_layer,
)
from ens10.models.layers.smoe.tracking import RoutingState

Activation = Literal["none", "softmax", "abs"]
Kernel = Literal["auto", "eager", "compiled"]


class SMoE2d(nn.Module):
    """Spatial mixture of experts: at each grid point a gate selects k of E experts.

    An expert is a convolution with F filters and no bias, the same at all points (Dryden & Hoefler
    2022, arXiv:2211.13491). The gate computes weights R (N, E, H, W). The output holds the values
    of the k experts of largest weight in rank order: channels r F to r F + F - 1 are the filters of
    the expert of rank r.

    In training mode a gate with parameters learns from the routing classification loss
    (`classification_gradient`; `incorrect_choices` defines incorrect). It then gets no other
    gradient from this layer, and passes none to the input. The experts' gradient at incorrect
    choices is multiplied by `damping`. All of this happens in the one backward pass of the loss, so
    that layers can be stacked and gradients accumulated, scaled or averaged over processes. The
    classification loss is multiplied by the scale of the loss (that of mixed precision, 1/A for
    accumulation of A batches): call `track_loss` in the training step. In evaluation mode, and with
    a gate without gradient (`FixedGate`), whose choices count as correct, the backward pass is the
    plain one. Without the routing loss the gate learns only if `weighted`.

    Args:
        in_channels: channels of the input.
        num_experts: number E of experts.
        selected: number k of experts selected at each point.
        gate: computes R; may be shared between layers.
        kernel_size: rows and columns of the experts' filters, odd.
        filters: number F of filters of an expert.
        stride: rows and columns from one output to the next; the gate's map has the output's size.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        weighted: True if values are multiplied by their weight R.
        noise: True if N(0, 1/E^2) is added to R in training.
        activation: applied to R after the noise: "none", "softmax" over the experts, or "abs".
        routing_loss: True if the gate learns by routing classification.
        quantile: minimum fraction of a sample's choices that counts as correct; 0.3 in the paper.
        margin: excess of an error over that quantile from which a choice is incorrect for the
            routing loss, in units of the output if the loss is the mean squared error. With 0, the
            same fraction is incorrect even at convergence. The default is that of the published
            code.
        damping_margin: margin for the damping.
        curvature: second derivative of the loss at a point with respect to the output, so that
            margins are in its units: 2 for the squared error; 1 / (sigma sqrt(pi)) for the CRPS of
            a reliable normal forecast whose mean is the output, and sigma / (2 sqrt(pi)) if the
            output is the logarithm of its deviation sigma. (The mean of 2 phi(z) / sigma, and of
            2 sigma z^2 phi(z), for z from N(0, 1).)
        relative_margins: True if both margins are relative to the root mean square of the sample's
            output, for outputs of any scale.
        error_signal: error in the routing loss if `weighted`: "output", the error at the output, or
            "weight", that times the expert's unweighted value, which is the gradient of the weight
            and the rule of the published code. With "weight", a choice counts as correct wherever
            its value is near 0, however wrong it is. Damping always uses the error at the output.
        damping: factor of the experts' gradient at incorrect choices; 1 for no damping. The
            published code uses 0.
        gain: experts are initialised from U(+-gain sqrt(3 / n)), n = in_channels kernel_size^2. The
            published code uses 1 in the last layer and sqrt(2) before; None is torch's default for
            convolutions, 1 / sqrt(3).
        area: (H,) or (H, W) weights of the output's points in the loss. Errors are then divided by
            them, and the quantile is a fraction of area; points of weight 0 count as correct. Or
            "cell", "cos" or "none" for the rows of a grid from pole to pole with the gate's map.
        kernel: "eager" computes all E experts with torch's operations; "compiled" only the k
            chosen, on the CPU, for F = 1 and stride 1, in float32 and float64; "auto" chooses
            "compiled" where possible and faster. The attribute may be changed at any time.

    Raises:
        ArgumentError: more experts selected than there are, a gate of another number of experts,
            an option outside its range, or relative margins with the "weight" signal.
        UnknownNameError: another value of `activation`, `poles`, `error_signal` or `kernel`.
    """

    splittable = True
    area: Tensor | None
    key: int

    def __init__(
        self,
        in_channels: int,
        num_experts: int,
        selected: int,
        gate: Gate,
        kernel_size: int = 3,
        filters: int = 1,
        stride: int = 1,
        *,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        weighted: bool = False,
        noise: bool = False,
        activation: Activation = "none",
        routing_loss: bool = True,
        quantile: float = 0.3,
        margin: float = 1e-5,
        damping_margin: float = 1e-3,
        curvature: float = 2.0,
        relative_margins: bool = False,
        error_signal: ErrorSignal = "output",
        damping: float = 0.1,
        gain: float | None = None,
        area: Tensor | Sequence[float] | str | None = None,
        kernel: Kernel = "auto",
    ) -> None:
        super().__init__()
        check_selected(selected, num_experts)
        if filters < 1:
            raise ArgumentError("filters", f"{filters} is not positive")
        if activation not in get_args(Activation):
            raise UnknownNameError("activation", activation, get_args(Activation))
        if kernel not in get_args(Kernel):
            raise UnknownNameError("kernel", kernel, get_args(Kernel))
        if gate.num_experts != num_experts:
            raise ArgumentError(
                "gate", f"the gate has {gate.num_experts} experts, the layer has {num_experts}"
            )
        self.in_channels, self.out_channels = in_channels, selected * filters
        self.num_experts, self.selected, self.filters = num_experts, selected, filters
        self.weighted, self.noise, self.activation = weighted, noise, activation
        self.gate, self.kernel = gate, kernel
        self.experts = FreeConv2d(
            in_channels,
            num_experts * filters,
            kernel_size,
            stride=stride,
            periodic_longitude=periodic_longitude,
            poles=poles,
        )
        if gain is not None:
            self._initialise_experts(gain)
        self.state = RoutingState()  # a submodule, so that `track_loss` finds it
        self.rule = RoutingRule(
            quantile=quantile,
            margin=margin,
            damping_margin=damping_margin,
            curvature=curvature,
            relative=relative_margins,
            error_signal=error_signal,
            damping=damping,
            classify=routing_loss,
            state=self.state,
        )
        if isinstance(area, str):
            weights = area_by_name(area, gate.rows)
        else:
            weights = None if area is None else normalise_area(area)
        self.register_buffer("area", weights, persistent=False)
        self._frozen_routing: tuple[Tensor, Tensor, list[tuple[int, int]]] | None = None
        register_layer(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copy as `Module.__setstate__` does; it gets a key of its own."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        register_layer(self)

    def _initialise_experts(self, gain: float) -> None:
        """Draw the experts' filters from U(+-gain sqrt(3 / n))."""
        if not 0 < gain < math.inf:
            raise ArgumentError("gain", f"{gain} is not positive")
        bound = gain * math.sqrt(3 / self.experts.weight[0].numel())
        nn.init.uniform_(self.experts.weight, -bound, bound)

    def forward(self, features: Tensor, routing: Tensor | None = None) -> Tensor:
        """(N, in_channels, H, W) -> (N, k F, H', W'), H' = ceil(H / stride).

        Args:
            features: the input.
            routing: R from an earlier call of `route`; None to compute it.

        Raises:
            ArgumentError: another number of channels or dtype than the layer's, or a gate map or
                area of another size than the output.
        """
        self._check(features)
        if routing is None:
            routing, choices = self._route(features)
        else:
            choices = largest_weights(routing, self.selected)
        self._check_map(routing, features)
        weights = None
        if self.weighted:
            source = routing.detach() if self._gate_learns_by_classification() else routing
            weights = source.gather(1, planes(choices))
        use_compiled = self._use_compiled(features)
        values: Tensor
        if use_compiled:
            grid = compiled.Grid.of(self.experts)
            values = compiled.chosen_experts(
                features, self.experts.weight, choices, grid.wrap, grid.replicate
            )
        else:
            values = self.experts(features).unflatten(1, (self.num_experts, self.filters))
            values = ChosenValues.apply(values, choices)  # type: ignore[no-untyped-call]
        weights = None if weights is None else weights[:, :, None]
        uses_rule = self.training and routing.requires_grad
        if uses_rule and (self.rule.classify or self.rule.damping < 1):
            values = RoutedOutput.apply(  # type: ignore[no-untyped-call]
                values, weights, routing, choices, self._local_area(),
                self.rule, self.key, use_compiled,
            )  # fmt: skip
        elif weights is not None:
            values = values * weights.to(values.dtype)
        return values.flatten(1, 2)

    def route(self, features: Tensor) -> Tensor:
        """Return R, the experts' weights: (N, E, H', W'), or (1, E, H', W') for all samples."""
        if self._gate_learns_by_classification():
            # the classification loss trains gates only, not earlier layers
            features = features.detach()
        # in full precision: in half precision many weights are equal
        with torch.autocast(features.device.type, enabled=False):
            dtype = self.experts.weight.dtype
            if self.gate.rows is None:
                features = features.to(dtype)
            else:  # a map, which takes shape and type of the features alone
                features = features.new_zeros((), dtype=dtype).expand(features.shape)
            routing: Tensor = self.gate(features)
            if self.noise and self.training:
                domain = current()
                shape = (features.shape[0], self.num_experts, *domain.shape(routing))
                noise = torch.randn(shape, dtype=routing.dtype, device=routing.device)
                routing = routing + domain.part(noise) / self.num_experts
            if self.activation == "softmax":
                routing = routing.softmax(1)
            elif self.activation == "abs":
                routing = routing.abs()
        return routing

    def freeze_routing(self) -> None:
        """Compute the choices once and use them in all later evaluations.

        Sets evaluation mode. Returning to training mode, loading weights, moving the layer or any
        other change of the gate's parameters discards the choices.

        Raises:
            ArgumentError: the gate depends on the input.
        """
        if self.gate.rows is None:
            raise ArgumentError("gate", "its choices depend on the input: they cannot be frozen")
        self.eval()
        with torch.no_grad():
            routing = self.route(self.experts.weight.new_zeros(1, self.in_channels, 1, 1))
        self._frozen_routing = (routing, largest_weights(routing, self.selected), self._stamps())

    def train(self, mode: bool = True) -> "SMoE2d":
        """Set training mode as `Module.train` does; training discards frozen choices."""
        if mode:
            self._frozen_routing = None
        super().train(mode)
        return self

    def _stamps(self) -> list[tuple[int, int]]:
        """Return a key that changes with the gate's parameters and buffers and the grid's part."""
        tensors = chain(self.gate.parameters(), self.gate.buffers())
        return [(id(current()), 0), *((t.data_ptr(), t._version) for t in tensors)]

    def _route(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return R and the choices (N or 1, H', W', k), from the frozen ones if they are valid."""
        if self._frozen_routing is not None and not torch.compiler.is_compiling():
            routing, choices, stamps = self._frozen_routing
            if not self.training and stamps == self._stamps():
                return routing, choices
            self._frozen_routing = None
        routing = self.route(features)
        return routing, largest_weights(routing, self.selected)

    def choices(self, features: Tensor) -> Tensor:
        """Return the chosen experts in rank order, (N, k, H', W') or (1, k, H', W')."""
        return planes(largest_weights(self.route(features), self.selected))

    def _use_compiled(self, features: Tensor) -> bool:
        """Return True if the compiled form is to be used.

        Raises:
            ArgumentError: `kernel` is "compiled", but the form cannot be used.
        """
        if self.kernel == "eager":
            return False
        reason = compiled.reason_against(features, self.experts, self.filters)
        if self.kernel == "compiled" and reason is not None:
            raise ArgumentError("kernel", f"the compiled form cannot be used: {reason}")
        return reason is None and (
            self.kernel == "compiled" or compiled.is_faster(features, self.experts)
        )

    def _gate_learns_by_classification(self) -> bool:
        """Return True if the gate's only gradient is that of the routing classification."""
        return self.training and self.rule.classify

    def _check(self, features: Tensor) -> None:
        """Refuse features of another shape or dtype, or a gate of another dtype than the layer."""
        if features.ndim != 4 or features.shape[1] != self.in_channels:
            raise ArgumentError(
                "features",
                f"shape {tuple(features.shape)}, must be (N, {self.in_channels}, H, W)",
            )
        dtype = self.experts.weight.dtype
        if features.dtype != dtype and not torch.is_autocast_enabled(features.device.type):
            raise ArgumentError(
                "features", f"{features.dtype}, but the layer is {dtype}", "Convert one of them"
            )
        for tensor in chain(self.gate.parameters(), self.gate.buffers()):
            if tensor.is_floating_point() and tensor.dtype != dtype:
                raise ArgumentError("gate", f"{tensor.dtype}, but the layer is {dtype}")

    def _local_area(self) -> Tensor | None:
        """Return the loss weights of the points in this process's part of the grid."""
        return None if self.area is None else current().part(self.area)

    def _check_map(self, routing: Tensor, features: Tensor) -> None:
        """Refuse a gate's map or an area that does not fit the output."""
        N, E = len(features), self.num_experts
        H, W = (-(-n // self.experts.stride[0]) for n in features.shape[2:])
        if routing.shape not in ((1, E, H, W), (N, E, H, W)):
            raise ArgumentError(
                "gate",
                f"its map has shape {tuple(routing.shape)}, must be ({N}, {E}, {H}, {W}), or 1 "
                "for the first",
                "Build the gate for the grid and the stride of the layer",
            )
        if routing.dtype != (dtype := self.experts.weight.dtype):
            raise ArgumentError("gate", f"its map is {routing.dtype}, but the layer is {dtype}")
        area = self._local_area()
        if area is not None and area.shape not in ((H, 1), (H, W)):
            raise ArgumentError(
                "area", f"shape {tuple(area.shape)}, but the output has {H} x {W} points"
            )
