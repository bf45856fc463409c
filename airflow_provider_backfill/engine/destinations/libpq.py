"""Connection URIs as libpq reads them, and dlt's credentials that keep them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode


def libpq_uri(
    *,
    user: str | None = None,
    password: str | None = None,
    host: str | None = None,
    port: int | None = None,
    database: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> str:
    """A connection URI with every part quoted.

    Args:
        user: Who logs in; default who runs this process.
        password: The password, if the server asks for one.
        host: Name, address, or the directory of a socket; default ``localhost``.
        port: TCP port; default 5432.
        database: The database; default the one named after the user.
        options: Further parameters, such as ``sslmode``.
    """
    login = quote(user or "", safe="")
    if password:
        login += f":{quote(password, safe='')}"
    address = host or "localhost"
    # Brackets make an IPv6 address; quoted slashes, the directory of a socket.
    address = f"[{address}]" if ":" in address else quote(address, safe="")
    query = urlencode({name: str(value) for name, value in (options or {}).items()}, quote_via=quote)
    return (
        f"postgresql://{login and f'{login}@'}{address}{f':{port}' if port else ''}"
        f"/{quote(database or user or '', safe='')}{query and f'?{query}'}"
    )


def uri_credentials(uri: str) -> Any:
    """dlt's credentials for a URI, which connect with that URI and no other spelling of it."""
    return _credentials_class()(uri)


@cache
def _credentials_class() -> Any:
    from dlt.common.configuration import configspec
    from dlt.destinations.impl.postgres.configuration import PostgresCredentials

    @configspec(init=False)
    class UriCredentials(PostgresCredentials):
        """dlt spells a URI anew through SQLAlchemy, and 1.4 leaves ``%`` in a password, which libpq refuses.

        Nor does dlt take a URI without a password, for a server that asks for none.
        """

        def __init__(self, uri: str) -> None:
            super().__init__(uri)
            self._uri = uri
            self.password = self.password or ""
            self.resolve()

        def to_native_representation(self) -> str:
            return self._uri

    return UriCredentials
