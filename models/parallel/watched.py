"""A DDP strategy that reports a lost process in one clear error."""

from typing import Any

from pytorch_lightning.strategies import DDPStrategy

from ens10.models.parallel.faults import one_error_for_lost_processes


class WatchedStrategy(DDPStrategy):
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
