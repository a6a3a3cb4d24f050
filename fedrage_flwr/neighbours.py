"""``strategies`` and ``clients`` are common names: every door makes sure first that they are ours."""

from importlib.util import find_spec
from pathlib import Path

from fedrage_flwr.errors import UserError


def check_neighbours() -> None:
    """Make sure that the packages beside ``fedrage_flwr`` are the ones that get imported.

    Raises:
        UserError: another package of that name comes first on the path.
    """
    home = Path(__file__).resolve().parent.parent
    for name in ("strategies", "clients"):
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin is None or origin.parent.parent != home:
            raise UserError(f"another package called {name} ({origin}) hides the one of fedrage-flwr in {home}")
