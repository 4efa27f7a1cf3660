"""How far an iteration has come, to be saved with a checkpoint and taken up again."""

from ens10.errors import ArgumentError


class Place:
    """The place of one iteration.

    Args:
        epoch: of the iteration.
        batches: given to the consumer so far.
    """

    def __init__(self, epoch: int, batches: int) -> None:
        self.epoch, self.batches = epoch, batches

    def advance(self) -> None:
        """Counts a batch that is about to be given."""
        self.batches += 1


class Position:
    """The place of the latest iteration, and the one that the next begins at.

    Args:
        length: batches of an epoch.
        seed: of the order.
        dates: of the split.
        batch_size: dates in a batch.
        world: number of processes.
    """

    def __init__(self, length: int, seed: int, dates: int, batch_size: int, world: int) -> None:
        self.epoch, self._length = 0, length
        self._order = {"seed": seed, "dates": dates, "batch_size": batch_size, "world": world}
        self._now = Place(0, 0)
        self._next: Place | None = None

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the next iteration; a place loaded for another epoch is dropped."""
        self.epoch = epoch
        if self._next is not None and self._next.epoch != epoch:
            self._next = None

    def begin(self) -> Place:
        """The place where an iteration begins: the one that was loaded, once, or the start."""
        loaded, self._next = self._next, None
        self._now = loaded or Place(self.epoch, 0)
        return self._now

    def state_dict(self) -> dict[str, int]:
        """The place as numbers."""
        place = self._next or self._now
        return {
            "epoch": place.epoch,
            "batches": place.batches,
            "length": self._length,
            **self._order,
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Takes up a saved place.

        Raises:
            ArgumentError: in mid-epoch of an order that is not this one.
        """
        others = {k: state[k] for k, mine in self._order.items() if state[k] != mine}
        if others and 0 < state["batches"] < state["length"]:
            theirs = ", ".join(f"{name} {value}" for name, value in others.items())
            mine = ", ".join(f"{name} {self._order[name]}" for name in others)
            raise ArgumentError(
                "state",
                f"it was saved {state['batches']} batches into an epoch with {theirs}, not {mine}",
                "Go on with the same settings, or from a checkpoint of an epoch's end",
            )
        self.epoch = state["epoch"]
        self._next = None if others else Place(state["epoch"], state["batches"])
