"""The command that answers requests with scores."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

from typer import Option

from bagwise.cli.common import show
from bagwise.cli.tables import ModelFolder, load_model
from bagwise.utils.parameters import Parameter, ParameterError

_BACKLOG = 128  # connections that wait
_MOST = 512  # connections that are answered; others are told to come again
_KEPT = 5  # seconds that an idle connection is kept


def _check_address(host: str, port: int) -> None:
    """Raise where nobody can listen there."""
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does, after one that ended
            tried.bind(address)
    except OSError as error:
        reason, ways = (
            (error.strerror or str(error)).lower(),
            ("and ", Parameter("port"), f" {port} cannot be listened"),
        )
        raise ParameterError("host", f"{host} ", *ways, f" on ({reason}): choose another one.") from None


def serve(
    folder: ModelFolder,
    host: Annotated[str, Option(help="Address to listen on; 0.0.0.0 for all of this machine.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    max_rows: Annotated[int, Option(min=1, help="Most rows of a request.")] = 10_000,
    max_bytes: Annotated[int, Option(min=2, help="Most bytes of a request.")] = 8 * 2**20,
) -> None:
    """Answer HTTP requests with scores of a model, until it is stopped.

    POST /score with {"rows": [{"column": value}]}; GET /model, GET /health.
    """
    from bagwise.utils.packages import needed

    for package in ("fastapi", "uvicorn"):
        needed(package, "serve", "HTTP services")
    import uvicorn

    from bagwise.serving import make_app

    _check_address(host, port)
    app = make_app(load_model(Path(folder)), max_rows=max_rows, max_bytes=max_bytes)
    show(f"Serving {folder} on http://{host}:{port}; Ctrl-C ends it.")
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        backlog=_BACKLOG,
        limit_concurrency=_MOST,
        timeout_keep_alive=_KEPT,
        server_header=False,
    )
