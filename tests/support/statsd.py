"""A StatsD server that keeps what is said of backfills."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self

#: Ends the server's thread.
_END = b"end"


class StatsdServer:
    """Listens on a port of 127.0.0.1, and keeps the lines about chunked backfills.

    Attributes:
        port: The UDP port.
        lines: What came, in order; tags as InfluxDB writes them.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._listen, name="statsd", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.sendto(_END, ("127.0.0.1", self.port))
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while (packet := self._socket.recv(65_536)) != _END:
            self.lines += [line for line in packet.decode().splitlines() if "chunked_backfill" in line]
