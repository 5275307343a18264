"""The processes of `serve --workers N`, which one supervisor starts, watches and replaces.

Little is imported here, so that a new process gives its first sign of life soon.
"""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.process import BaseProcess
from typing import Any

from memrecall.errors import WorkerFailed
from memrecall.logs import log_to_stderr

log = logging.getLogger("memrecall.server")

_CHECK_SECONDS = 0.2
_BEAT_SECONDS = 0.5
_SILENT_SECONDS = 5.0  # after which a process counts as frozen
_STOPPED_SECONDS = 1.0  # after which one that the system reports as stopped does
_RESTART_SECONDS = 1.0  # between two starts of a process that ends again and again
_STOP_SECONDS = 35.0  # longer than a service takes to stop once it is drained


@dataclass(frozen=True, slots=True)
class ProcessRole:
    """The extra duties of one worker process."""

    has_dashboard: bool = True  # unless it is switched off or not installed
    is_first: bool = True  # and does what must be done once: sweeps


class ServiceProcess:
    """A process that runs `module.function(socket, set_ready, *arguments)`, and can be replaced."""

    def __init__(
        self, name: str, target: tuple[str, str], listener: socket.socket, *arguments: Any
    ) -> None:
        self.name = name
        self._context = multiprocessing.get_context("spawn")
        self._beat = self._context.RawValue("d", 0.0)  # the monotonic time of its last sign of life
        self.ready = self._context.RawValue("b", 0)  # 1: it accepts requests
        self._arguments = (name, target, listener, self._beat, self.ready, arguments)
        self._started_at = 0.0
        self._last_running = 0.0  # when it was last seen not to be stopped
        self.process: BaseProcess

    def start(self) -> None:
        """Start the process."""
        self.ready.value = 0
        self._beat.value = self._started_at = self._last_running = time.monotonic()
        process = self._context.Process(target=_run, args=self._arguments, name=self.name)
        process.start()
        self.process = process

    @property
    def has_failed(self) -> bool:
        """True if it ended, or is frozen."""
        now = time.monotonic()
        if not _is_stopped(self.process):
            self._last_running = now
        is_stopped = now - self._last_running > _STOPPED_SECONDS
        is_silent = now - self._beat.value > _SILENT_SECONDS
        return is_stopped or is_silent or not self.process.is_alive()

    def replace(self) -> None:
        """End the process if it is frozen, and start another, but not again and again."""
        from prometheus_client.multiprocess import mark_process_dead

        self.process.kill()
        self.process.join()
        mark_process_dead(self.process.pid)  # type: ignore[no-untyped-call]
        fields = {
            "worker": self.name,
            "pid": self.process.pid,
            "exit_code": self.process.exitcode,
        }
        log.error("worker ended", extra={"fields": fields})
        time.sleep(max(0.0, self._started_at + _RESTART_SECONDS - time.monotonic()))
        self.start()


def _is_stopped(process: BaseProcess) -> bool:
    """Return True if a signal stopped a child, as far as the system tells its parent."""
    if not hasattr(os, "waitid") or process.exitcode is not None:
        return False
    try:
        state = os.waitid(os.P_PID, process.pid or 0, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # it has ended
        return False
    return state is not None


def supervise(
    processes: Sequence[ServiceProcess],
    announce: Callable[[], None],
    listeners: Sequence[socket.socket],
    drain_seconds: float,
) -> None:
    """Keep processes running until SIGINT or SIGTERM; call `announce` once when all are ready.

    Raise WorkerFailed if one cannot start. At the end, they may drain; a second SIGINT kills them.
    """
    with _received_signals() as signals:
        try:
            for process in processes:
                process.start()
            _keep_running(processes, announce, signals)
        finally:
            # Without this, the system would accept connections after the last worker has stopped.
            for listener in listeners:
                listener.close()
            _stop(processes, signals, drain_seconds)


@contextmanager
def _received_signals() -> Iterator[list[int]]:
    """Collect the signals that ask to stop."""
    signals: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: signals.append(number)) for number in numbers]
    try:
        yield signals
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _keep_running(
    processes: Sequence[ServiceProcess], announce: Callable[[], None], signals: Sequence[int]
) -> None:
    is_announced = False
    while not signals:
        for process in processes:
            if process.has_failed:
                # A process that was killed may succeed when it is started again.
                if not is_announced and (process.process.exitcode or 0) > 0:
                    message = f"worker {process.name} ended while it started"
                    raise WorkerFailed(message, hint="The log says why")
                process.replace()
        if not is_announced and all(process.ready.value for process in processes):
            is_announced = True
            announce()
        time.sleep(_CHECK_SECONDS)


def _stop(
    processes: Sequence[ServiceProcess], signals: Sequence[int], drain_seconds: float
) -> None:
    """Ask the processes to end; kill them if they take too long or at a second SIGINT."""
    running = [item.process for item in processes if hasattr(item, "process")]
    for process in running:
        process.terminate()
    end = time.monotonic() + drain_seconds + _STOP_SECONDS
    while any(process.is_alive() for process in running):
        is_late = time.monotonic() > end or signal.SIGINT in signals[1:]
        for process in running:
            if is_late or _is_stopped(process):  # A stopped one does not receive SIGTERM.
                process.kill()
        time.sleep(_CHECK_SECONDS)


def end_process_in(seconds: float) -> None:
    """End this process after some seconds, even if a thread waits for what never comes.

    What was acknowledged is stored, and an open transaction has no effect.
    """
    timer = threading.Timer(seconds, _end_process)
    timer.daemon = True
    timer.start()


def _end_process() -> None:
    log.error("stopped before everything had ended")
    os._exit(1)


def _run(
    name: str,
    target: tuple[str, str],
    listener: socket.socket,
    beat: Any,
    ready: Any,
    arguments: tuple[Any, ...],
) -> None:
    """Serve in one of several processes, until a signal or the end of the supervisor."""
    threading.Thread(target=_send_beats, args=(beat,), daemon=True).start()
    log_to_stderr({"worker": name})
    module, function = target

    def set_ready() -> None:
        ready.value = 1

    try:
        getattr(import_module(module), function)(listener, set_ready, *arguments)
    except Exception:  # The outermost layer of this process: only the log can say it.
        log.exception("worker failed")
        sys.exit(1)


def _send_beats(beat: Any) -> None:
    """Show the supervisor that this process is not frozen; end the process with the supervisor."""
    supervisor = multiprocessing.parent_process()
    while supervisor is not None and supervisor.is_alive():
        beat.value = time.monotonic()
        supervisor.join(_BEAT_SECONDS)
    os.kill(os.getpid(), signal.SIGINT)
