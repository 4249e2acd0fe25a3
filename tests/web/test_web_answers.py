"""What the service answers, compared with what Python gives."""

import hashlib
import io

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from serving import HERE, KINDS, NAMES, as_file, connect, encode, scene_image, send, unpack, untrained

from joem import Segmenter, decision
from joem.web import Limits, create_app


@pytest.fixture(scope="module")
def segmenter(shared_tiny) -> Segmenter:
    return untrained(shared_tiny)


@pytest.fixture
def client(segmenter):
    with connect(segmenter) as client:
        yield client


@pytest.mark.parametrize("rule", list(decision.RULES))
def test_labels_are_those_that_python_gives(client, segmenter, rule):
    image = scene_image(size=96).crop((0, 0, 90, 61))
    settings = {"rule": rule, "sigma": 0.93, "gamma": 0.05}
    expected = segmenter.encode(image).segment(NAMES, **settings)
    at = encode(client, image)
    with Image.open(io.BytesIO(client.post(f"{at}/mask", json={"names": NAMES, **settings}).content)) as mask:
        assert np.array_equal(np.asarray(mask), expected.labels.numpy())
        assert mask.getpalette()[:12] == [channel for colour in expected.colours for channel in colour]
    told = client.post(f"{at}/segment", json={"names": NAMES, **settings}).json()
    assert told == {**expected.to_dict(), "colours": [list(colour) for colour in expected.colours]}
    overlay = client.post(f"{at}/overlay", json={"names": NAMES, **settings})
    assert overlay.headers["content-type"] == "image/png"
    assert overlay.content == as_file(expected.overlay())


def test_names_and_rule_are_the_models_unless_given(client, segmenter):
    expected = segmenter.encode(scene_image()).segment()
    assert client.post(f"{encode(client)}/segment", json={}).json()["areas"] == expected.areas()


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_read(client, segmenter, kind):
    body = as_file(scene_image(), KINDS[kind])
    at = f"/api/scenes/{send(client, body, f'image/{kind}').json()['scene']}"
    expected = segmenter.encode(Image.open(io.BytesIO(body))).segment(NAMES)
    assert client.post(f"{at}/segment", json={"names": NAMES}).json()["areas"] == expected.areas()


@pytest.mark.parametrize("kind", ["IMAGE/PNG", "Image/Png; q=1"])
def test_content_types_in_capitals(client, kind):
    assert send(client, as_file(scene_image()), kind).status_code == 200


@pytest.mark.parametrize(
    ("kind", "block"),
    [
        ("png", b"no TIFF header"),
        ("webp", b"MM\0*\0\0\0"),
        ("jpeg", b"MM\0*\0\0\0\x08\0\x02\x01)\0\x02\0\0\0\x06\0\0\0\x32\x01\x12\0\x03\0\0\0\x01\0\x06" + bytes(40)),
    ],
)
def test_a_damaged_exif_block_is_no_reason_to_refuse(client, kind, block):
    body = as_file(scene_image(), kind.upper(), exif=b"Exif\0\0" + block)
    answer = send(client, body, f"image/{kind}")
    assert answer.status_code == 200, answer.text
    assert (answer.json()["width"], answer.json()["height"]) == (64, 64)


def test_a_turned_photo_is_set_upright(client):
    exif = Image.Exif()
    exif[0x0112] = 6
    body = as_file(scene_image().crop((0, 0, 64, 40)), "JPEG", exif=exif)
    answer = send(client, body, "image/jpeg").json()
    assert (answer["width"], answer["height"]) == (40, 64)


@pytest.mark.parametrize("size", [(1, 1), (1, 70), (130, 2)])
def test_odd_sizes(client, size):
    at = encode(client, Image.new("RGB", size, (200, 30, 30)))
    header, _ = unpack(client.post(f"{at}/ranking", json={"names": NAMES}).content)
    assert (header["width"], header["height"]) == size


@pytest.mark.parametrize("rule", decision.RULES.values(), ids=lambda rule: rule.name)
def test_the_ranking_decides_as_the_service_does(client, segmenter, rule):
    at = encode(client)
    header, (*_, turning, seen, unseen) = unpack(
        client.post(f"{at}/ranking", json={"names": NAMES, "rule": rule.name}).content
    )
    assert (header["names"], header["rule"]) == (NAMES, rule.name)
    assert header["unseen"] == ["blue ring", "brown horse"]
    assert header["colours"][0] == [60, 60, 60]
    scene, parameter = segmenter.encode(scene_image()), rule.parameter
    for value in parameter.grid(0.5) if parameter else (0.0,):
        rises = parameter is None or parameter.rises
        taken = turning < np.float32(value) if rises else turning > np.float32(value)
        values = {parameter.name: value} if parameter else {}
        expected = scene.segment(NAMES, rule.name, **values).labels.numpy().ravel()
        assert np.array_equal(np.where(taken, unseen, seen), expected)


def test_the_planes_of_a_ranking_are_those_of_python(client, segmenter):
    content = client.post(f"{encode(client)}/ranking", json={"names": NAMES, "rule": "cs"}).content
    expected = segmenter.encode(scene_image()).ranking(NAMES)
    planes = (
        expected.seen_distance,
        expected.second_seen_distance,
        expected.unseen_distance,
        decision.RULES["cs"].turning(expected),
        expected.seen,
        expected.unseen,
    )
    for found, plane in zip(unpack(content)[1], planes, strict=True):
        assert np.array_equal(found, plane.flatten().numpy())


def test_a_ranking_is_by_the_models_rule_unless_told(client, segmenter):
    header, _ = unpack(client.post(f"{encode(client)}/ranking", json={"names": NAMES}).content)
    assert header["rule"] == segmenter.model.recipe.decision.rule


def test_another_rule_needs_no_other_ranking(client, monkeypatch):
    at = encode(client)
    client.post(f"{at}/ranking", json={"names": NAMES})
    monkeypatch.setattr(decision, "rank", lambda *_: pytest.fail("ranked again"))
    for rule in decision.RULES:
        assert client.post(f"{at}/ranking", json={"names": NAMES, "rule": rule}).status_code == 200


@pytest.mark.parametrize(
    ("names", "missing"),
    [(["background", "red circle"], {"unseen"}), (["cow"], {"seen", "second"}), (["red circle", "cow"], {"second"})],
)
def test_a_ranking_without_some_kind_of_class(client, names, missing):
    _, (seen_distance, second, unseen_distance, _, seen, unseen) = unpack(
        client.post(f"{encode(client)}/ranking", json={"names": names, "background": False}).content
    )
    assert np.isinf(seen_distance).all() == (seen == 255).all() == ("seen" in missing)
    assert np.isinf(second).all() == ("second" in missing)
    assert np.isinf(unseen_distance).all() == (unseen == 255).all() == ("unseen" in missing)


def test_a_pixel_is_explained(client, segmenter):
    scene = segmenter.encode(scene_image())
    distances, labels = scene.distances(NAMES), scene.segment(NAMES).labels
    at = encode(client)
    for x, y in ((0, 0), (63, 63), (20, 33)):
        found = client.post(f"{at}/explain", json={"names": NAMES, "x": x, "y": y}).json()
        (first, second), nearest = (part.tolist() for part in distances[:, y, x].topk(2, largest=False))
        assert [found[which]["name"] for which in ("first", "second")] == [NAMES[index] for index in nearest]
        assert [found[which]["trained"] for which in ("first", "second")] == [index < 2 for index in nearest]
        assert found["ratio"] == pytest.approx(first / second, rel=1e-4)
        assert found["winners"]["ac"] == NAMES[labels[y, x]]
    alone = {"names": ["cow"], "background": False, "x": 0, "y": 0}
    assert client.post(f"{at}/explain", json=alone).json()["second"] is None
    outside = client.post(f"{at}/explain", json={"x": 64, "y": 0})
    assert outside.status_code == 422
    assert "64" in outside.json()["message"]


def test_a_picture_is_encoded_once(client, segmenter, monkeypatch):
    encode(client)
    monkeypatch.setattr(type(segmenter.model.method), "features", lambda *_: pytest.fail("encoded again"))
    at = encode(client)
    for rule in decision.RULES:
        assert client.post(f"{at}/segment", json={"names": ["purple cow", "sky"], "rule": rule}).status_code == 200


def test_a_key_tells_nothing_of_what_others_sent(segmenter, monkeypatch):
    body, encoded, encode_one = as_file(scene_image()), [], segmenter.encode
    monkeypatch.setattr(segmenter, "encode", lambda image: encoded.append(1) or encode_one(image))
    app = create_app(segmenter)
    keys = []
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.1"):
        client = TestClient(app, HERE, client=(address, 4000))
        keys.append(send(client, body).json()["scene"])
    assert keys[0] == keys[2] != keys[1]
    assert len(encoded) == 2
    assert hashlib.sha256(body).hexdigest() not in keys
    elsewhere = TestClient(create_app(segmenter), HERE, client=("192.0.2.1", 4000))
    assert send(elsewhere, body).json()["scene"] not in keys


def test_what_the_model_knows(client, segmenter):
    model = client.get("/api/model").json()
    assert model["names"] == list(segmenter.vocabulary.names)
    assert model["trained"] == list(segmenter.vocabulary.seen)
    assert model["decision"] == {"rule": "ac", "values": {"gamma": 0.0, "sigma": 0.8, "discount": 0.0}}
    assert model["limits"]["pixels"] == Limits().pixels


def test_the_page_is_told_all_it_needs_of_the_rules(client):
    rules = client.get("/api/model").json()["rules"]
    assert [rule["name"] for rule in rules] == list(decision.RULES)
    assert rules[0]["parameter"] is None
    told = {rule["name"]: rule["parameter"] for rule in rules}
    assert told["cs"].items() >= {"name": "gamma", "symbol": "γ", "neutral": 0, "largest": None, "rises": True}.items()
    assert told["ac"].items() >= {"name": "sigma", "symbol": "σ", "neutral": 1, "largest": 1, "rises": False}.items()
    assert all(rule["title"] and rule["about"] for rule in rules)


@pytest.fixture
def toy(monkeypatch):
    """A rule that nothing but the registry knows: by the relative difference of the distances."""
    strength = decision.Parameter(
        "strength", "s", "how strongly new classes are preferred", 0.0, 9.0, True, lambda _: (0.0, 4.5, 9.0)
    )
    rule = decision.Rule(
        "toy", "a toy", "For tests.", lambda ranking: ranking.unseen_distance / ranking.seen_distance - 1, strength
    )
    monkeypatch.setitem(decision.RULES, "toy", rule)
    return rule


def test_a_new_rule_needs_no_change_of_the_service(toy, segmenter):
    expected = segmenter.encode(scene_image()).segment(NAMES, "toy", strength=0.4)
    with connect(segmenter) as client:
        at = encode(client)
        settings = {"names": NAMES, "rule": "toy", "strength": 0.4}
        assert client.post(f"{at}/segment", json=settings).json()["areas"] == expected.areas()
        _, (*_, turning, seen, unseen) = unpack(
            client.post(f"{at}/ranking", json={"names": NAMES, "rule": "toy"}).content
        )
        found = np.where(turning < np.float32(0.4), unseen, seen)
        assert np.array_equal(found, expected.labels.numpy().ravel())
        assert "strength: Input should be less than" in client.post(f"{at}/mask", json={"strength": 10}).text
        assert client.get("/api/model").json()["rules"][-1]["parameter"]["largest"] == 9


def test_other_spellings_are_understood_and_the_background_comes_by_itself(client):
    found = client.post(f"{encode(client)}/segment", json={"names": ["Red Circles", "cupp"]}).json()
    assert found["names"] == ["Red Circles", "cupp", "background"]
    assert found["unseen"] == ["cupp"]
    assert '"Red Circles" is the trained class "red circle".' in found["notes"]
