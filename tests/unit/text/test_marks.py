"""What is protected in a line, and what is not."""

import pytest

from transformer_mt.text.marks import (
    doubtful_in,
    marks_in,
    missing,
    nesting,
    take_out,
)


@pytest.mark.parametrize(
    ("line", "marks"),
    [
        ("Hello {name}, {0} of {}", ["{name}", "{0}", "{}"]),
        ("${user} and {{ item.price }}", ["${user}", "{{ item.price }}"]),
        ("%s of %d, %(total)d, %1$s, %5.2f%%", ["%s", "%d", "%(total)d", "%1$s", "%5.2f", "%%"]),
        ("Qt: %1 of %2.", ["%1", "%2"]),
        ("100% of 5 % are 7%so, 50%discount", []),
        ("%dx%d, %dh, x%(a)dy, %.1fs, %-*s", ["%d", "%d", "%d", "%(a)d", "%.1f", "%-*s"]),
        ("%count% of %s%%, %{n} #{n} %<n>d", ["%count%", "%s", "%%", "%{n}", "#{n}", "%<n>d"]),
        ("__x__ $(unit) $PATH $name @GPG@", ["__x__", "$(unit)", "$PATH", "$name", "@GPG@"]),
        ("%Y-%m-%d at %H:%M", ["%Y", "%m", "%d", "%H", "%M"]),
        ("<0>a</0> <1/>", ["<0>", "</0>", "<1/>"]),
        (
            r'<a href=\"x y\" title="a \"b\"">b</a>',
            [r'<a href=\"x y\" title="a \"b\"">', "</a>"],
        ),
        (
            "{n, plural, one {# dog {b}} other {# dogs}} on {d, date, short}",
            ["{n, plural, one {# dog {b}} other {# dogs}}", "{d, date, short}"],
        ),
        ("{% if a %} {{{b}}} { c }", ["{% if a %}", "{{{b}}}", "{ c }"]),
        (
            '<a href="x y">a</a><br/> &amp; &#39;',
            ['<a href="x y">', "</a>", "<br/>", "&amp;", "&#39;"],
        ),
        ("a < b and c > d; {two words}", []),
        ("See https://a.b/c?d=1, (www.x.org).", ["https://a.b/c?d=1", "www.x.org"]),
        ("(https://a.b/c_(d), www.e.f/(g)_h.)", ["https://a.b/c_(d)", "www.e.f/(g)_h"]),
        ("Mail me.too+1@mail.example.org.", ["me.too+1@mail.example.org"]),
        ("At 12:30:45, :name: and <<y>>", [":name:", "<<y>>"]),
        ("Run `tmt -q` or ``a b``; ``quoted'' and `so' `", ["`tmt -q`", "``a b``"]),
    ],
)
def test_marks_are_found_and_text_is_left(line, marks):
    assert marks_in(line) == marks


def test_text_that_resembles_a_mark_is_reported():
    assert doubtful_in(r"{two words} <a b,c> {x} %s\n [[y]] %kk @me **so** :key") == [
        "{two words}", "<a b,c>", r"\n", "[[y]]", "%kk", "@me", "**", "**", ":key",
    ]  # fmt: skip
    assert doubtful_in("100% of 5 %, a < b > c, me@x.org, $5, {x} <b> 2 ** 3 :D http://x:80") == []


@pytest.mark.parametrize(
    ("line", "text", "places"),
    [
        ("Click {x} now", "Click now", [6]),
        ("the <b>red</b> dog", "the red dog", [4, 7]),
        ("I wait for {x}.", "I wait for.", [10]),
        ("{x} came", "came", [0]),
        ("plain  text ", "plain  text ", []),
        ("a dog {x} {y}", "a dog", [5, 5]),
        ("<li>a</li><li>dog<br></li>.", "a dog.", [0, 1, 1, 5, 5]),
        ("a<b>b</b>c&nbsp;d &nbsp;e", "abc d e", [1, 2, 3, 6]),
        ("x {a} {b} . {c}, y", "x ., y", [2, 2, 3]),
    ],
)
def test_text_without_marks_has_no_gaps(line, text, places):
    found, marks = take_out(line)
    assert found == text
    assert [mark.place for mark in marks] == places


def test_time_grows_with_the_line_and_not_with_its_square():
    num = 30_000  # minutes, if each mark looked at those before it
    text, marks = take_out(", ".join(["{x}"] * num))
    assert text == "," * (num - 1)
    assert [mark.place for mark in marks] == [*range(num - 1), num - 1]
    brackets = "http://" + "(." * 10**5 + "." * 10**5
    assert marks_in(brackets) == [brackets[: 7 + 2 * 10**5 - 1]]
    for opening in ("{n, plural, ", "<!--", "__a ", '<a b="', "{% ", "%a", " `a", ":a", "<<a"):
        assert len(marks_in(opening * 20_000)) <= 20_000
    assert marks_in("x" * 10**6 + " {a} %" + "0" * 10**5) == ["{a}", "%" + "0" * 10**5]


def test_tags_know_their_partners():
    _, marks = take_out("<p>a <b>c</b> <br/> d</p> </i>")
    assert [mark.partner for mark in marks] == [4, 2, 1, None, 0, None]


def test_marks_are_counted():
    assert missing(["{a}", "{b}", "{a}"], "x {b} {a} {c}") == ["{a}", "{c}"]
    assert missing(["{a}"], "{a}") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("<a x='1'><b></b></a>", {("</a>", 0): 1, ("</b>", 0): 1}),
        ("<a><b></a></b>", {("</b>", 0): 1}),
        ("</a> <a>", {}),
        ("<p></p><p></p>", {("</p>", 0): 2}),
        ("<p><p></p></p>", {("</p>", 0): 1, ("</p>", 1): 1}),
        ("<b><br><IMG src='x'></b>", {("</b>", 0): 1}),
    ],
)
def test_nesting_is_known(line, expected):
    assert nesting(marks_in(line)) == expected
