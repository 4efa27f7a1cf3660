"""The names of torch that the code uses are all older than torch 2.11, the lower bound.

Tests run with the release in constraints.txt alone, so this is what guards the bound: a name that
is not in the list below is to be looked up in torch's release notes before it is added here.
Methods of tensors and arguments of functions are not seen.
"""

import ast
from pathlib import Path

import torch
import torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks
import torch.distributed.algorithms.ddp_comm_hooks.default_hooks
import torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook
import torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook
import torch.distributed.device_mesh
import torch.distributed.fsdp
import torch.distributed.tensor
import torch.futures
import torch.nn.utils.prune
import torch.utils.flop_counter

ROOT = Path(__file__).parents[2]
# All of these are in torch 2.0's documentation, compiler.is_compiling in that of 2.3,
# utils.flop_counter in that of 2.1, utils._pytree.tree_leaves in the code of
# 2.2, nn.attention in that of 2.3, get_autocast_dtype and library.custom_op in that of 2.4,
# accelerator and nn.utils.get_total_norm in that of 2.6, _foreach_copy_ in the code of 2.1,
# distributed.tensor in that of 2.5, distributed.fsdp.FSDPModule and fully_shard in that of 2.6.
NAMES = """
    amax enable_grad
    baddbmm bmm broadcast_to nn.functional.binary_cross_entropy_with_logits nn.functional.leaky_relu
    Generator Size Tensor arange as_tensor autograd autograd.Function
    autograd.function.once_differentiable bool broadcast_shapes cat ceil empty_like erf exp finfo
    float32 float64 from_numpy full_like get_default_dtype hypot inf linalg linalg.eigh load maximum
    load nan nn nn.BatchNorm2d nn.Conv2d nn.Linear nn.Module nn.ModuleDict nn.ReLU nn.Sequential
    nn.functional nn.functional.interpolate nn.functional.max_pool2d nn.functional.pad nn.init
    nn.init.zeros_ no_grad ones_like optim optim.Adam optim.Optimizer optim.SGD promote_types
    randint randn sign sort special special.ndtr special.ndtri stack where zeros zeros_like
    empty uint8 cuda cuda.Event utils.data.Dataset
    compile randperm cuda.Stream cuda.current_stream cuda.stream
    abs addcmul argsort atan2 bfloat16 broadcast_tensors clamp contiguous_format digamma expm1 fft
    fft.rfft float16 is_grad_enabled isfinite lgamma log log1p minimum mul nn.Parameter searchsorted
    sigmoid special.erfcx special.gammainc special.log_ndtr split sqrt strided sub tanh
    compiler compiler.is_compiling library library.custom_op
    autocast bincount cos dtype einsum int16 int32 int64 is_autocast_enabled linalg.pinv
    linspace logit unflatten nn.AvgPool2d nn.Identity nn.LayerNorm nn.ModuleList
    nn.TransformerEncoderLayer nn.init.uniform_ polar rand sin softmax tensor
    utils.checkpoint.checkpoint full get_num_threads
    nan_to_num nn.functional.mse_loss optim.lr_scheduler.LambdaLR utils.data.DataLoader
    utils.data.IterableDataset
    nn.ParameterList nn.functional.avg_pool2d nn.functional.relu nn.init.normal_
    distributed.algorithms._checkpoint.checkpoint_wrapper.CheckpointWrapper nn.CELU nn.Dropout
    nn.ELU nn.GELU nn.GroupNorm nn.Hardsigmoid nn.Hardswish nn.Hardtanh nn.LeakyReLU nn.LogSigmoid
    nn.MaxPool2d nn.Mish nn.MultiheadAttention nn.PReLU nn.ParameterDict nn.ReLU6 nn.SELU nn.SiLU
    nn.Sigmoid nn.Softplus nn.Softsign nn.Tanh nn.TransformerEncoder
    nn.functional.batch_norm ops ops.aten ops.aten.native_batch_norm_backward
    distributed.fsdp.FSDPModule linalg.vector_norm
    nn.attention.SDPBackend nn.attention.SDPBackend.MATH nn.attention.sdpa_kernel
    autograd.graph.saved_tensors_hooks device ops.aten._local_scalar_dense
    ops.aten._local_scalar_dense.default ops.aten.copy_ ops.aten.copy_.default
    utils._python_dispatch.TorchDispatchMode utils.flop_counter.flop_registry
    utils.flop_counter.flop_registry.get
    channels_last cuda.get_device_properties distributed.device_mesh.init_device_mesh
    distributed.fsdp.fully_shard distributed.tensor.DTensor distributed.tensor.distribute_tensor
    get_autocast_dtype nn.functional.conv2d nn.parallel.DistributedDataParallel ones
    nn.functional.softplus cuda.device_count cuda.get_rng_state_all cuda.set_rng_state_all
    get_rng_state nn.functional.gelu set_rng_state
    ops.aten.batch_norm_update_stats ops.aten.convolution_backward var_mean
    cuda.get_device_name cuda.is_available cuda.max_memory_allocated cuda.synchronize manual_seed
    optim.AdamW optim.lr_scheduler optim.lr_scheduler.ExponentialLR random random.fork_rng save
    cumsum isnan movedim special.logit take_along_dim utils.flop_counter.FlopCounterMode
    utils._pytree.tree_leaves inference_mode
    autograd.grad fft.irfft long nn.ConvTranspose2d nn.functional.one_hot
    optim.lr_scheduler.CosineAnnealingLR Tensor.detach cuda.mem_get_info
    accelerator accelerator.current_accelerator nn.utils nn.utils.get_total_norm _foreach_copy_
    nn.modules.batchnorm._NormBase
    Tensor.backward Tensor.cpu Tensor.cumsum Tensor.exp Tensor.log Tensor.numpy Tensor.pow
    Tensor.softmax Tensor.sum Tensor.to autograd.backward norm pow prod rsqrt sum
    _subclasses.fake_tensor.FakeTensor _subclasses.fake_tensor.FakeTensor.device
    _subclasses.fake_tensor.FakeTensorMode overrides.TorchFunctionMode utils._pytree.tree_map
    distributed.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook
    distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook
    distributed.algorithms.ddp_comm_hooks.post_localSGD_hook.PostLocalSGDState
    distributed.algorithms.ddp_comm_hooks.post_localSGD_hook.post_localSGD_hook
    distributed.algorithms.ddp_comm_hooks.powerSGD_hook.PowerSGDState
    distributed.algorithms.ddp_comm_hooks.powerSGD_hook.powerSGD_hook
    distributed.algorithms.ddp_comm_hooks.debugging_hooks.noop_hook lerp log2
    futures futures.Future nn.utils.prune nn.utils.prune.BasePruningMethod
    nn.utils.prune.L1Unstructured nn.utils.prune.global_unstructured
    special.gammaincc special.xlogy
"""
OLD = {"torch", *(f"torch.{name}" for name in NAMES.split())}


def names_in(tree):
    """Every name of torch in a file, in full, such as "torch.nn.functional.pad"."""
    full = {"torch": "torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            for alias in node.names:
                full[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    yield from full.values()
    for node in ast.walk(tree):
        yield from _chains(node, full)


def _chains(node, full):
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if parts and isinstance(node, ast.Name) and node.id in full:
        yield ".".join([full[node.id], *reversed(parts)])


def names_used():
    for folder in ("ens10", "metrics", "models", "experiments"):
        for path in (ROOT / folder).rglob("*.py"):
            yield from names_in(ast.parse(path.read_text()))


def test_no_new_names():
    used = set(names_used())
    assert "torch.nn.functional.pad" in used
    assert used - OLD == set()


def test_names_are_found():
    text = "import torch\nfrom torch import nn as n\nn.functional.pad(torch.where(x).sum(), 1)"
    found = set(names_in(ast.parse(text)))
    assert {"torch.nn", "torch.nn.functional.pad", "torch.where"} <= found


def test_the_list_is_of_torch():
    for name in OLD:
        found = torch
        for part in name.split(".")[1:]:
            found = getattr(found, part)
