"""Clients on Ray actors: one actor per CPU, or per share of a CUDA device.

A client always runs on the same actor. One broadcast carries what all messages of a batch share; a message itself is a few
hundred bytes. The data set lies in the object store once a node and is mapped, not copied, by the actors there.

Client state stays in the object store of the node where it arose (Ray spills it to disk when that is full), a few clients in one
object, and belongs to this process, which holds a reference and no data. It is exchanged for the new one when the client's reply
arrives, so an actor that dies takes nothing with it: a new one takes its place, and the clients whose replies are missing are
asked once more, one by one, from the state they had. A client that fails again is reported. Only the loss of a whole node loses
state; that is reported too.
"""

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from flwr.app import Message, RecordDict

from fedrage_flwr.errors import UserError
from fedrage_flwr.grids.actor import GROUP, Actor, Job, grouped, tensors_as_arrays
from fedrage_flwr.grids.base import SimulatedGrid, WorkspaceFactory, error_reply
from fedrage_flwr.settings import Ge, Gt, Interval

ACTOR_DIED = 8  # flwr.common.constant.ErrorCode.CLIENT_APP_CRASHED
MOST_DEATHS = 3  # of one actor in one round while its clients are asked again; then the rest is reported

Asked = tuple[int, Message]  # partition id and message

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


def fits(layout: Layout, cpus: float, gpus: float) -> int:
    """Return how many actors of this size there is room for."""
    room = int(cpus / layout.num_cpus + 1e-9)
    if layout.num_gpus:
        room = min(room, int(gpus) * int(1 / layout.num_gpus + 1e-9))  # an actor's share lies on one device
    return room


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
    room = fits(Layout(0, settings.num_cpus, share), cpus, gpus)
    if room < 1:
        raise UserError(
            f"backend.num_cpus={settings.num_cpus:g} and num_gpus={share:g} an actor are more than Ray has:"
            f" {cpus:g} CPUs, {gpus:g} CUDA devices"
        )
    if settings.num_actors is not None and settings.num_actors > room:
        raise UserError(
            f"backend.num_actors={settings.num_actors}: at most {room} fit on {cpus:g} CPUs and {gpus:g} CUDA devices"
        )
    return Layout(min(settings.num_actors or room, num_clients), settings.num_cpus, share)


def share_out(partitions: Sequence[int], movable: Sequence[bool], actors: int) -> dict[int, list[int]]:
    """Deal this round's clients to actors: each to its own, ``partition % actors``; then actors with more than their share
    hand movable ones to those with the fewest.

    Args:
        partitions: ids of the clients.
        movable: whether a client may go to any actor, because it keeps nothing, or nothing that would travel.
        actors: how many there are.

    Returns:
        Positions in ``partitions`` by actor, in order; none is left empty.
    """
    batches: dict[int, list[int]] = {actor: [] for actor in range(actors)}
    for place, partition in enumerate(partitions):
        batches[partition % actors].append(place)
    share = -(-len(partitions) // actors)
    for own in batches.values():
        for place in reversed([place for place in own if movable[place]]):
            fewest = min(batches.values(), key=len)
            if len(own) <= share or len(fewest) + 1 >= len(own):
                break
            own.remove(place)
            fewest.append(place)
    return {actor: sorted(places) for actor, places in batches.items() if places}


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
        self._states: dict[int, Any] = {}  # partition id → reference to the group its state is in, where there is one
        with tensors_as_arrays(self._ray):
            self._factory = self._ray.put(make_workspace)
        self._actors = [self._start_actor() for _ in range(self._layout.actors)]
        self._one_node = sum(node["Alive"] for node in self._ray.nodes()) == 1  # states are near every actor
        log.info("Ray: %s on %s", self._layout, device.type)

    @classmethod
    def create(
        cls, settings: RaySettings, num_clients: int, make_workspace: WorkspaceFactory, device: torch.device
    ) -> "RayGrid":
        """Make the grid of a run."""
        return cls(settings, num_clients, make_workspace, device)

    def run_clients(self, messages: Sequence[Asked]) -> list[Message]:
        """See ``SimulatedGrid``."""
        contents: dict[int, RecordDict] = {}
        for _, message in messages:
            contents.setdefault(id(message.content), message.content)
        order = {key: position for position, key in enumerate(contents)}
        shared = self._ray.put(list(contents.values()))
        partitions = [partition for partition, _ in messages]
        movable = [self._one_node or partition not in self._states for partition in partitions]
        batches = share_out(partitions, movable, len(self._actors))

        def send(actor: int, places: Sequence[int]) -> list[Any]:
            groups = list(dict.fromkeys(self._states[p] for k in places if (p := messages[k][0]) in self._states))
            place_of = {group: k for k, group in enumerate(groups)}
            jobs = []
            for k in places:
                partition, message = messages[k]
                group = place_of.get(self._states.get(partition))
                jobs.append(Job(order[id(message.content)], message.metadata, partition, group))
            run = self._actors[actor].run.options(num_returns=1 + len(grouped(jobs)))
            return run.remote(shared, jobs, *groups)  # type: ignore[no-any-return]

        futures = {actor: send(actor, places) for actor, places in batches.items()}
        replies: dict[int, Message] = {}
        for actor, places in batches.items():
            try:
                replies.update(self._receive(futures[actor], places, messages))
            except self._ray.exceptions.RayError as error:
                self._recover(actor, error)
                replies.update(self._ask_again(actor, places, messages, send))
        return [replies[place] for place in range(len(messages))]

    def client_states(self) -> dict[int, RecordDict]:
        """See ``SimulatedGrid``; the arrays are views of the object store where it is on this machine."""
        references = list(dict.fromkeys(self._states.values()))
        groups = dict(zip(references, self._ray.get(references), strict=True))
        return {partition: groups[reference][partition] for partition, reference in self._states.items()}

    def restore_client_states(self, states: Mapping[int, RecordDict]) -> None:
        """See ``SimulatedGrid``."""
        self._states = {}
        for group in grouped([(partition, state) for partition, state in states.items() if state]):
            reference = self._ray.put(dict(group))
            self._states.update((partition, reference) for partition, _ in group)

    def close(self) -> None:
        """Stop the actors, and Ray if this grid started it."""
        for actor in self._actors:
            self._ray.kill(actor)
        if self._owner:
            self._ray.shutdown()

    def _receive(self, returned: Sequence[Any], places: Sequence[int], messages: Sequence[Asked]) -> dict[int, Message]:
        """Wait for the replies of one actor; commit the states that moved."""
        replies = {}
        for k, (place, (reply, moved)) in enumerate(zip(places, self._ray.get(returned[0]), strict=True)):
            if moved:
                self._states[messages[place][0]] = returned[1 + k // GROUP]
            replies[place] = reply
        return replies

    def _ask_again(
        self,
        actor: int,
        places: Sequence[int],
        messages: Sequence[Asked],
        send: Callable[[int, Sequence[int]], list[Any]],
    ) -> dict[int, Message]:
        """Ask clients one by one; none of them has a reply or a new state yet."""
        replies: dict[int, Message] = {}
        deaths = 0
        for place in places:
            partition, message = messages[place]
            if deaths == MOST_DEATHS:
                replies[place] = error_reply(
                    message, f"its Ray actor died {1 + deaths} times in this round", ACTOR_DIED
                )
                continue
            try:
                replies.update(self._receive(send(actor, [place]), [place], messages))
            except self._ray.exceptions.RayError as error:
                reason = f"its Ray actor failed twice ({type(error).__name__})"
                if self._lost_state(error):
                    del self._states[partition]
                    reason = "its state was lost with a Ray node; it starts anew the next time"
                    log.warning("client %d: %s", partition, reason)
                deaths += self._recover(actor, error)
                replies[place] = error_reply(message, reason, ACTOR_DIED)
        return replies

    def _recover(self, actor: int, error: Exception) -> bool:
        """Replace an actor that is gone; return whether it was."""
        errors = self._ray.exceptions
        if isinstance(error, errors.RayTaskError | errors.ObjectLostError):  # it answered, with an exception
            log.warning("actor %d: %s", actor, error)
            return False
        log.warning("actor %d died; a new one takes its place: %s", actor, error)
        self._ray.kill(self._actors[actor])
        self._actors[actor] = self._replacement(actor)
        return True

    def _replacement(self, actor: int) -> Any:
        """A new actor; where a node has left and none fits any more, another one that takes its clients over."""
        others = {id(a): a for k, a in enumerate(self._actors) if k != actor}
        left = self._ray.cluster_resources()
        room = fits(self._layout, left.get("CPU", 0), left.get("GPU", 0))
        return self._start_actor() if room > len(others) or not others else next(iter(others.values()))

    def _lost_state(self, error: Exception) -> bool:
        return isinstance(error, self._ray.exceptions.ObjectLostError)

    def _start_actor(self) -> Any:
        remote = self._ray.remote(Actor)
        options = {"num_cpus": self._layout.num_cpus, "num_gpus": self._layout.num_gpus}
        return remote.options(**options).remote(self._factory, self._device, len(self.partitions))

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
