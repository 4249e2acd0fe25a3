"""Connections that are slow or many, on real sockets; and who counts as one client."""

import asyncio
import json
import socket
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from unittest.mock import Mock

import httpx2 as httpx
import pytest
from serving import as_file, later, listening, scene_image, slow, untrained, wait_until_inside
from uvicorn.server import ServerState

from joem import Segmenter
from joem.errors import BadUsage
from joem.web import Limits, create_app
from joem.web.access import group_of
from joem.web.connections import BoundedConnection, Connections
from joem.web.failures import Refusal
from joem.web.server import configure

ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.2 is no address of the machine")
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF = b"GET /health HTTP/1.1\r\nHost: loc"
PNG = {"Content-Type": "image/png"}


@pytest.fixture(scope="module")
def segmenter(shared_tiny) -> Segmenter:
    return untrained(shared_tiny)


@contextmanager
def service(segmenter, token=None, proxies=(), **limits):
    """Its address on a socket, and a way to open connections that are closed at the end."""
    bounds = Limits(**limits)
    app = create_app(segmenter, bounds, token)
    with listening(app, bounds, proxies) as (_, address), ExitStack() as opened:

        def connect(source="127.0.0.1"):
            made = socket.create_connection(address, source_address=(source, 0))
            made.settimeout(20)
            return opened.enter_context(made)

        yield f"http://127.0.0.1:{address[1]}", connect


def ask(url, source="127.0.0.1", **options):
    with httpx.Client(transport=httpx.HTTPTransport(local_address=source), timeout=20) as client:
        return client.get(f"{url}/health", **options)


def read_all(connection):
    """What comes until the other side closes."""
    found = b""
    while part := connection.recv(65536):
        found += part
    return found


def read_answer(connection):
    """One answer, its status and its JSON."""
    head, body = b"", b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1)
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    while len(body) < length:
        body += connection.recv(length - len(body))
    return int(head.split()[1]), json.loads(body)


def drip(connection, seconds):
    """Send a byte now and then."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        connection.sendall(b"G")
        time.sleep(0.05)


def test_connections_that_say_nothing_are_closed(segmenter):
    with service(segmenter, connections=8, header_seconds=3) as (url, connect):
        silent, begun = [connect() for _ in range(4)], [connect() for _ in range(4)]
        for connection in begun:
            connection.sendall(HALF)
        refused = ask(url)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert "4 connections from this address" in refused.json()["message"]
        assert [read_all(connection) for connection in silent] == [b""] * 4
        for connection in begun:
            status, told = read_answer(connection)
            assert (status, told["message"]) == (408, "The headers did not arrive within 3 s.")
            assert read_all(connection) == b""
        assert ask(url).status_code == 200


def test_headers_that_drip_do_not_live_longer(segmenter):
    gone = (BrokenPipeError, ConnectionResetError)
    with service(segmenter, header_seconds=0.5) as (_, connect), pytest.raises(gone):
        drip(connect(), seconds=15)


def test_the_next_request_has_the_same_deadline(segmenter):
    with service(segmenter, header_seconds=0.5) as (_, connect):
        connection = connect()
        connection.sendall(GET + HALF)
        assert read_answer(connection)[0] == 200
        assert b" 408 " in read_all(connection)


def test_requests_that_come_together_are_answered_in_turn(segmenter):
    with service(segmenter) as (_, connect):
        connection = connect()
        connection.sendall(GET + GET.replace(b"/health", b"/none") + GET)
        assert [read_answer(connection)[0], read_answer(connection)[0]] == [200, 404]


def test_work_may_take_longer_than_headers(segmenter, monkeypatch):
    with service(segmenter, header_seconds=1) as (url, _), slow(segmenter, monkeypatch) as go:
        thread, found = later(lambda: httpx.post(f"{url}/api/scenes", content=as_file(scene_image()), headers=PNG))
        time.sleep(2)
        go.set()
        thread.join()
        assert found[0].status_code == 200


@ONLY_LINUX
def test_no_address_takes_all_connections(segmenter):
    with service(segmenter, connections=8) as (url, connect):
        taken = [connect() for _ in range(8)]
        assert ask(url).status_code == 429
        assert ask(url, "127.0.0.2").status_code == 200
        more = [connect(f"127.0.0.{last}") for last in (2, 2, 3, 3)]
        refused = ask(url, "127.0.0.4")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["x-content-type-options"] == "nosniff"
        assert refused.json()["message"] == "8 connections are open: try again in a moment."
        for connection in (*taken, *more):
            connection.close()


def test_a_refused_connection_gets_in_when_there_is_room(segmenter):
    with service(segmenter, connections=2) as (_, connect):
        first, second = connect(), connect()
        second.sendall(GET)
        assert read_answer(second)[0] == 429
        first.close()
        for _ in range(200):
            second.sendall(GET)
            status = read_answer(second)[0]
            if status == 200:
                break
            time.sleep(0.02)
        assert status == 200


def test_far_too_many_connections_are_dropped(segmenter):
    with service(segmenter, connections=1, header_seconds=20) as (_, connect):
        connections = [connect() for _ in range(3)]
        with suppress(ConnectionResetError):
            assert connections[2].recv(100) == b""
        connections[1].sendall(GET)
        assert read_answer(connections[1])[0] == 429
        connections[0].sendall(GET)
        assert read_answer(connections[0])[0] == 200


def test_what_is_not_http_is_told_in_json(segmenter):
    with service(segmenter) as (_, connect):
        connection = connect()
        connection.sendall(b"\x00\x01\r\n\r\n")
        assert read_answer(connection) == (400, {"message": "Invalid HTTP request received."})


def test_without_the_token_no_body_is_read_and_no_place_taken(segmenter):
    with service(segmenter, "s3cret", queue=2, per_client=2, header_seconds=2) as (url, connect):
        request = b"POST /api/scenes HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 900\r\n"
        strangers = [connect() for _ in range(4)]
        for stranger in strangers:
            stranger.sendall(request + b"\r\nslow")
        for stranger in strangers:
            assert read_answer(stranger)[0] == 401
        headers = {**PNG, "Authorization": "Bearer s3cret"}
        assert httpx.post(f"{url}/api/scenes", content=as_file(scene_image()), headers=headers).status_code == 200
        for stranger in strangers:  # nor can they go on sending bodies that nobody reads
            with suppress(BrokenPipeError, ConnectionResetError):
                stranger.sendall(b"more")
                assert read_all(stranger) == b""


@pytest.mark.parametrize(("proxies", "status"), [((), 429), (("10.0.0.1",), 429), (("127.0.0.0/8",), 200)])
def test_only_a_trusted_proxy_tells_who_asks(segmenter, monkeypatch, proxies, status):
    def post(url, index):
        headers = {**PNG, "X-Forwarded-For": f"192.0.2.{index}"}
        return httpx.post(f"{url}/api/scenes", content=as_file(scene_image(index)), headers=headers)

    with service(segmenter, proxies=proxies, per_client=1) as (url, _), slow(segmenter, monkeypatch) as go:
        thread, first = later(post, url, 1)
        with httpx.Client(base_url=url) as client:
            wait_until_inside(client, 1)
            other, second = later(post, url, 2)
            if status == 200:
                wait_until_inside(client, 2)
            else:
                other.join()
        go.set()
        for each in (thread, other):
            each.join()
        assert (first[0].status_code, second[0].status_code) == (200, status)


def test_the_connections_of_a_proxy_are_those_of_many():
    limits = Limits(connections=8)
    plain, behind = Connections(limits), Connections(limits, ["10.1.0.0/16", "::1"])
    for address in ("10.1.2.3", "::1"):
        for _ in range(4):
            plain.enter(address)
            behind.enter(address)
        with pytest.raises(Refusal, match="4 connections from this address"):
            plain.enter(address)
    with pytest.raises(Refusal, match="8 connections are open"):
        behind.enter("10.1.2.3")
    behind.leave("::1")
    behind.enter("10.1.2.3")
    for wrong in ("*", "proxy.example", ""):
        with pytest.raises(BadUsage, match="IP addresses or networks"):
            Connections(limits, [wrong])


def test_all_addresses_of_a_household_are_one_client():
    assert group_of("2001:db8:1:2::1") == group_of("2001:db8:1:2:ffff::9") != group_of("2001:db8:1:3::1")
    assert group_of("192.0.2.1") != group_of("192.0.2.2")
    assert group_of("unknown") == "unknown"
    counted = Connections(Limits(connections=4))
    for last in "12":
        counted.enter(f"2001:db8::{last}")
    with pytest.raises(Refusal, match="2 connections"):
        counted.enter("2001:db8::3")


def test_a_client_that_is_gone_before_it_is_answered_is_not_counted():
    limits = Limits(connections=1)
    counted = Connections(limits)

    async def main():
        async def app(scope, receive, send):
            pass

        config = configure(app, limits)
        config.load()
        counted.enter("192.0.2.1")
        transport = Mock(get_extra_info={"peername": ("192.0.2.2", 9)}.get)
        transport.is_closing.return_value = False
        connection = BoundedConnection(counted, limits, config=config, server_state=ServerState(), app_state={})
        connection.connection_made(transport)
        connection.data_received(GET)
        transport.is_closing.return_value = True
        connection.connection_lost(None)
        counted.leave("192.0.2.1")
        await asyncio.sleep(0.05)  # only now the request is looked at

    asyncio.run(main())
    counted.enter("192.0.2.3")
