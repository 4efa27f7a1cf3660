"""Truth values of buffers that the host reads without waiting for the device at each step."""

import torch
from torch import Tensor


class HostFlag:
    """The value of a boolean buffer, read by the host once after each change of the buffer.

    Reading it from a GPU waits for all work on the GPU. While a graph is compiled the value of the
    last reading counts, because a reading would break the graph.

    Examples:
        >>> import torch
        >>> from ens10.models.host_flag import HostFlag
        >>> flag, buffer = HostFlag(), torch.zeros((), dtype=torch.bool)
        >>> before = flag.of(buffer)
        >>> _ = buffer.fill_(True)
        >>> before, flag.of(buffer)
        (False, True)
    """

    def __init__(self) -> None:
        self._version: tuple[int, int] | None = None
        self._value = False

    def of(self, buffer: Tensor) -> bool:
        """Return the value of a buffer of one element."""
        if torch.compiler.is_compiling() and self._version is not None:
            return self._value
        # tensors of the inference mode do not count their changes
        version = (id(buffer), -1 if buffer.is_inference() else buffer._version)
        if version != self._version or buffer.is_inference():
            self._version, self._value = version, bool(buffer)
        return self._value
