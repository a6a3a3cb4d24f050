"""A federation of real processes on 127.0.0.1: a SuperLink, SuperNodes, and ``flwr run``. Everything is stopped afterwards.

Ports and Flower's home are the federation's own. Every wait is bounded, and what a process wrote is shown when one runs out.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
APP = ("pyproject.toml", "README.md", "LICENSE", ".gitignore", "conf", "fedrage_flwr", "strategies", "clients")
PATIENCE = float(os.environ.get("FEDRAGE_TEST_PATIENCE", "1"))  # stretches every wait on a slow machine


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Processes:
    """Flower processes with a home of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.app = folder / "fedrage"
        self.app.mkdir()
        for name in APP:  # a copy: `flwr run` may rewrite pyproject.toml, and the tree may change meanwhile
            source = REPOSITORY / name
            if source.is_dir():
                shutil.copytree(source, self.app / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, self.app / name)
        self.home = folder / "home"
        self.home.mkdir()
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a process that stays; its output goes to NAME.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        self._started.append(process)
        return process

    def call(self, *command: str, seconds: float = 240) -> str:
        """Run a command to its end; return what it wrote."""
        done = subprocess.run(
            command,
            cwd=self.app,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds * PATIENCE,
        )
        text = done.stdout.decode(errors="replace")
        assert done.returncode == 0, text
        return text

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_for(self, condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds * PATIENCE
        while not condition():
            logs = {path.name: path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.log")}
            assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s\n" + "\n".join(
                map(str, logs.items())
            )
            time.sleep(0.2)

    def stop(self) -> None:
        """End every process group started here, and whatever else has this home: what ``flwr run`` and Flower leave behind."""
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        for pid in left_behind(self.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def left_behind(home: Path) -> list[int]:
    """Processes whose environment names this home, other than this one."""
    mark, found = f"FLWR_HOME={home}\0".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


class Federation(Processes):
    """A SuperLink and SuperNodes; over TLS with authenticated nodes unless ``insecure``."""

    def __init__(self, folder: Path, sites: int, insecure: bool = False) -> None:
        super().__init__(folder)
        self.sites, self.insecure = sites, insecure
        self.port = free_port()
        self.keys = folder / "keys"
        connection = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
        if insecure:
            connection += "insecure = true\n"
        else:
            self.call("bash", str(REPOSITORY / "deploy" / "keys.sh"), str(self.keys), str(sites))
            connection += f'root-certificates = "{self.keys / "ca.crt"}"\n'
        (self.home / "config.toml").write_text(connection)
        self.superlink = self.start_superlink()

    def start_superlink(self) -> subprocess.Popen[bytes]:
        tls = [f"--ssl-{kind}={self.keys / file}" for kind, file in
               (("ca-certfile", "ca.crt"), ("certfile", "server.pem"), ("keyfile", "server.key"))]  # fmt: skip
        process = self.start(
            "superlink", "flower-superlink", "--host=127.0.0.1", f"--port={self.port}",
            f"--database={self.folder / 'state.db'}", "--disable-runtime-dependency-installation",
            *(["--insecure"] if self.insecure else [*tls, "--enable-supernode-auth"]),
        )  # fmt: skip
        self.wait_for(self._listening, "the SuperLink listens")
        return process

    def _listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def register(self, site: int) -> None:
        self.call("flwr", "supernode", "register", str(self.keys / f"site{site}.pub"), "here", "--name", f"site{site}")

    def start_node(
        self, site: int, config: str, key: str | None = None, ca: Path | None = None, supervised: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start one SuperNode; ``config`` is its --node-config; ``supervised`` starts it again whenever it ends."""
        secure = [
            f"--root-certificates={ca or self.keys / 'ca.crt'}",
            f"--auth-supernode-private-key={self.keys / (key or f'site{site}')}",
        ]
        return self.start(
            f"node{key or site}", *(["bash", "-c", 'while :; do "$@"; done', "supervisor"] if supervised else []),
            "flower-supernode", f"--superlink=127.0.0.1:{self.port}", f"--port={free_port()}",
            f"--node-config={config}", *(["--insecure"] if self.insecure else secure),
        )  # fmt: skip

    def run(self, overrides: str, output: Path, seconds: float = 240) -> str:
        """Submit a run and wait for its end; return Flower's log of it."""
        config = f'overrides="{overrides}" output-dir="{output}"'
        return self.call("flwr", "run", ".", "here", "--stream", "--run-config", config, seconds=seconds)
