"""What YAML can do to whoever reads it, and recipes need not."""

import time

import pytest
import yaml

from joem import plain_yaml
from joem.errors import BadUsage

LAUGHS = "a0: &a0 [lol, lol]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LAUGHS, "the anchor or alias 'a0' in line 1: write its values out"),
        ("a: 1\nb: *a", "the anchor or alias 'a' in line 2"),
        ("a: !!python/object/apply:os.system [ls]", "the tag 'tag:yaml.org,2002:python/object/apply:os.system' in"),
        ("a: !!bool x", "the tag 'tag:yaml.org,2002:bool'"),
        ("a: !!timestamp x", "the tag"),
        ("[" * 21 + "]" * 21, "more than 20 levels in line 1"),
        ("[" * 50_000, "more than 20 levels"),
        ("a: " * 50_000, "mapping values are not allowed here"),
        ("- " * 50_000, "more than 20 levels"),
        ("a: " + "9" * 5000, "integer string conversion"),
        ("a: 1:" + ":".join(["1"] * 300) + ".5", "too large"),
        ("a: 1\na: 2", "a key is given twice below line 1"),
        ("a: {b: 1, b: 2}", "a key is given twice"),
        ("? [a]\n: b", "unhashable key"),
        ("a: b: c", "mapping values are not allowed here"),
        ("a: \x00", "special characters are not allowed"),
        ("#" * 200_001, "it has 200,001 characters, 200,000 are allowed"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_what_is_refused(text, told):
    started = time.monotonic()
    with pytest.raises(BadUsage, match=f"(?s){told}"):
        plain_yaml.parse(text)
    assert time.monotonic() - started < 10


def test_dates_are_text():
    assert plain_yaml.parse("[2020-01-01, 2020-99-99, 2001-12-14t21:59:43.10-05:00]") == [
        "2020-01-01",
        "2020-99-99",
        "2001-12-14t21:59:43.10-05:00",
    ]
    assert plain_yaml.parse("{<<: 1}") == {"<<": 1}
    assert yaml.safe_load("2020-01-01") != "2020-01-01"  # the loader of others is left alone


def test_everything_else_is_as_in_yaml():
    text = "a: [1, 2.5, -3, 0x10, true, null, 'x', \"y\", .inf]\nb:\n  c: |\n    text\n  d: ~\n"
    assert plain_yaml.parse(text) == yaml.safe_load(text)
