"""The small parts: tokens, lengths of time, edits by position, calls of aggregates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.sql.calls import aggregate_calls, chains, clock_calls, volatile_calls
from anabranch.sql.durations import duration_text, parse_duration
from anabranch.sql.lexer import Token, string_value, tokenize
from anabranch.sql.spelling import normal_form
from anabranch.sql.splice import Edit, splice
from anabranch.sql.text import Span, quote_name, quote_string


def tokens(text: str) -> list[Token]:
    return tokenize(text)[:-1]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a.b_1", ["a", ".", "b_1"]),
        ("'It''s' \"x\"\"y\"", ["'It''s'", '"x""y"']),
        (r"'a\'b'", [r"'a\'b'"]),
        (r"r'\d' R\"a\"".replace('\\"', '"'), [r"r'\d'", 'R"a"']),
        ("`a``b`", ["`a``b`"]),
        ("1L 1.5BD .5 1e3 2Y", ["1L", "1.5BD", ".5", "1e3", "2Y"]),
        ("1a", ["1a"]),
        ("a<=>b>>>c", ["a", "<=>", "b", ">>>", "c"]),
        ("x->y=>z::t", ["x", "->", "y", "=>", "z", "::", "t"]),
        ("a/* b /* c */ d */e--f\ng", ["a", "e", "g"]),
        ("/*+ HINT */ a", ["a"]),
        ("prix € ".replace("€ ", ""), ["prix"]),
        ("größe", ["größe"]),
        ("\ufeffSELECT", ["SELECT"]),
    ],
)
def test_tokens(text: str, parts: list[str]) -> None:
    assert [token.text for token in tokens(text)] == parts


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'a'", "a"),
        ("'It''s'", "It's"),
        (r"'C:\\users\\x'", r"C:\users\x"),
        (r"'\u0041\n\t\101'", "A\n\tA"),
        (r"'a\%b\_'", r"a\%b\_"),
        (r"'\user'", "user"),
        (r"r'\n'", r"\n"),
        ('"a""b"', 'a"b'),
    ],
)
def test_what_a_string_stands_for(literal: str, value: str) -> None:
    assert string_value(literal) == value


@given(st.text())
def test_quoting_and_reading_back_changes_nothing(text: str) -> None:
    (string,) = tokens(quote_string(text))
    assert string.kind == "string" and string.value == text
    (name,) = tokens(quote_name(text))
    assert name.kind == "quoted" and name.name == text


@given(st.text(max_size=30))
def test_tokens_are_where_they_say(text: str) -> None:
    try:
        found = tokenize(text)
    except Exception as error:
        assert type(error).__name__ == "SyntaxProblem"
        return
    for token in found:
        assert text[token.start : token.end] == token.text


def test_normal_form_ignores_blanks_comments_and_the_case_of_words() -> None:
    assert normal_form(tokens("Sum( A )+'X'")) == normal_form(tokens("sum(a) /* c */ + 'X'"))
    assert normal_form(tokens("'x'")) != normal_form(tokens("'X'"))


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("10 minutes", 600_000_000),
        ("1 hour 30 min", 5_400_000_000),
        ("1.5 s", 1_500_000),
        ("250 ms", 250_000),
        ("-1 day", -86_400_000_000),
        ("1 week", 604_800_000_000),
        ("1 month", None),
        ("ten minutes", None),
        ("", None),
        ("9" * 5000 + " days", None),
    ],
)
def test_lengths_of_time(text: str, micros: int | None) -> None:
    assert parse_duration(text) == micros


@given(st.integers(min_value=1, max_value=10**15))
def test_a_printed_length_of_time_reads_back(micros: int) -> None:
    assert parse_duration(duration_text(micros)) == micros


@given(st.data())
def test_places_in_an_edited_text_map_back(data: st.DataObject) -> None:
    """Every character that was not edited is found at its own place in the original."""
    text = data.draw(st.text(alphabet="abcdefgh ", min_size=1, max_size=30))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    edits = [
        Edit(Span(start, end), data.draw(st.text(alphabet="XYZ", max_size=4)))
        for start, end in zip(cuts[::2], cuts[1::2], strict=False)
    ]
    made = splice(text, Span(0, len(text)), edits)
    kept = "".join(c for i, c in enumerate(text) if not any(e.span.start <= i < e.span.end for e in edits))
    assert "".join(c for c in made.text if c not in "XYZ") == kept
    for index, character in enumerate(made.text):
        place = made.original(index, index + 1)
        assert 0 <= place.start <= len(text)
        if character not in "XYZ":
            assert text[place.start] == character
        else:
            assert any(e.span.start <= place.start <= e.span.end for e in edits)


def test_edits_inside_another_are_dropped() -> None:
    made = splice("a + b * c", Span(0, 9), [Edit(Span(4, 9), "x"), Edit(Span(4, 5), "y"), Edit(Span(0, 0), "(")])
    assert made.text == "(a + x"
    assert made.original(5, 6) == Span(4, 9)


@pytest.mark.parametrize(
    ("expression", "calls"),
    [
        ("count(*)", ["count(*)"]),
        ("sum(a + b) / count(DISTINCT c)", ["sum(a + b)", "count(DISTINCT c)"]),
        ("round(avg(a), 2)", ["avg(a)"]),
        ("sum(a) FILTER (WHERE b > 1) + 1", ["sum(a) FILTER (WHERE b > 1)"]),
        ("sum(a) OVER (PARTITION BY b)", []),
        ("sum(sum(a)) OVER (ORDER BY max(b))", ["sum(a)", "max(b)"]),
        ("sum(a) FILTER (WHERE b) OVER ()", []),
        ("first(a) IGNORE NULLS", ["first(a) IGNORE NULLS"]),
        ("last(a) IGNORE NULLS OVER (ORDER BY b)", []),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY a)", ["percentile_cont(0.5) WITHIN GROUP (ORDER BY a)"]),
        ("mode() WITHIN GROUP (ORDER BY a) FILTER (WHERE b) x", ["mode() WITHIN GROUP (ORDER BY a) FILTER (WHERE b)"]),
        ("a + (SELECT max(b) FROM t)", []),
        ("count", []),
        ("t.count(a)", []),
        ("`sum`(a)", []),
        ("'sum(a)'", []),
        ("max /* of */ (a)", ["max /* of */ (a)"]),
    ],
)
def test_aggregate_calls(expression: str, calls: list[str]) -> None:
    assert [call.span.of(expression) for call in aggregate_calls(tokens(expression))] == calls


def test_calls_that_mean_the_same_have_one_key() -> None:
    def key(text: str) -> str:
        (call,) = aggregate_calls(tokens(text))
        return call.key

    assert key("SUM( a )") == key("sum(a)")
    different = [
        "sum(a)", "sum(DISTINCT a)", "sum(a) FILTER (WHERE b)", "first(a)", "first(a) IGNORE NULLS",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY a)", "percentile_cont(0.5) WITHIN GROUP (ORDER BY b)",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FILTER (WHERE c)",
    ]  # fmt: skip
    assert len({key(text) for text in different}) == len(different)
    assert key("first(a) RESPECT NULLS") == key("first(a)")
    assert key("collect_list(a) IGNORE NULLS") == key("collect_list(a)") != key("collect_list(a) RESPECT NULLS")


def test_names_and_volatile_calls_of_an_expression() -> None:
    assert [chain.parts for chain in chains(tokens("a + b.c.`d e` * f(g)"))] == [
        ("a",), ("b", "c", "d e"), ("g",),
    ]  # fmt: skip
    text = "rand() + uuid + current_date + t.now() + now() + a.current_date AS current_time"
    text += ", unix_timestamp(), unix_timestamp(x)"
    assert [token.text for token in volatile_calls(tokens(text))] == ["rand"]
    found = [(name, span.of(text)) for name, span in clock_calls(tokens(text))]
    assert found == [("current_date", "current_date"), ("now", "now()"), ("unix_timestamp", "unix_timestamp()")]
    text = "TIMESTAMP 'now' + cast(' Today ' AS date) + 'tomorrow'::timestamp_ntz + date('yesterday UTC') + k = 'now'"
    text += " + to_timestamp('now', 'x') + DATE '2026-01-01' + current_user() + user + session_user + a.current_user"
    found = [(name, span.of(text)) for name, span in clock_calls(tokens(text))]
    assert found == [
        ("timestamp 'now'", "TIMESTAMP 'now'"), ("date 'today'", "cast(' Today ' AS date)"),
        ("timestamp_ntz 'tomorrow'", "'tomorrow'::timestamp_ntz"), ("date 'yesterday UTC'", "date('yesterday UTC')"),
    ]  # fmt: skip
    assert [token.text for token in volatile_calls(tokens(text))] == ["current_user", "session_user"]
