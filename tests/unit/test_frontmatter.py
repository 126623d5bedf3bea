"""Frontmatter is given back as it was written, in values that JSON holds, or refused at its line."""

import json
from typing import Any

import msgspec
import pytest

from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.frontmatter import read_frontmatter
from quarterdeck.skills.model import BundleError
from tests.unit.archives import frontmatter

LIMITS = BundleSettings()


def read(*lines: str) -> dict[str, Any]:
    return read_frontmatter(frontmatter(*(line.encode() for line in lines)), LIMITS)


def described(*lines: str) -> str:
    text = "\n".join(["---", "name: pdf-tools", *lines, "---", ""])
    value = read_frontmatter(text.encode(), LIMITS)["description"]
    assert isinstance(value, str)
    return value


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("NULL", None),
        ("nUll", "nUll"),
        ("true", True),
        ("FALSE", False),
        ("tRue", "tRue"),
        ("0", 0),
        ("-0", 0),
        ("+12", 12),
        ("007", 7),
        ("0o17", 15),
        ("0x1F", 31),
        ("1.5", 1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("-1e3", -1000.0),
        ("9007199254740992", 2**53),
        ("-9007199254740992", -(2**53)),
        ("'1'", "1"),
        ('"true"', "true"),
        ("[]", []),
        ("{}", {}),
        ("[a, {b: [1, ~]}]", ["a", {"b": [1, None]}]),
        ("|\n  a\n  b", "a\nb\n"),
        (">-\n  a\n  b", "a b"),
    ],
)
def test_core_scalars(written: str, value: object) -> None:
    got = read(f"x: {written}")["x"]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        *("yes", "No", "on", "off", "y"),  # booleans of YAML 1.1
        *("2024-01-31", "2001-12-14t21:59:43.10-05:00", "12:30:45"),
        *(".nan", ".inf", "-.inf", "+.INF", "1e999", "-1e999"),
        *("9007199254740993", "-9007199254740993", "1e300", "9" * 5000, "0x" + "f" * 5000),
        *("1_000", "0b1", "017_", "1.2.3", "--", "+", "-", ".", "0o8", "0xg", "١", "1e", "<<", "="),
    ],
)
def test_stays_text(text: str) -> None:
    assert read(f"x: {text!s}" if text != "-" else "x: '-'")["x"] == text


def test_every_key_is_kept_as_text_and_in_order() -> None:
    got = read("1: a", "true: b", "~: c", "1.50: d", "2024-01-31: e", "'': f", "<<: {g: h}", "user-invocable: no")
    assert list(got.items())[2:] == [
        ("1", "a"),
        ("true", "b"),
        ("~", "c"),
        ("1.50", "d"),
        ("2024-01-31", "e"),
        ("", "f"),
        ("<<", {"g": "h"}),
        ("user-invocable", "no"),
    ]


def test_all_of_it_is_json() -> None:
    got = read(
        "a: [2024-01-31, .nan, .inf, 1e999, 123456789012345678901234567890, 0.1, ~, '😀\\u2028']", "b: {1: {~: x}}"
    )
    assert msgspec.json.decode(msgspec.json.encode(got)) == got
    assert json.loads(json.dumps(got, allow_nan=False)) == got


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (["description: Use when: always"], "Use when: always"),
        (["description: Use when:"], "Use when:"),
        (["description: It's used: 'often'"], "It's used: 'often'"),
        (["description: a: b: c"], "a: b: c"),
        (["description: Fixes this: see #12"], "Fixes this: see #12"),
        (["description: one: two\r"], "one: two"),
        (["description: Use when: one", "  two", "", "  three: four"], "Use when: one two\nthree: four"),
        (["description: first", "  Use: when"], "first Use: when"),
        (["description: -a: b"], "-a: b"),
        (["description: a: b", "license: MIT: really"], "a: b"),
        (["description: C:\\dir: a"], "C:\\dir: a"),
    ],
)  # fmt: skip
def test_an_unquoted_colon_is_repaired(lines: list[str], value: str) -> None:
    assert described(*lines) == value


def test_valid_values_are_not_repaired() -> None:
    assert described("description: http://a.b/c:d e:f") == "http://a.b/c:d e:f"
    assert described("description: 'a: b'") == "a: b"
    assert described("description: |", "  a: b") == "a: b\n"


@pytest.mark.parametrize(
    "line", ["x: [a: b: c", "x: 'a: b", "x: {a: b", "x: `a: b`", "x: @a: b", "m:\n  x: a: b", "x: - a: b"]
)
def test_only_top_level_plain_scalars_are_repaired(line: str) -> None:
    with pytest.raises(BundleError, match="not YAML"):
        read(line)


def test_repair_does_not_hide_errors() -> None:
    with pytest.raises(BundleError, match="an anchor"):
        read("x: a: b", "y: &a 1")


def test_first_error_is_reported_with_its_line() -> None:
    with pytest.raises(BundleError) as refused:
        read("x: a: b", "y: [")
    assert (refused.value.path, refused.value.line) == ("SKILL.md", 4)


@pytest.mark.parametrize(
    ("skill_md", "line"),
    [
        (b"name: a\n", 1),
        (b"---\nname: a\ndescription: b\n\nk: !!int 1\n---\n", 5),
        (b"---\r\nname: a\r\ndescription: b\r\n\r\nk: *x\r\n---\r\n", 5),
        (b"---\nname: a\ndescription: b\nk: 1\nk: 2\n---\n", 5),
        (b"---\nname: a\ndescription: b\nk: \x7f\n---\n", 4),
        (b"---\nname: a\ndescription: b\nk: %s\n---\n" % ("é".encode() * 99 + b"\x07"), 4),
        (b"---\nkey: 1\nname: B\ndescription: b\n---\n", 3),
        (b"---\nkey: 1\nname: b\ndescription: ''\n---\n", 4),
        (b"---\nname: a\ndescription: b\n---\n\n\xff", 6),
        (b"---\nname: a\ndescription: b\n---\n\n\n\0", 7),
        (b"---\nname: a\n---\n", None),
    ],
)
def test_faults_carry_their_line(skill_md: bytes, line: int | None) -> None:
    with pytest.raises(BundleError) as refused:
        read_frontmatter(skill_md, LIMITS)
    assert (refused.value.path, refused.value.line) == ("SKILL.md", line)


@pytest.mark.parametrize("name", ["a", "7", "a-b-c", "x" * 64, "2024-01-31", "'1'", "a1-2b"])
def test_names(name: str) -> None:
    skill_md = f"---\nname: {name}\ndescription: a\n---\n".encode()
    if name == "7":
        # Without quotes it is a number.
        with pytest.raises(BundleError, match="not a string"):
            read_frontmatter(skill_md, LIMITS)
    else:
        assert read_frontmatter(skill_md, LIMITS)["name"] == name.strip("'")


def test_a_description_may_have_1024_code_points() -> None:
    assert len(described("description: " + "😀" * 1024)) == 1024
    assert len(described("description: |", "  " + "a" * 1024)) == 1025


def test_limits_come_from_settings() -> None:
    small = BundleSettings(frontmatter_bytes=60, frontmatter_depth=2, frontmatter_nodes=8)
    read_frontmatter(frontmatter(b"x: [a]"), small)
    for line, reason in [
        (b"x: [[]]", "deeper than 2 levels"),
        (b"x: [a,b]", "more than 8 nodes"),
        (b"x: aaaaaaaaaaaaaaa", "larger than 60 bytes"),
    ]:
        with pytest.raises(BundleError, match=reason):
            read_frontmatter(frontmatter(line), small)


def test_nodes_and_levels_at_the_limit() -> None:
    # The mapping, two keys with their values and `x` with its list are seven.
    assert len(read("x: [" + "1," * (LIMITS.frontmatter_nodes - 7) + "]")["x"]) == LIMITS.frontmatter_nodes - 7
    with pytest.raises(BundleError, match="nodes"):
        read("x: [" + "1," * (LIMITS.frontmatter_nodes - 6) + "]")
    read("x: " + "[" * 31 + "]" * 31)
