"""A few processes that run a function together, each as a rank of a gloo group."""

import multiprocessing
import tempfile
import traceback
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from ens10.models.domain import Cut, use
from ens10.models.parallel import ProcessGroupExchange, Shard

TIMEOUT = timedelta(seconds=300)  # for a machine that is busy


def _work(pipe):
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    while (job := pipe.recv()) is not None:
        function, args, rank, world, meeting = job
        try:
            store = dist.FileStore(meeting, world)
            dist.init_process_group(
                "gloo", store=store, rank=rank, world_size=world, timeout=TIMEOUT
            )
            try:
                answer = function(*args)
                dist.barrier()  # a rank that ends first closes connections that others still make
                pipe.send((True, answer))
            finally:
                dist.destroy_process_group()
        except Exception:
            pipe.send((False, traceback.format_exc()))


class Ranks:
    """Processes that wait for functions; started when they are first needed."""

    def __init__(self):
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["ens10.models.parallel", "ens10.models"])
        self._processes, self._pipes = [], []

    def __call__(self, world, function, *args):
        """What each rank returned; fails if one of them did.

        Args:
            world: number of processes.
            function: of a module, run by each.
            args: its arguments.
        """
        while len(self._pipes) < world:
            mine, theirs = self._context.Pipe()
            process = self._context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            self._processes.append(process)
            self._pipes.append(mine)
        with tempfile.TemporaryDirectory() as folder:
            meeting = str(Path(folder) / "meeting")
            for rank, pipe in enumerate(self._pipes[:world]):
                pipe.send((function, args, rank, world, meeting))
            answers = [pipe.recv() for pipe in self._pipes[:world]]
        failures = [text for good, text in answers if not good]
        if failures:
            self.stop()  # ranks that failed at different steps no longer find each other
            raise AssertionError("\n".join(failures))
        return [value for _, value in answers]

    def stop(self):
        """Ends the processes."""
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(60)
        self._processes, self._pipes = [], []


def shard(grid, lat, lon=1, halvings=0, odd="dropped"):
    """This rank's domain, of a grid cut into lat x lon parts; the world is one sample."""
    exchange = ProcessGroupExchange(dist.group.WORLD, lat, lon)
    i, j = exchange.place
    rows, columns = (
        Cut(total, parts, index, halvings, odd)
        for total, parts, index in ((grid[0], lat, i), (grid[1], lon, j))
    )
    return Shard(rows, columns, exchange)


def own(domain, fields):
    """The part of whole fields (..., H, W) that a domain holds."""
    rows, columns = domain.local_slices
    return fields[..., rows, columns].clone()


def joined(parts, lat, lon=1):
    """Whole fields from those of all ranks."""
    rows = [torch.cat(parts[i * lon : (i + 1) * lon], -1) for i in range(lat)]
    return torch.cat(rows, -2)


def at_random(make, *args, **options):
    """A module whose parameters all matter: last layers and biases do not start at zero."""
    torch.manual_seed(0)
    module = make(*args, **options)
    for parameter in module.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.3)
    return module


def sharded_pass(make, inputs, grid, lat, lon, halvings, odd, chosen, damage=nullcontext):
    """One rank's outputs and gradients of a module on its part.

    The loss is the sum over the whole grid of chosen * outputs.
    """
    with damage():
        return _pass(make, inputs, grid, lat, lon, halvings, odd, chosen)


def _pass(make, inputs, grid, lat, lon, halvings, odd, chosen):
    module = make()
    domain = shard(grid, lat, lon, halvings, odd)
    fields = own(domain, inputs).requires_grad_()
    with use(domain):
        outputs = module(fields)
        (own(domain, chosen) * outputs).sum().backward()
    for parameter in module.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
    gradients = {name: p.grad for name, p in module.named_parameters()}
    return outputs.detach(), fields.grad, gradients, dict(module.named_buffers())


def assert_as_serial(
    ranks, make, grid, lat, lon=1, *, shape, halvings=0, odd="dropped", damage=nullcontext
):
    """A module's outputs and all gradients on parts equal those on the whole, at 1e-10.

    Args:
        ranks: the processes.
        make: gives the module, the same each time; a function of a module of the tests, or a
            partial of one.
        grid: rows and columns.
        lat: parts of the rows.
        lon: parts of the columns.
        shape: of the inputs before rows and columns.
        halvings: of the module.
        odd: what becomes of the last of an odd number.
        damage: a context that the processes work in, to see that the comparison fails.
    """
    torch.manual_seed(3)
    inputs = torch.randn(*shape, *grid, dtype=torch.float64)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        module = make()
    finally:
        torch.set_default_dtype(before)
    whole = inputs.clone().requires_grad_()
    outputs = module(whole)
    chosen = torch.randn_like(outputs)
    (chosen * outputs).sum().backward()
    split = (grid, lat, lon, halvings, odd, chosen.detach(), damage)
    found = ranks(lat * lon, sharded_pass, make, inputs, *split)
    _assert_close(joined([one[0] for one in found], lat, lon), outputs.detach(), "outputs")
    _assert_close(joined([one[1] for one in found], lat, lon), whole.grad, "gradient of inputs")
    expected = [p.grad for p in module.parameters() if p.grad is not None]
    # a bias before a batch normalisation has no gradient but rounding
    least = 0.01 * max((float(gradient.abs().max()) for gradient in expected), default=0.0)
    for _, _, gradients, buffers in found:
        for name, parameter in module.named_parameters():
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            _assert_close(gradients[name], expected, f"gradient of {name}", least)
        for name, buffer in module.named_buffers():
            _assert_close(buffers[name], buffer, name)


def _assert_close(found, expected, name, least=0.0):
    if not expected.numel():
        assert found.shape == expected.shape, name
        return
    scale = expected.double().abs().max().clamp(min=max(least, 1e-300))
    error = float((found.double() - expected.double()).abs().max() / scale)
    assert error <= 1e-10, f"{name}: relative difference {error:.1e}"
