"""Clients on Ray actors: one actor per CPU, or per share of a CUDA device.

A client always runs on the same actor. One broadcast carries what all messages of a batch share; a message itself is a few
hundred bytes. Client state stays with the server side, so an actor that dies takes nothing with it: its clients of that
round are reported as failed and a new actor takes its place.
"""

import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from flwr.app import Context, Message, RecordDict

from fedrage_flwr.client_app import make_client_app
from fedrage_flwr.errors import UserError
from fedrage_flwr.grids.base import SimulatedGrid, WorkspaceFactory, error_reply, run_client
from fedrage_flwr.settings import Ge, Gt, Interval

ACTOR_DIED = 8  # flwr.common.constant.ErrorCode.CLIENT_APP_CRASHED

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RaySettings:
    """How many actors, and what each of them takes."""

    name: Literal["ray"]
    num_actors: Annotated[int, Ge(1)] | None
    num_cpus: Annotated[float, Gt(0)]
    num_gpus: Annotated[float, Interval(ge=0, le=1)] | None
    address: str | None


@dataclass(frozen=True)
class Layout:
    """What was decided from the settings and the machine: actors, and CPUs and CUDA devices for each."""

    actors: int
    num_cpus: float
    num_gpus: float


def plan(settings: RaySettings, device: torch.device, cpus: float, gpus: float, num_clients: int) -> Layout:
    """Decide how many actors there are.

    Args:
        settings: the ``backend`` section.
        device: where the arithmetic runs.
        cpus, gpus: what Ray has to give.
        num_clients: more actors than clients would idle.

    Raises:
        UserError: the machine cannot hold a single actor, or not as many as asked for.
    """
    on_gpu = device.type == "cuda"
    share = 0.0 if not on_gpu else 1.0 if settings.num_gpus is None else settings.num_gpus
    if not on_gpu and settings.num_gpus:
        raise UserError(
            f"backend.num_gpus={settings.num_gpus:g}: the clients run on the CPU (device={device.type}, {gpus:g} CUDA devices);"
            " allowed here: 0 or null"
        )
    if on_gpu and share == 0:
        raise UserError(
            "backend.num_gpus=0 hides every CUDA device from the clients; allowed with device=cuda: in (0, 1]"
        )
    fits = int(cpus / settings.num_cpus + 1e-9)
    if share:
        fits = min(fits, int(gpus) * int(1 / share + 1e-9))  # an actor's share lies on one device
    if fits < 1:
        raise UserError(
            f"backend.num_cpus={settings.num_cpus:g} and num_gpus={share:g} an actor are more than Ray has:"
            f" {cpus:g} CPUs, {gpus:g} CUDA devices"
        )
    if settings.num_actors is not None and settings.num_actors > fits:
        raise UserError(
            f"backend.num_actors={settings.num_actors}: at most {fits} fit on {cpus:g} CPUs and {gpus:g} CUDA devices"
        )
    return Layout(min(settings.num_actors or fits, num_clients), settings.num_cpus, share)


class Actor:
    """Acts as the clients it is given messages for."""

    def __init__(self, make_workspace: WorkspaceFactory, device: str) -> None:
        self._app = make_client_app(make_workspace(torch.device(device)))

    def run(self, shared: list[RecordDict], jobs: list["Job"]) -> list[tuple[Message, RecordDict]]:
        """Run messages one after another; return replies and states."""
        done = []
        for job in jobs:
            message = Message(shared[job.content], metadata=job.metadata)  # type: ignore[call-overload]
            done.append(run_client(self._app, message, job.context))
        return done


@dataclass(frozen=True)
class Job:
    """One message on its way to an actor: which of the shared contents it carries, and the client's context."""

    content: int
    metadata: Any
    context: Context


class RayGrid(SimulatedGrid):
    """Executes the ClientApp on Ray actors.

    Args:
        settings: the ``backend`` section.
        num_clients: N.
        make_workspace: runs once in every actor.
        device: where the arithmetic runs.

    Raises:
        UserError: Ray is missing, or the machine does not have what was asked for.
    """

    Settings = RaySettings

    def __init__(
        self, settings: RaySettings, num_clients: int, make_workspace: WorkspaceFactory, device: torch.device
    ) -> None:
        super().__init__(num_clients)
        self._ray = _import_ray()
        self._owner = not self._ray.is_initialized()
        if self._owner:
            self._init_ray(settings)
        resources = self._ray.cluster_resources()
        self._layout = plan(settings, device, resources.get("CPU", 0), resources.get("GPU", 0), num_clients)
        self._device = device.type
        self._factory = self._ray.put(make_workspace)
        self._actors = [self._start_actor() for _ in range(self._layout.actors)]
        log.info("Ray: %s on %s", self._layout, device.type)

    @classmethod
    def create(
        cls, settings: RaySettings, num_clients: int, make_workspace: WorkspaceFactory, device: torch.device
    ) -> "RayGrid":
        """Make the grid of a run."""
        return cls(settings, num_clients, make_workspace, device)

    def run_clients(self, messages: Sequence[tuple[int, Message]]) -> list[Message]:
        """See ``SimulatedGrid``."""
        contents: dict[int, RecordDict] = {}
        for _, message in messages:
            contents.setdefault(id(message.content), message.content)
        order = {key: position for position, key in enumerate(contents)}
        shared = self._ray.put(list(contents.values()))
        batches: dict[int, list[tuple[int, Message]]] = {}
        for partition, message in messages:
            batches.setdefault(partition % len(self._actors), []).append((partition, message))
        futures = {
            actor: self._actors[actor].run.remote(
                shared, [Job(order[id(m.content)], m.metadata, self.context(p)) for p, m in batch]
            )
            for actor, batch in batches.items()
        }
        replies = {
            partition: reply
            for actor, batch in batches.items()
            for partition, reply in self._collect(actor, futures[actor], batch)
        }
        return [replies[partition] for partition, _ in messages]

    def close(self) -> None:
        """Stop the actors, and Ray if this grid started it."""
        for actor in self._actors:
            self._ray.kill(actor)
        if self._owner:
            self._ray.shutdown()

    def _collect(self, actor: int, future: Any, batch: list[tuple[int, Message]]) -> list[tuple[int, Message]]:
        try:
            results = self._ray.get(future)
        except self._ray.exceptions.RayError as error:
            reason = f"its Ray actor died ({type(error).__name__})"
            log.warning("actor %d: %s; a new one takes its place", actor, reason)
            self._actors[actor] = self._start_actor()
            return [(partition, error_reply(message, reason, ACTOR_DIED)) for partition, message in batch]
        for (partition, _), (_, state) in zip(batch, results, strict=True):
            self.context(partition).state = state
        return [(partition, reply) for (partition, _), (reply, _) in zip(batch, results, strict=True)]

    def _start_actor(self) -> Any:
        remote = self._ray.remote(Actor)
        options = {"num_cpus": self._layout.num_cpus, "num_gpus": self._layout.num_gpus}
        return remote.options(**options).remote(self._factory, self._device)

    def _init_ray(self, settings: RaySettings) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
        if settings.address is None:
            options["include_dashboard"] = False
        try:
            _check_reachable(settings.address)
            self._ray.init(address=settings.address, **options)
        except (OSError, ValueError) as error:
            raise UserError(f"backend.address={settings.address}: Ray cannot be reached there ({error})") from error


def _check_reachable(address: str | None) -> None:
    """Ray itself tries a dead address for many minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UserError(
            "backend=ray: Ray is not installed; it exists for Python 3.11-3.13 on Linux and macOS. backend=inline needs none"
        ) from error
    return ray
