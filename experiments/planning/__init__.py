"""Plans: bytes, operations and memory of a training, and measured rates."""
