"""Natural: availability is what it is. Whoever is connected is asked; inclusion and marginals are estimated after the run."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn

import numpy as np

from fedrage_flwr.availability.base import Ids, Law, Terms, refused
from fedrage_flwr.errors import UserError
from fedrage_flwr.settings import Ge, Gt


class Natural(Law):
    """All N sites are wanted; the client manager leaves out those that are not there."""

    @dataclass(frozen=True)
    class Settings:
        name: Literal["natural"]
        deadline_s: Annotated[float, Gt(0)]
        enough: Annotated[int, Ge(1)] | None
        min_sites: Annotated[int, Ge(1)]
        required_sites: list[Annotated[int, Ge(0)]]

    def __init__(self, settings: Any, num_clients: int, rare_clients: int, seed: int) -> None:
        super().__init__(settings, num_clients, rare_clients, seed)
        for key in ("min_sites", "enough"):
            if (getattr(settings, key) or 0) > num_clients:
                raise refused(key, getattr(settings, key), f"must be at most num_clients={num_clients}")
        if any(site >= num_clients for site in settings.required_sites):
            raise refused("required_sites", settings.required_sites, f"must be partition ids in 0..{num_clients - 1}")
        self.terms = Terms(settings.deadline_s, settings.enough, settings.min_sites, tuple(settings.required_sites))

    def sample(self, round: int) -> Ids:
        """Return all ids."""
        return np.arange(self.num_clients, dtype=np.int64)

    def inclusion(self) -> NoReturn:
        """Nobody knows.

        Raises:
            UserError: always.
        """
        raise UserError("ram=natural: who will be there is not known beforehand; the summary of a run has estimates")

    def marginals(self) -> NoReturn:
        """As ``inclusion``."""
        self.inclusion()
