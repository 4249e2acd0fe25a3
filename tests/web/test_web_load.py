"""Many requests at once, slow ones, and what is kept in memory."""

import asyncio
import os
import platform
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import httpx2 as httpx
import pytest
import torch
from serving import as_file, connect, encode, later, listening, scene_image, send, slow, untrained, wait_until_inside

from joem import Segmenter
from joem.engine import return_freed_memory
from joem.scene import Scene
from joem.web import Limits, create_app, decoding
from joem.web.access import Access
from joem.web.cache import SceneCache, bytes_of
from joem.web.failures import Refusal
from joem.web.metrics import Metrics
from joem.web.middleware import Admission, BoundedSend, RequestBounds
from joem.web.service import Service
from joem.web.work import Workers


@pytest.fixture(scope="module")
def segmenter(shared_tiny) -> Segmenter:
    return untrained(shared_tiny)


def test_health_answers_while_it_works(segmenter, monkeypatch):
    with connect(segmenter, workers=1) as client, slow(segmenter, monkeypatch) as go:
        thread, found = later(send, client, as_file(scene_image()))
        wait_until_inside(client, 1)
        assert client.get("/health").json() == {"status": "ok"}
        assert not found
        go.set()
        thread.join()
        assert found[0].status_code == 200
        wait_until_inside(client, 0)


@pytest.mark.parametrize(("limits", "status"), [({"per_client": 2}, 429), ({"queue": 2}, 503)])
def test_too_much_at_once_is_refused(segmenter, monkeypatch, limits, status):
    with connect(segmenter, workers=1, **limits) as client, slow(segmenter, monkeypatch) as go:
        under_way = [later(send, client, as_file(scene_image(i))) for i in range(2)]
        wait_until_inside(client, 2)
        refused = send(client, as_file(scene_image(2)))
        assert refused.status_code == status
        assert refused.headers["retry-after"] == "1"
        assert "under way" in refused.json()["message"]
        go.set()
        for thread, found in under_way:
            thread.join()
            assert found[0].status_code == 200


def test_work_that_takes_too_long(segmenter, monkeypatch):
    begun, read, bodies = [], decoding.read_picture, [as_file(scene_image(i)) for i in range(3)]
    monkeypatch.setattr("joem.web.service.read_picture", lambda *given: begun.append(given[0]) or read(*given))
    with connect(segmenter, workers=1, seconds=0.2) as client, slow(segmenter, monkeypatch) as go:
        for thread, found in [later(send, client, body) for body in bodies[:2]]:
            thread.join()
            assert found[0].status_code == 504
            assert "0.2 s" in found[0].json()["message"]
        go.set()
        for _ in range(100):  # the thread may still be busy
            answer = send(client, bodies[2])
            if answer.status_code == 200:
                break
            threading.Event().wait(0.1)
        assert answer.status_code == 200
    assert len(set(begun) & set(bodies[:2])) == 1  # what still waited when its time was over was dropped


def test_work_that_could_not_be_done_in_time_is_refused_at_once(monkeypatch):
    workers, go, now = Workers(Limits(workers=2, seconds=30)), threading.Event(), [0.0]
    monkeypatch.setattr("joem.web.work.time", SimpleNamespace(perf_counter=lambda: now[0]))

    def take_ten_seconds():
        now[0] += 10

    async def main():
        await workers.run(take_ten_seconds)
        under_way = [asyncio.ensure_future(workers.run(lambda: go.wait(20))) for _ in range(6)]
        await asyncio.sleep(0)
        # The seventh would wait for five on two threads, then take its own ten seconds: 35.
        with pytest.raises(Refusal, match="try again in 5 s") as refusal:
            await workers.run(take_ten_seconds)
        assert (refusal.value.status_code, refusal.value.headers) == (503, {"Retry-After": "5"})
        go.set()
        assert all(await asyncio.gather(*under_way))
        await workers.run(take_ten_seconds)

    asyncio.run(main())
    workers.close()


def test_a_slow_start_does_not_stop_the_service(monkeypatch):
    workers, now = Workers(Limits(workers=1, seconds=30)), [0.0]
    monkeypatch.setattr("joem.web.work.time", SimpleNamespace(perf_counter=lambda: now[0]))
    for seconds in (1000, 1, 1):  # nothing waits, so nothing is refused
        asyncio.run(workers.run(lambda seconds=seconds: now.__setitem__(0, now[0] + seconds)))
    workers.close()


def test_a_body_that_comes_too_slowly():
    async def drip():
        await asyncio.sleep(5)

    async def app(scope, receive, send):
        with pytest.raises(Refusal) as refusal:
            await receive()
        assert refusal.value.status_code == 408

    limits = Limits(seconds=0.05)
    bounds = RequestBounds(app, Access(), Admission(limits), limits, Metrics())
    scope = {"type": "http", "method": "POST", "path": "/api/scenes", "headers": [(b"host", b"localhost")]}
    asyncio.run(bounds(scope, drip, None))


def test_an_answer_goes_in_pieces():
    sent, content = [], bytes(range(256)) * 2500

    async def send(message):
        sent.append(message)

    asyncio.run(BoundedSend(send, 1)({"type": "http.response.body", "body": content}))
    assert b"".join(message["body"] for message in sent) == content
    assert max(len(message["body"]) for message in sent) == 256 * 1024
    assert [message.get("more_body", False) for message in sent] == [True, True, True, False]


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux lets go of closed connections")
def test_a_client_that_never_reads_counts_and_is_dropped(segmenter, monkeypatch):
    monkeypatch.setattr(Service, "ranking", lambda *_: bytes(28_000_000))
    limits = Limits(seconds=2)
    app = create_app(segmenter, limits)
    with listening(app, limits) as (server, address), httpx.Client(base_url=f"http://127.0.0.1:{address[1]}") as client:
        headers = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 2"
        request = f"POST {encode(client)}/ranking HTTP/1.1\r\n{headers}\r\n\r\n{{}}"
        with socket.create_connection(address) as silent:
            silent.sendall(request.encode())
            wait_until_inside(client, 1)
            wait_until_inside(client, 0)
            client.close()
            for _ in range(2000):
                if not server.server_state.connections:
                    break
                threading.Event().wait(0.005)
            assert not server.server_state.connections


def test_closing_finishes_what_runs_and_drops_what_waits():
    workers, started, go, done = Workers(Limits(workers=1)), threading.Event(), threading.Event(), []

    def work():
        started.set()
        go.wait(10)
        done.append(1)

    async def main():
        running, waiting = (asyncio.ensure_future(workers.run(work)) for _ in range(2))
        await asyncio.to_thread(started.wait, 10)
        threading.Timer(0.1, go.set).start()
        await asyncio.to_thread(workers.close)
        await asyncio.wait([running, waiting])
        assert waiting.cancelled()

    asyncio.run(main())
    assert done == [1]


def a_scene(numbers):
    return Scene(None, torch.zeros(3, 0, 0, dtype=torch.uint8), torch.zeros(1, numbers, 1, 1))


def test_the_cache_keeps_what_was_used_last_within_its_bytes():
    cache = SceneCache(1000, prototypes=0)
    for key in "abc":
        cache.put(key, a_scene(80))
    cache.get("a")
    cache.put("d", a_scene(80))
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]
    assert cache.bytes == 960
    cache.put("d", a_scene(80))
    assert cache.bytes == 960
    cache.put("e", a_scene(500))  # larger than all room there is: kept, alone
    assert (len(cache), cache.bytes) == (1, 2000)
    cache.put("f", a_scene(10))
    assert (len(cache), cache.bytes) == (1, 40)


@pytest.mark.parametrize("size", [(64, 64), (200, 31)])
def test_the_cache_counts_what_scenes_come_to_hold(segmenter, size):
    names = [f"{colour} {thing}" for colour in ("red", "blue") for thing in ("cow", "cat", "dog", "car", "cup")]
    scene = segmenter.encode(scene_image(size=max(size)).crop((0, 0, *size)))
    counted = bytes_of(scene, prototypes=len(names) + 1)
    scene.segment(names).to_dict()
    (latest,) = scene._latest.values()
    kept = (scene.features, scene.pixels, scene._norms.squares, latest.classes.prototypes, *latest.ranking)
    assert counted == sum(tensor.untyped_storage().nbytes() for tensor in kept)


def test_memory_is_given_back_after_work(monkeypatch):
    returned = []
    monkeypatch.setattr("joem.web.work.return_freed_memory", lambda: returned.append(1))
    workers = Workers(Limits())
    assert asyncio.run(workers.run(lambda: 7)) == 7
    with pytest.raises(ZeroDivisionError):
        asyncio.run(workers.run(lambda: 1 / 0))
    workers.close()
    assert returned == [1, 1]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what is freed")
def test_freed_memory_between_kept_blocks_is_given_back():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    blocks = [torch.ones(25_000) for _ in range(2000)]
    before, kept = resident(), blocks[::50]
    del blocks
    return_freed_memory()
    assert resident() < before - 100_000_000
    assert all(bool((block == 1).all()) for block in kept)


def test_a_scene_that_was_let_go_can_be_sent_again(segmenter):
    with connect(segmenter, cache_bytes=1) as client:
        first = encode(client, scene_image(0))
        encode(client, scene_image(1))
        assert client.post(f"{first}/segment", json={}).status_code == 404
        assert encode(client, scene_image(0)) == first
        assert client.post(f"{first}/segment", json={}).status_code == 200
