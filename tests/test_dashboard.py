"""The dashboard: drawings by hand, how often it draws, and the real command on a pseudo-terminal."""

import io
import os
import pty
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fedrage_flwr import progress
from fedrage_flwr.dashboard import Canvas, Dashboard
from fedrage_flwr.evaluation import Evaluation
from fedrage_flwr.progress import Progress
from fedrage_flwr.rounds import Outcome, Round

REPOSITORY = Path(__file__).resolve().parents[1]
RARE = np.array([False, False, True])


def a_round(number, *clients, outcome="averaged", metrics=None, **evaluation):
    outcomes = [Outcome(client, outcome) for client in clients]
    return Round(number, None, {}, outcomes, [], metrics or {}, 0, 0, 0.1, evaluation)


def evaluated(*accuracy):
    values, number = np.array(accuracy), len(accuracy)
    return Evaluation(float(values.mean()), 0.1, np.arange(number), values, 1 - values, np.full(number, 5))


def drawn(dashboard, width=80, height=24):
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width, height=height)
    console.print(dashboard)
    return console.file.getvalue().rstrip("\n").split("\n")


def test_a_line_of_dots_by_hand():
    canvas = Canvas(2, 1)  # 4 × 4 dots
    canvas.line(np.array([0.0, 1.0]), np.array([0.0, 1.0]), "")
    assert "".join(row.plain for row in canvas.rows()) == "⡠⠊"  # a diagonal from the lower left to the upper right
    canvas = Canvas(2, 1)
    canvas.line(np.array([0.0, 1 / 3, 2 / 3, 1.0]), np.array([0.0, 0.0, 1.0, 1.0]), "")
    assert "".join(row.plain for row in canvas.rows()) == "⣀⠏"  # a step: the jump is filled
    canvas = Canvas(1, 2)
    canvas.line(np.array([]), np.array([]), "")
    assert [row.plain for row in canvas.rows()] == [" ", " "]


def test_bars_have_the_heights_of_the_accuracies():
    dashboard = Dashboard("what runs", 10, RARE)
    dashboard.add(
        a_round(1, 0, 2, accuracy=0.5, client_accuracy_min=0.25, rare_client_accuracy=0.25), evaluated(1.0, 0.5, 0.25)
    )
    lines = drawn(dashboard)
    bars = [line.split("││")[1] if "││" in line else line for line in lines]
    count = [sum(line[2 + 6 * client] == "█" for line in bars if len(line) > 20) for client in range(3)]
    height = (24 - 1 - 5) // 2 * 2 - 3
    assert count[0] == height + 1  # and one cell of the bars below: it came as often as anybody
    assert count[1] == int(height / 2)
    assert count[2] == int(height / 4) + 1
    (marks,) = [line for line in bars if "•" in line and "now" not in line]
    assert [marks[3 + 6 * client] for client in range(3)] == ["•", " ", "•"]


def test_numbers_and_who_was_there():
    dashboard = Dashboard("what runs", 10, RARE, ("beta",))
    dashboard.add(a_round(1, 0, 1, outcome="rejected"), None)
    numbers = {"beta": 1.25, "train-loss": 0.5}
    dashboard.add(
        a_round(2, 1, metrics=numbers, accuracy=0.875, client_accuracy_min=0.5, rare_client_accuracy=0.75),
        evaluated(1, 0.5, 0.75),
    )
    *_, first, second = drawn(dashboard)
    assert first.split("  ") == [
        " accuracy 87.5 %",
        "worst 50.0 %",
        "rare 75.0 %",
        "beta 1.250",
        "training loss 0.500",
        "",
    ]
    assert second.split("  ") == [" not averaged 2 replies", "this round 1", ""]
    assert "round 2/10" in drawn(dashboard)[0]


@pytest.mark.parametrize(("clients", "width", "height"), [(1, 72, 20), (30, 100, 30), (500, 120, 50), (30, 300, 80)])
def test_it_fits_the_terminal(clients, width, height):
    dashboard = Dashboard("a · b · c", 300, np.arange(clients) >= clients - 3, ("beta",))
    assert max(map(len, drawn(dashboard, width, height))) <= width  # before the first round, too
    for number in range(1, 40):
        dashboard.add(
            a_round(number, number % clients, accuracy=0.5, rare_client_accuracy=None),
            evaluated(*np.linspace(0, 1, clients)),
        )
    lines = drawn(dashboard, width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) < height


def test_real_targets_show_the_loss():
    dashboard = Dashboard("regression", 4, np.zeros(2, bool))
    measured = Evaluation(np.nan, 3.0, np.arange(2), np.full(2, np.nan), np.array([2.0, 4.0]), np.full(2, 5))
    dashboard.add(a_round(1, 0, accuracy=np.nan, loss=3.0), measured)
    page = "\n".join(drawn(dashboard))
    assert "loss 3" in page
    assert "%" not in page


def test_it_draws_seldom_and_quiet_screens_not_at_all(monkeypatch):
    clock = {"wall": 0.0, "cpu": 0.0}
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock["wall"])
    monkeypatch.setattr(progress.time, "thread_time", lambda: clock["cpu"])
    drawings = []
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, height=30)
    shown = Progress("x", 1000, RARE, lambda: None, console=screen)

    def refresh():
        drawings.append(clock["wall"])
        clock["cpu"] += 0.01

    monkeypatch.setattr(shown._live, "refresh", refresh)
    for number in range(1, 1001):
        clock["wall"] += 0.01
        shown.after_round(a_round(number, 0))
    gaps = np.diff(drawings)
    assert len(drawings) > 3
    assert 0.01 / gaps.min() <= progress.MOST_COST * 1.001 < 0.01  # less than 1 % of the time
    quiet = Console(file=io.StringIO(), width=100, height=30)
    with Progress("x", 1, RARE, lambda: None, console=quiet) as silent:
        silent.after_round(a_round(1, 0))
    assert quiet.file.getvalue() == ""


def test_a_small_terminal_gets_a_line():
    small = Console(file=io.StringIO(), force_terminal=True, width=60, height=10)
    with Progress("x", 2, RARE, lambda: None, console=small) as line:
        line.after_round(a_round(2, 0))
    assert "2/2" in small.file.getvalue()
    assert "each client" not in small.file.getvalue()


def test_the_real_command_on_a_pseudo_terminal(tmp_path):
    ours, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TERM": "xterm-256color"}
    environment.pop("COLUMNS", None)
    environment.pop("LINES", None)
    words = [sys.executable, "-m", "fedrage_flwr", "num_rounds=12", "hydra.run.dir=out"]
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdin=its, stdout=its, stderr=its) as process:
        os.close(its)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:  # Linux says so when the last one has closed the other end
            pass
    os.close(ours)
    page = shown.decode()
    assert process.returncode == 0, page
    assert all(words in page for words in ("federage · rare · digits", "each client", "round 12/12", "bytes a round"))
    assert not list(tmp_path.glob("*.log"))
