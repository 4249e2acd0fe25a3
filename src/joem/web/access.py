"""Who may ask: what a request's headers tell, before its body is read."""

import hmac
import ipaddress
import re
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import Scope

from joem.errors import BadUsage
from joem.web.failures import Refusal

_OPEN = ("/", "/health", "/openapi.json")
_OPEN_FOLDER = "/page/"


class Access:
    """The check of the host that a request is sent to, and of the token it carries.

    Args:
        hosts: names that requests may be sent to besides localhost and IP addresses.
        token: the bearer token that requests must carry, but for what holds nothing of the model; none if None.
    """

    def __init__(self, hosts: Sequence[str] = (), token: str | None = None) -> None:
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._token = None if token is None else check_token(token).encode()

    def check(self, scope: Scope) -> None:
        """Refuse a request that may not be answered."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_for_us(host):
            message = f"This service does not answer to the host {host[:80]!r}: start it with --allowed-hosts NAME."
            raise Refusal(421, message)
        path = scope["path"]
        if self._token is None or path in _OPEN or path.startswith(_OPEN_FOLDER):
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token):
            message = "Send the service's token in the header: Authorization: Bearer TOKEN."
            raise Refusal(401, message, {"WWW-Authenticate": "Bearer"})

    def _is_for_us(self, host: str) -> bool:
        """Whether a Host header (name:port) names this service.

        Another site's page can let its own name lead here (DNS rebinding), and would then read every answer. It cannot
        do so with an address, nor with a name that it does not own.
        """
        name = re.sub(r":\d*$", "", host).lower()
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name in self._hosts
        return True


def check_token(token: str) -> str:
    """The token, if headers can carry it."""
    if not re.fullmatch("[!-~]+", token):
        raise BadUsage(
            "A token must be one word of ASCII letters, digits and signs, as no others arrive unchanged in a header: "
            'make one with python -c "import secrets; print(secrets.token_urlsafe(32))".'
        )
    return token


def client_of(scope: Scope) -> str:
    """The address that a request comes from."""
    return str((scope.get("client") or ("",))[0])


def group_of(address: str) -> str:
    """What counts as one client: an address, or for IPv6 the /64 that one household has all of.

    >>> group_of("192.0.2.7"), group_of("2001:db8::7")
    ('192.0.2.7', '2001:db8::/64')
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # a name that a proxy passes on, or none
        return address
    return address if found.version == 4 else str(ipaddress.ip_network((int(found), 64), strict=False))
