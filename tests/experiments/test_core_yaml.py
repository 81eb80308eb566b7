from __future__ import annotations

import math
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenlove_tracker.experiments.core_yaml import YamlDocument, YamlMistake, core_schema_value

# YAML 1.2.2, section 10.3.2; the first rows are the specification's own example 10.3 with its neighbours.
CORE_SCHEMA = [
    ("null", None),
    ("Null", None),
    ("NULL", None),
    ("~", None),
    ("", None),
    ("nULL", "nULL"),
    ("true", True),
    ("True", True),
    ("TRUE", True),
    ("false", False),
    ("False", False),
    ("FALSE", False),
    ("tRUE", "tRUE"),
    *((text, text) for text in ("yes", "Yes", "no", "NO", "on", "Off", "y", "n", "N")),
    ("0", 0),
    ("-19", -19),
    ("+12", 12),
    ("017", 17),
    ("-0", 0),
    ("0o17", 15),
    ("0o7", 7),
    ("0x1F", 31),
    ("0x3A", 58),
    *((text, text) for text in ("0o8", "0O17", "+0o17", "0X1F", "-0x1F", "0b1", "1_000", "0x", "0o", "--1")),
    ("0.", 0.0),
    (".5", 0.5),
    ("-0.0", -0.0),
    ("+.5", 0.5),
    ("1e-3", 0.001),
    ("1E3", 1000.0),
    ("12e03", 12000.0),
    ("-2E+05", -200000.0),
    (".5e1", 5.0),
    ("1.e2", 100.0),
    (".inf", math.inf),
    ("-.Inf", -math.inf),
    ("+.INF", math.inf),
    *((text, text) for text in (".", "e3", "1e", ".e1", "1.2.3", "1_0.5", ".iNF", "inf", "nan", ".nAN", "+.nan")),
    *((text, text) for text in ("10:30", "1:30:00", "190:20:30.15", "2026-11-22", "2026-11-22T08:00:00Z", "12:30:45")),
    *((text, text) for text in ("<<", "=", "١٢")),
]


@pytest.mark.parametrize(("text", "value"), CORE_SCHEMA)
def test_a_plain_scalar_is_what_the_core_schema_says(text, value):
    found = core_schema_value(text)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("text", ["1\n", "0x1F ", " 1", "- 1"])
def test_a_number_is_one_from_its_first_to_its_last_character(text):
    assert core_schema_value(text) == text


@pytest.mark.parametrize("text", [".nan", ".NaN", ".NAN"])
def test_not_a_number(text):
    assert math.isnan(core_schema_value(text))


@pytest.mark.parametrize(("text", "value"), CORE_SCHEMA)
def test_so_it_is_in_a_document(text, value):
    assert YamlDocument.of(f"- {text}\n").value == [value]


def test_quoted_scalars_are_texts_and_as_they_are():
    document = YamlDocument.of("""- '1'\n- "true"\n- ''\n- "\\x41\\n"\n- |\n  12\n""")
    assert document.value == ["1", "true", "", "A\n", "12\n"] and not document.written


def test_it_knows_where_each_value_and_key_stands():
    document = YamlDocument.of("a:\n  b: [1, 1e-3]\n  'c d': x\n")
    assert document.value == {"a": {"b": [1, 0.001], "c d": "x"}}
    assert document.written == {("a", "b", 0): "1", ("a", "b", 1): "1e-3", ("a", "c d"): "x"}
    assert (document.mark(("a", "b", 1)).line, document.mark(("a", "b", 1)).column) == (2, 10)
    assert (document.mark(("a", "b"), of_key=True).line, document.mark(("a", "b"), of_key=True).column) == (2, 3)
    assert document.mark(("a", "b", 9)) == document.mark(("a", "b"))  # what is not there is in what it would lie in


def test_aliases_are_written_out():
    document = YamlDocument.of("a: &x {k: 1e-3}\nb: [*x, *x]\n")
    assert document.value == {"a": {"k": 0.001}, "b": [{"k": 0.001}, {"k": 0.001}]}
    assert document.written[("b", 1, "k")] == "1e-3" and document.mark(("b", 1, "k")).line == 1


LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "the file is empty"),
        ("# nothing\n", 1, "the file is empty"),
        ("a: 1\nb: 2\na: 3\n", 3, "stands twice, first in line 1"),
        ("a: 1\n---\nb: 2\n", 2, "a second document"),
        ("a: !!python/object:os.system x\n", 1, "'!!python/object:os.system' makes nothing here"),
        ("a: ! x\n", 1, "a tag"),
        ("%YAML 1.1\n---\na: 1\n", 2, "leave the line %YAML out"),
        ("a: &x [*x]\n", 1, "levels deep"),
        (LAUGHS, 1, "over 10,000 values"),
        ("[" + "1, " * 20_000 + "1]", 1, "over 10,000 values"),
        ("[" * 100, 1, "more than 12 levels deep"),
        ("".join(f"k{n}: &a{n} {'[' * 10}{f'*a{n - 1}' if n else 1}{']' * 10}\n" for n in range(9)), 1, "levels deep"),
        ("1: a\n", 1, "a key is a text, and 1 is none: put it in quotes"),
        (": a\n", 1, "a key is a text, and here is none"),
        ("? [a]\n: b\n", 1, "a list or mapping cannot be a key"),
        ("a:\n\tb: 1\n", 2, "indent by spaces, not by a tab"),
        ("a: b: c\n", 1, 'a text that holds ": " stands in quotes'),
        ("x: 1\na: 'b\nc: d\n", 2, "is not closed"),
        ("a: [1,\nb: 2\n", 1, "is not closed"),
        ("a: [--x, ${Y}]\n", 1, 'write it in quotes: "${NAME}"'),
        ("a: 'b\x07'\n", 1, "the character U+0007"),
        ('a: "\\0"\n', 1, "this holds U+0000"),
        ('a: "\\uD800"\n', 1, "this holds U+D800"),
        ('a: "\\UFFFFFFFF"\n', 1, "stands for no character"),
        (f"a: {'9' * 5000}\n", 1, "a number of 5000 digits"),
        (f"{'9' * 500}: a\n", 1, "a number of 500 digits"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(text, line, said):
    with pytest.raises(YamlMistake) as caught:
        YamlDocument.of(text)
    assert caught.value.mark.line == line and said in caught.value.message


PIECES = (
    *(": ", "\n", "- ", "[", "]", "{", "}", "&a ", "*a", "!!str ", "|", ">", "'", '"', "#", "%", "@", "`", "\t", "a"),
    *("---\n", "...\n", "? ", "<<: ", "\\x", "\\uD800", "\u2028", "0x", "1e5", "~", "%YAML 1.1\n", "\r", "é", "😀"),
)


@pytest.mark.slow
@settings(max_examples=300, derandomize=True)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join) | st.text(max_size=40))
def test_of_any_text_only_mistakes_come_out(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            document = YamlDocument.of(text)
        except YamlMistake as mistake:
            assert 1 <= mistake.mark.line <= text.count("\n") + text.count("\r") + text.count("\u2028") + 1
            assert mistake.message
        else:
            assert () in document.marks
