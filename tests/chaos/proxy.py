"""A wire to Postgres that loses the answer to a COMMIT: the database committed, the client never hears."""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.chaos.actors import Actor, HarnessError, fork

#: psycopg2's ``commit()`` on the wire, which is not encrypted here.
_COMMIT = b"COMMIT\x00"
_BLOCK = 1 << 16


class Proxy:
    """A process that passes bytes between a port of its own and the server's.

    Args:
        server_port: Where the server listens on 127.0.0.1.
        log: Where the process's complaints go.

    Attributes:
        port: Where it listens itself.
        actor: Its process.
    """

    def __init__(self, server_port: int, log: Path) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._orders, self._arm = os.pipe()
        self._answers, self._answer = os.pipe()
        self._armed = False
        self._peers: dict[socket.socket, socket.socket] = {}
        self._clients: set[socket.socket] = set()
        self._doomed: set[socket.socket] = set()
        self.actor: Actor = fork(self._serve, log)
        self._listener.close()
        os.close(self._orders)
        os.close(self._answer)

    def arm(self) -> None:
        """Lose the answer to the next COMMIT, once. Returns when that is understood."""
        os.write(self._arm, b"!")
        if self._said(10) != b"+":
            raise HarnessError("the proxy does not answer")

    @property
    def lost(self) -> bool:
        """An answer was lost since `arm`."""
        return self._said(0) == b"x"

    def _said(self, seconds: float) -> bytes:
        ready, _, _ = select.select([self._answers], [], [], seconds)
        return os.read(self._answers, 1) if ready else b""

    def close(self) -> None:
        self.actor.kill()
        os.close(self._arm)
        os.close(self._answers)

    # In the process

    def _serve(self) -> int:
        while True:
            sources: list[Any] = [self._listener, self._orders, *self._peers]
            ready, _, _ = select.select(sources, [], [])
            for one in ready:
                if one is self._listener:
                    self._accept()
                elif one == self._orders:
                    if not os.read(self._orders, 1):
                        return 0
                    self._armed = True
                    os.write(self._answer, b"+")
                elif one in self._peers:
                    self._pass_on(one)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._server_port))
        except OSError:
            client.close()
            return
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients.add(client)
        self._peers |= {client: server, server: client}

    def _pass_on(self, one: socket.socket) -> None:
        peer = self._peers[one]
        try:
            data = one.recv(_BLOCK)
            if not data:
                self._drop(one)
            elif one in self._doomed:
                # The server has answered, so it has committed. Nobody will know.
                self._doomed.discard(one)
                self._drop(one)
                os.write(self._answer, b"x")
            else:
                if self._armed and one in self._clients and data.endswith(_COMMIT):
                    self._armed = False
                    self._doomed.add(peer)
                peer.sendall(data)
        except OSError:
            self._drop(one)

    def _drop(self, one: socket.socket) -> None:
        peer = self._peers.pop(one)
        self._peers.pop(peer, None)
        for end in (one, peer):
            self._clients.discard(end)
            with suppress(OSError):
                end.close()
