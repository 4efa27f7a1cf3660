"""A strategy that says in one error that another process was lost."""

from typing import Any

from pytorch_lightning.strategies import DDPStrategy

from ens10.models.parallel.faults import one_error_for_lost_processes


class WatchedStrategy(DDPStrategy):
    """DDP whose steps end in a `LostProcessError` if another process ends or hangs."""

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """A batch of training."""
        with one_error_for_lost_processes(self.global_rank):
            return super().training_step(*args, **kwargs)

    def backward(self, *args: Any, **kwargs: Any) -> Any:
        """Its backward pass."""
        with one_error_for_lost_processes(self.global_rank):
            return super().backward(*args, **kwargs)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        """The step that follows."""
        with one_error_for_lost_processes(self.global_rank):
            return super().optimizer_step(*args, **kwargs)

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """A batch of validation."""
        with one_error_for_lost_processes(self.global_rank):
            return super().validation_step(*args, **kwargs)

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        """A batch of the test."""
        with one_error_for_lost_processes(self.global_rank):
            return super().test_step(*args, **kwargs)

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """A batch to predict."""
        with one_error_for_lost_processes(self.global_rank):
            return super().predict_step(*args, **kwargs)

    def barrier(self, *args: Any, **kwargs: Any) -> None:
        """Waits for all processes."""
        with one_error_for_lost_processes(self.global_rank):
            super().barrier(*args, **kwargs)
