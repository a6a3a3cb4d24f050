"""Examples dealt out to agents that lie in groups of given sizes: agents 0..n₁−1 are group 0, the next n₂ group 1, …"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def group_of_agents(sizes: Sequence[int]) -> Indices:
    """Return the group of each agent, (E,)."""
    return np.repeat(np.arange(len(sizes)), sizes)


def deal_iid(num_examples: int, agents: Indices, rng: np.random.Generator) -> Indices:
    """Return the owner of each example, (num_examples,): a random one of ``agents``, shares equal to within one."""
    return agents[rng.permutation(num_examples) % len(agents)]
