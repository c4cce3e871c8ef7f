"""The end of this process: by signals, heard as an exception, and with the process that it works for.

Signals do not cut what must be done whole in two.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_ALARM = getattr(signal, "SIGALRM", None)  # which Windows does not have
_LOOK = 0.2  # seconds from one look at the parent to the next
_AGAIN = 2.0  # seconds until a signal is raised again: what is raised while Python collects garbage gets lost


class Stopped(KeyboardInterrupt):
    """A signal asks this process to end.  number: which one."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(number)
        self.number = number


_heard: list[int] = []  # by whoever listens now
_interrupts: dict[object, Callable[[], object]] = {}  # what ends work that keeps Python from hearing
STOPPED = "Stopped; no file was left half-written."
"""What a program says that a signal ended."""


def last_stop() -> Stopped | None:
    """The exception of the signal that was heard last, for where another library made an error of its own of it."""
    return Stopped(_heard[-1]) if _heard else None


def exit_code(stop: KeyboardInterrupt) -> int:
    """With which a program ends that was asked to.

    >>> exit_code(Stopped(signal.SIGTERM)), exit_code(KeyboardInterrupt())
    (143, 130)
    """
    return 128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT)


@contextmanager
def stopped_by_signals() -> Iterator[list[int]]:
    """Being ended or hung up is like Ctrl-C: an exception, so that nothing is left running or lying about.

    It is raised again every two seconds while this lasts. Not under torchrun, which ends its processes itself, and not
    for signals that somebody else minds or that are ignored (nohup). The signals heard so far are handed over; inside
    of another such block, which goes on to mind them, they are that one's.

    >>> with stopped_by_signals() as heard:
    ...     print(heard)
    []
    """
    before: dict[int, Any] = {}

    def stop(number: int, _: Any) -> None:
        _heard.append(number)
        if _ALARM in before:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN, _AGAIN)
        raise Stopped(number)

    def stop_again(*_: Any) -> None:
        raise Stopped(_heard[-1])

    try:
        if threading.current_thread() is threading.main_thread() and "TORCHELASTIC_RUN_ID" not in os.environ:
            if _ALARM is not None and signal.getsignal(_ALARM) is signal.SIG_DFL:
                before[_ALARM] = signal.signal(_ALARM, stop_again)
            for number in _ENDING:
                if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                    before[number] = signal.signal(number, stop)
        with _interrupting(before):
            yield _heard
    finally:
        if _ALARM in before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if before:
            _heard.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupted_by(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop`, in another thread, when a signal comes: for libraries that let Python hear of it when they are done.

    It is called inside of `stopped_by_signals` alone.
    """
    work = object()
    _interrupts[work] = stop
    try:
        yield
    finally:
        del _interrupts[work]


@contextmanager
def _interrupting(minded: dict[int, Any]) -> Iterator[None]:
    """Have a thread that hears of signals at once.  minded: which ones matter; none where somebody else minds them."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def listen() -> None:
        while heard := reader.recv(1):
            for stop in list(_interrupts.values()) if heard[0] in _ENDING else ():
                stop()

    with reader, writer:
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False) if minded else -1
        listener = threading.Thread(target=listen, daemon=True, name="signals")
        listener.start()
        try:
            yield
        finally:
            if minded:
                signal.set_wakeup_fd(before)
            writer.close()
            listener.join()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that would end the block wait until it is done: for short steps that must not be cut in two.

    >>> with uninterrupted():
    ...     print("whole")
    whole
    """
    waiting: list[int] = []
    before: dict[int, Any] = {}
    over = False

    def wait(number: int, _: Any) -> None:
        if over:  # another signal came while handlers were put back
            signal.signal(number, before[number])
            signal.raise_signal(number)
        else:
            waiting.append(number)

    try:
        if threading.current_thread() is threading.main_thread():  # no other thread hears of signals
            for number in (*_ENDING, _ALARM):
                handler = None if number is None else signal.getsignal(number)
                if callable(handler) or (handler is signal.SIG_DFL and number != _ALARM):
                    before[number] = handler
                    signal.signal(number, wait)
        yield
    finally:
        over = True
        for number, handler in before.items():
            signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])


_watching: set[tuple[int, int]] = set()  # processes that watch their parents, since those that are forked do not


def end_with_parent(parent: int | None = None) -> None:
    """End this process, at once and whatever it does, when its parent has ended, even where that one was killed.

    parent: its number, where it may have ended before now. Windows does not tell of the end of a parent.
    """
    parent = os.getppid() if parent is None else parent
    if (os.getpid(), parent) in _watching:
        return
    _watching.add((os.getpid(), parent))

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="end with parent").start()
