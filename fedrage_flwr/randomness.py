"""Random numbers, derived and never shared.

Every draw comes from its own generator, ``SeedSequence(seed, spawn_key=(stream, *keys))`` with keys such as (round, partition).
No generator lives longer than the draw it serves, so resuming, re-ordering or adding clients changes no other draw.
"""

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """What the numbers are for. Values are part of the results: never renumber, only append."""

    AVAILABILITY = 0  # (round) or (round, partition): who reaches the server
    BATCHES = 1  # (round, partition): mini-batches of one client in one round
    MODEL = 2  # (): initial parameters
    PARTITION = 3  # (): who holds which examples; its seed is partition.seed
    EVALUATION = 4  # (): which clients are evaluated when there are too many
    ABLATION = 5  # (round) or (round, partition): weights moved between steps and clients
    OPTIMUM = 6  # (owner): mini-batches of the training that estimates what is attainable
    PERSONAL = 7  # (round, partition): mini-batches of a client's personal model
    CLUSTERS = 8  # (): which of the clients' models the clusters start at
    DATASET = 9  # (draw) or (draw, agent): examples and who owns them; its seed is dataset.seed
    PRIVACY = 10  # (round, record): noise on the server's mean


def generator(seed: int, stream: Stream, *keys: int) -> np.random.Generator:
    """Return the generator of this seed, stream and keys (all ≥ 0). Equal arguments give equal numbers."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(int(stream), *keys))))


def integer_seed(seed: int, stream: Stream, *keys: int) -> int:
    """Return one 63-bit integer of the stream, for libraries that take an integer seed (torch)."""
    return int(
        np.random.SeedSequence(seed, spawn_key=(int(stream), *keys)).generate_state(1, np.uint64)[0] >> np.uint64(1)
    )
