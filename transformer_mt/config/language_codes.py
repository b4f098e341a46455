"""Language codes, for the scorer and the sentence splitter."""

import difflib
import re

_CODE_LIST = (
    "af am ar as az be bg bn bo br bs ca cs cy da de el en eo es et eu fa fi fo fr fy ga gd gl gu "
    "ha he hi hr hu hy id ig is it ja ka kk km kn ko ku ky la lb lo lt lv mg mi mk ml mn mr ms mt "
    "my nb ne nl nn no ny oc or pa pl ps pt rm rn ro ru rw sa sd si sk sl sm sn so sq sr st su sv "
    "sw ta te tg th ti tk tl tn tr ts tt ug uk ur uz vi wo xh yi yo zh zu"
)
CODES = frozenset(_CODE_LIST.split())
"""ISO 639-1."""

NAMES = {
    "english": "en", "german": "de", "french": "fr", "spanish": "es", "italian": "it",
    "portuguese": "pt", "dutch": "nl", "swedish": "sv", "danish": "da", "norwegian": "no",
    "finnish": "fi", "polish": "pl", "czech": "cs", "slovak": "sk", "hungarian": "hu",
    "romanian": "ro", "russian": "ru", "ukrainian": "uk", "bulgarian": "bg", "greek": "el",
    "turkish": "tr", "arabic": "ar", "hebrew": "he", "persian": "fa", "hindi": "hi",
    "chinese": "zh", "japanese": "ja", "korean": "ko", "vietnamese": "vi", "indonesian": "id",
    "thai": "th", "khmer": "km", "burmese": "my", "lao": "lo", "tibetan": "bo",
    "catalan": "ca", "croatian": "hr", "serbian": "sr", "slovenian": "sl",
    "lithuanian": "lt", "latvian": "lv", "estonian": "et", "icelandic": "is", "irish": "ga",
    "deutsch": "de", "français": "fr", "español": "es", "italiano": "it", "português": "pt",
}  # fmt: skip

_OTHER_CODES = {
    "jp": "ja", "cn": "zh", "jpn": "ja", "kor": "ko", "tha": "th", "khm": "km", "mya": "my",
    "bod": "bo", "tib": "bo", "bur": "my",
    **dict.fromkeys(("zho", "chi", "cmn", "yue", "wuu", "lzh"), "zh"),
}  # fmt: skip
"""Codes of three letters, and wrong ones in use, of languages whose code decides something."""

WITHOUT_SPACES = frozenset(("zh", "ja", "th", "lo", "km", "my", "bo"))
"""Languages that put no space between words and sentences."""


def plain_code(language: str) -> str:
    """Reduce a code or name to the one that tables know: `zh_Hant`, `cmn` and `Chinese` to `zh`."""
    first = re.split("[-_@]", language.strip().lower())[0]
    return _OTHER_CODES.get(first) or NAMES.get(first, first)


def unknown_code_warning(language: str) -> str | None:
    """Return a warning about an unknown language code; None for one that may be right.

    There are thousands of codes of three letters; all of them may be right.
    """
    code = plain_code(language)
    if code in CODES or code in WITHOUT_SPACES or len(code) == 3:
        return None
    near = difflib.get_close_matches(code, [*NAMES, *_OTHER_CODES], n=1, cutoff=0.6)
    hint = f"; did you mean '{plain_code(near[0])}'?" if near else ""
    return f"'{language}' is no code of a language that is known, such as de, zh-CN or jpn{hint}"
