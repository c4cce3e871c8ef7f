"""A progress bar for downloads, for those who ask for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_CONSOLE: ContextVar[Console | None] = ContextVar("bagwise_downloads", default=None)


@contextmanager
def show_downloads(console: Console | None = None) -> Iterator[None]:
    """Inside this block downloads draw a progress bar: on `console`, or on standard error. Elsewhere they are silent.

    A console that is no terminal gets no bar.

    >>> from bagwise import datasets
    >>> with datasets.show_downloads():
    ...     split = datasets.digits()  # comes with scikit-learn: nothing to download, nothing to draw
    """
    from rich.console import Console

    token = _CONSOLE.set(Console(stderr=True) if console is None else console)
    try:
        yield
    finally:
        _CONSOLE.reset(token)


@contextmanager
def download_bar(text: str) -> Iterator[Bar | None]:
    """The bar of one download, None where nobody asked for it; however the download ends, the bar goes."""
    console = _CONSOLE.get()
    if console is None or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    text_column = TextColumn("{task.description}", markup=False)
    columns = text_column, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(progress, text)


class Bar:
    """One download in a Rich progress display, driven by pooch: it sets `total`, then updates, resets and closes."""

    def __init__(self, progress: Progress, text: str) -> None:
        self._progress = progress
        self._task = progress.add_task(text, total=None)

    @property
    def total(self) -> int:
        """Bytes to come, 0 where the server does not say."""
        return int(self._progress.tasks[0].total or 0)

    @total.setter
    def total(self, size: int) -> None:
        self._progress.update(self._task, total=size or None)

    def update(self, size: int) -> None:
        """Count `size` more bytes."""
        self._progress.advance(self._task, size)

    def reset(self) -> None:
        """Count from 0 again."""
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        """Nothing: the display closes when the download leaves `download_bar`, which errors do too."""
