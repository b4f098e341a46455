"""What each rule on single pairs makes of texts in several languages."""

import re
import sys
from types import SimpleNamespace

import pytest

from transformer_mt.cleaning.language_id import load_identifier, same_language
from transformer_mt.cleaning.rules import PairText
from transformer_mt.cleaning.shards import Checker
from transformer_mt.config.cleaning import RuleSettings
from transformer_mt.errors import ConfigError

GOOD = [
    ("en", "zh", "The committee will meet again next Monday.", "委员会将于下周一再次开会。"),
    ("en", "ja", "I'd like to reserve a table for three.", "3名で席を予約したいのですが。"),
    ("en", "ja", "He was born in 1990.", "彼は一九九〇年に生まれた。"),
    ("en", "th", "Where is the nearest hospital?", "โรงพยาบาลที่ใกล้ที่สุดอยู่ที่ไหน"),
    ("en", "ko", "My phone is an iPhone 11 Pro.", "제 휴대폰은 iPhone 11 Pro입니다."),
    ("en", "ko", "Dear %(name)s,", "%(name)s 귀하,"),
    ("en", "ko", "Are you sure to shut %1 down?", "정말로 %1을 종료하시겠습니까?"),
    ("en", "ko", "See https://example.org/mit for it.", "https://example.org/mit를 보세요."),
    ("en", "ar", "There are 25 pupils in the class.", "هناك ٢٥ تلميذا في الصف."),
    ("sr", "en", "Добар дан, како сте?", "Good day, how are you?"),
    ("en", "de", "Meet me at 2:30.", "Wir treffen uns um 14:30 Uhr."),
    ("en", "de", "It cost 15 billion euros.", "Es kostete 15.000.000.000 Euro."),
    ("en", "de", "In the '90s there were 1,500 of them.", "In den 1990ern waren es 1.500."),
    ("en", "de", "It takes 100 days.", "Es dauert hundert Tage."),
    ("en", "de", "%s of %s files", "%2$s Dateien, davon %1$s"),
    ("en", "de", 'Click <a title="Help">here</a>.', 'Klicken Sie <a title="Hilfe">hier</a>.'),
    ("en", "de", "Ha, ha, ha, ha, ha!", "Ha, ha, ha, ha, ha, ha!"),
    ("en", "de", "Tom & Jerry &amp; friends", "Tom und Jerry und Freunde"),
    ("en", "fr", "«Olé», he said in the café.", "« Olé », dit-il au café."),
]
BAD = [
    ("characters", "en", "de", "He is late.", "Er kommt zu spÃ¤t."),
    ("characters", "en", "de", "It's a “test”.", "Das ist ein â€žTestâ€œ."),
    ("characters", "en", "zh", "The door is open.", "é—¨å¼€ç€ã€‚"),
    ("length", "en", "de", "!!!", "???"),
    ("length", "en", "de", "a" * 61, "ein Wort"),
    ("length", "en", "zh", "a " * 150, "字" * 201),
    ("copies", "en", "de", "The red car stops here", "The red car stops HERE!"),
    ("copies", "en", "de", "Wir sind heute alle hier.", "Wir sind heute alle da, hier."),
    ("script", "en", "zh", "Good morning, everybody!", "Zaoshang hao, dajia!"),
    ("script", "ja", "en", "안녕하세요, 여러분!", "Hello, everybody!"),
    ("repetition", "en", "zh", "I am very happy today.", "我今天很高兴很高兴很高兴很高兴很高兴"),
    ("repetition", "en", "de", "Well, good night to you.", "Naaaaaaaaaaaaa, gute Nacht."),
    ("ratio", "en", "zh", "Yes, of course, I will do it for you tomorrow.", "好"),
    ("ratio", "en", "ja", "No.", "明日は雨が降ると思いますので傘を持って行ってください。"),
    ("numbers", "en", "de", "It is 12 miles away.", "Es ist 21 Meilen entfernt."),
    ("numbers", "en", "ja", "There are 25 pupils.", "生徒は52人います。"),
    ("addresses", "en", "de", "See http://a.org/x now.", "Siehe http://a.org/y jetzt."),
    ("placeholders", "en", "de", "Open {file} now", "Datei jetzt öffnen"),
]


def reason(src_lang: str, tgt_lang: str, src: str, tgt: str) -> str | None:
    rules = RuleSettings.model_validate({"language": None})
    pair = PairText(src, tgt)
    for rule in Checker(rules, (src_lang, tgt_lang)).table():
        if rule.find(pair)[0]:
            return rule.name
    return None


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case[2][:12])
def test_good_pairs_pass(case):
    assert reason(*case) is None


@pytest.mark.parametrize("case", BAD, ids=lambda case: f"{case[0]}-{case[2]}")
def test_bad_pairs_are_dropped_by_the_rule(case):
    assert reason(*case[1:]) == case[0]


def test_rules_that_need_a_language_do_nothing_where_it_is_unknown():
    assert reason("", "", "Good morning, everybody!", "Доброе утро всем!") is None


def test_an_identifier_of_the_user_decides(monkeypatch):
    own = SimpleNamespace(codes=lambda: ["en", "de"], identify=lambda text: ("de", 0.9))
    monkeypatch.setitem(sys.modules, "mine", SimpleNamespace(model=own))
    rules = RuleSettings.model_validate({"language": {"identifier": "mine:model"}})
    rule = Checker(rules, ("en", "de")).table()[-1]
    drops, value, detail = rule.find(PairText("This is a good day.", "Das ist ein guter Tag."))
    assert (drops, value, detail) == (False, 0.0, "")  # too short to tell
    long = PairText("This is a very good day for us.", "Das ist für uns ein guter Tag.")
    assert rule.find(long) == (True, 0.9, "source: de")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("fasttext", "expected module:object"),
        ("no_such_module:x", "No module named"),
        ("os:nothing", "has no attribute"),
        ("os:path", "has no function codes"),
    ],
)
def test_an_identifier_that_is_none_is_named(name, what):
    with pytest.raises(ConfigError, match=re.escape(what)):
        load_identifier(name)


def test_languages_that_identifiers_confuse_count_as_one():
    assert same_language("nb", "no")
    assert same_language("zh", "zh-Hant-TW")
    assert not same_language("de", "nl")
