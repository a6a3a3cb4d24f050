"""``python -m fedrage_flwr``: one run, or with ``-m`` a sweep. See ``conf/config.yaml`` for every key."""

import sys

from fedrage_flwr.doors import set_switches
from fedrage_flwr.errors import UserError
from fedrage_flwr.neighbours import check_neighbours

set_switches()


def main() -> int:
    """Check what must hold before anything else is imported, then run."""
    try:
        check_neighbours()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    from fedrage_flwr.command import main as run_command

    return run_command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
