"""Language identification from file names, scripts and common words.

Rough, cheap and without a model: good enough to fill in a form that a person reads.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath

from transformer_mt.config.language_codes import CODES, NAMES

_SCRIPTS = {
    "GREEK": "el", "HEBREW": "he", "ARABIC": "ar", "DEVANAGARI": "hi", "BENGALI": "bn",
    "TAMIL": "ta", "TELUGU": "te", "GUJARATI": "gu", "KANNADA": "kn", "MALAYALAM": "ml",
    "GURMUKHI": "pa", "SINHALA": "si", "THAI": "th", "LAO": "lo", "KHMER": "km", "MYANMAR": "my",
    "TIBETAN": "bo", "GEORGIAN": "ka", "ARMENIAN": "hy", "ETHIOPIC": "am", "HANGUL": "ko",
    "HIRAGANA": "ja", "KATAKANA": "ja", "CJK": "zh",
}  # fmt: skip

_COMMON_WORDS = {
    "en": "the of and to in is a that it with for on was are this you he be i do what have",
    "de": "der die das und in ein eine ist nicht zu mit den auf von einem sich er ich im einer",
    "fr": "le la les de des et un une est dans à que pour il sur en du ne pas qui",
    "es": "el la los las de y un una en es que por con para no se del al lo su",
    "it": "il la di e un una che in è per con non del sono le della si i gli nel",
    "pt": "o a os de e um uma em que não do da para com é se no na os mais",
    "nl": "de het een van en in is dat op te met voor niet zijn er die aan ik hij maar",
    "sv": "och i att det som en på är av för med den till inte ett har de jag om var",
    "da": "og i at det en på er af for med den til ikke et har de jeg der som var",
    "no": "og i å det en på er av for med den til ikke et har de jeg som var fra",
    "fi": "ja on ei se että oli hän mutta ovat kun niin kuin tai minä sen mitä myös joka en ole",
    "pl": "i w nie na się z do to jest że o a jak co po za od ale tak przez",
    "cs": "a se v na je to že s z do o ve jsem i ale jako za by pro jsou",
    "sk": "a sa v na je to že s z do o vo som aj ale ako za by pre sú",
    "hu": "a az és nem hogy egy is van volt de ez meg csak már azt mint el ki lehet ha",
    "ro": "și în de a la cu nu o un este pe din care că se pentru să mai au fost",
    "tr": "bir ve bu için çok da de ile ne var daha gibi ben o olarak değil mi kadar sen şey",
    "ca": "el la els les de i un una en és que per amb no es del al ho a va",
    "id": "dan yang di ini itu dengan untuk tidak dari dalam adalah akan ke pada saya dia ada kami",
    "vi": "và của là có không được cho một những trong với này đã các người để tôi khi đó",
    "hr": "i je u na se da za su od ne s to a o koji kao sam će što bi",
    "lt": "ir yra į kad iš su tai ne buvo jis kaip o ji tik bet už prie nuo apie jo",
    "et": "ja on ei see et oli ta kui oma mis ka aga seda siis või ma nii tema olen kes",
    "ru": "и в не на что он с я это как а по но она к от из так у вы",
    "uk": "і в не на що він з я це як а по але вона до від та так у ви є й",
    "bg": "и в не на че той с аз това как а по но тя за от са се да е",
}
_WORDS = {code: frozenset(words.split()) for code, words in _COMMON_WORDS.items()}
_ENDING_LIST = "txt text tsv tab csv json jsonl ndjson parquet gz bz2 xz zst raw tok clean utf8"
_ENDINGS = frozenset(_ENDING_LIST.split())
_ENOUGH_WORDS = 50
_LEAST_SHARE = 0.1
"""Of the running words that are among the commonest of the language."""
_LEAST_LEAD = 1.25


def language_of_name(name: str) -> str | None:
    """Find a language in the name of a file or column: `train.en.gz`, `news_de.txt`, `English`."""
    parts = [part for part in re.split(r"[^\w-]+|_", PurePath(name).name) if part]
    while len(parts) > 1 and parts[-1].lower() in _ENDINGS:
        parts.pop()
    last = parts[-1] if parts else ""
    main, _, region = last.partition("-")
    if main.lower() in CODES:
        is_region = re.fullmatch("[A-Z][A-Za-z]{1,3}", region)
        return f"{main.lower()}-{region}" if is_region else main.lower()
    return NAMES.get(last.lower())


def common_words(code: str) -> frozenset[str]:
    """Return the commonest words of a language; none for one that is not known here."""
    return _WORDS.get(code, frozenset())


def common_words_in(line: str) -> dict[str, int]:
    """Count the words of a line that are among the commonest of each language, by code."""
    words = re.findall(r"[^\W\d_]+", line.lower())
    return {code: sum(word in common for word in words) for code, common in _WORDS.items()}


def script_of(text: str) -> str | None:
    """Return the script of most letters of a text, as Unicode names it; None without a letter.

    Han characters, hiragana and katakana count as one script.
    """
    scripts = Counter(unicodedata.name(c, "").partition(" ")[0] for c in text if c.isalpha())
    for name in ("HIRAGANA", "KATAKANA"):
        scripts["CJK"] += scripts.pop(name, 0)
    script, number = scripts.most_common(1)[0]
    return script if number else None


def language_of_text(lines: Iterable[str]) -> str | None:
    """Guess the language of lines; None if it is not clear."""
    words: Counter[str] = Counter()
    scripts: Counter[str] = Counter()
    for line in lines:
        words.update(re.findall(r"[^\W\d_]+", line.lower()))
        scripts.update(unicodedata.name(c, "").partition(" ")[0] for c in line if c.isalpha())
    if not scripts:
        return None
    if scripts["HIRAGANA"] + scripts["KATAKANA"] > 0.1 * scripts.total():
        return "ja"
    script, number = scripts.most_common(1)[0]
    if script not in ("LATIN", "CYRILLIC"):
        return _SCRIPTS.get(script) if number > scripts.total() / 2 else None
    total = words.total()
    shares = {
        code: sum(words[word] for word in common) / max(total, 1) for code, common in _WORDS.items()
    }
    second, best = sorted(shares, key=lambda code: shares[code])[-2:]
    is_clear = shares[best] >= max(_LEAST_SHARE, _LEAST_LEAD * shares[second])
    return best if is_clear and total >= _ENOUGH_WORDS else None
