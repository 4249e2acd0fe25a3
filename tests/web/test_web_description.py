"""The OpenAPI description against the service."""

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serving import HERE, KINDS, as_file, scene_image, send, untrained

from joem import Segmenter
from joem.web import Limits, create_app
from joem.web.gallery import generated


@pytest.fixture(scope="module")
def segmenter(shared_tiny) -> Segmenter:
    return untrained(shared_tiny)


for name, kind in KINDS.items():
    schemathesis.openapi.media_type(
        f"image/{name}", st.integers(0, 3).map(scene_image).map(lambda image, kind=kind: as_file(image, kind))
    )


CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_the_description_is_true(segmenter, mode):
    hosts = ["testserver"]  # what schemathesis takes for the name of an app
    app = create_app(segmenter, Limits(mask_pixels=10_000), samples=generated(segmenter.model.recipe.data), hosts=hosts)
    with TestClient(app, HERE) as client:
        # A scene that exists among those asked for, or there would be little but 404s.
        key = send(client, as_file(scene_image())).json()["scene"]
        for path in app.openapi()["paths"].values():
            for parameter in path.get("post", {}).get("parameters", []):
                if parameter["name"] == "key":
                    parameter["schema"]["enum"] = [key, key, key, "unknown"]
        statuses = set()
        for found in schemathesis.openapi.from_asgi("/openapi.json", app).get_all_operations():
            operation = found.ok()
            if mode is schemathesis.GenerationMode.NEGATIVE and not operation.path.startswith("/api/scenes/"):
                continue  # nothing to get wrong in what is sent

            @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case):
                statuses.add(case.call_and_validate(checks=CHECKS).status_code)

            check()
        assert statuses >= ({200, 422} if mode is schemathesis.GenerationMode.POSITIVE else {422})
