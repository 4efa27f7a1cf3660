"""Detection of lost processes of a run: one clear error, and a DDP strategy that raises it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from pytorch_lightning.strategies import DDPStrategy

from ens10.errors import LostProcessError

_KEYWORDS = ("gloo", "nccl", "connection", "timed out", "broken pipe", "socket")


@contextmanager
def one_error_for_lost_processes(rank: int) -> Iterator[None]:
    """Convert errors of communication libraries that mean a lost process to one clear error.

    Args:
        rank: rank of this process.

    Raises:
        LostProcessError: another process ended, or did not answer within the timeout.
    """
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        is_communication = any(word in text.lower() for word in _KEYWORDS)
        if not (isinstance(error, dist.DistError) or is_communication):
            raise
        line = text.strip().splitlines()[0] if text.strip() else type(error).__name__
        # without the library's source position and advice
        line = re.sub(r"^\[[^\]]*\.cc:\d+\] ", "", line).partition(". This is typically")[0]
        raise LostProcessError(rank, line) from error


class FailureDetectingStrategy(DDPStrategy):
    """DDP whose steps end in a `LostProcessError` if another process ends or hangs."""

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Train on a batch; raise `LostProcessError` if another process is lost."""
        with one_error_for_lost_processes(self.global_rank):
            return super().training_step(*args, **kwargs)

    def backward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the backward pass; raise `LostProcessError` if another process is lost."""
        with one_error_for_lost_processes(self.global_rank):
            return super().backward(*args, **kwargs)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        """Update the parameters; raise `LostProcessError` if another process is lost."""
        with one_error_for_lost_processes(self.global_rank):
            return super().optimizer_step(*args, **kwargs)

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Validate a batch; raise `LostProcessError` if another process is lost."""
        with one_error_for_lost_processes(self.global_rank):
            return super().validation_step(*args, **kwargs)

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        """Test a batch; raise `LostProcessError` if another process is lost."""
        with one_error_for_lost_processes(self.global_rank):
            return super().test_step(*args, **kwargs)

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Predict a batch; raise `LostProcessError` if another process is lost."""
        with one_error_for_lost_processes(self.global_rank):
            return super().predict_step(*args, **kwargs)

    def barrier(self, *args: Any, **kwargs: Any) -> None:
        """Wait for all processes; raise `LostProcessError` if one is lost."""
        with one_error_for_lost_processes(self.global_rank):
            super().barrier(*args, **kwargs)
