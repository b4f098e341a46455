"""Plural forms of gettext catalogs: how many a language has, and which of them is the singular."""

import gettext
import re
from collections.abc import Callable
from typing import Any, cast

_EAST_SLAVIC = (
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && "
    "(n%100<10 || n%100>=20) ? 1 : 2);"
)
_RULES = {
    "nplurals=1; plural=0;": "id ja ko ms th vi zh",
    "nplurals=2; plural=(n != 1);": (
        "bg ca da de el en eo es et eu fi fo gl he hi hu it nb nl nn no pt sv tr"
    ),
    "nplurals=2; plural=(n > 1);": "fr pt_br",
    "nplurals=3; plural=(n==1 ? 0 : n>=2 && n<=4 ? 1 : 2);": "cs sk",
    "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);": "pl",
    _EAST_SLAVIC: "be bs hr ru sr uk",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2);": "lv",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2);": (
        "lt"
    ),
    "nplurals=3; plural=(n==1 ? 0 : n==0 || (n%100>0 && n%100<20) ? 1 : 2);": "ro",
    "nplurals=4; plural=(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3);": "sl",
    "nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? "
    "4 : 5);": "ar",
}
"""Values of `Plural-Forms` by language. Source: GNU gettext manual, "Additional functions for
plural forms"."""

_HEADER = re.compile(r"\s*nplurals\s*=\s*(\d{1,2})\s*;\s*plural\s*=\s*([^;]+?)\s*;?\s*")
_COUNTS = (*range(102), 111, 112, 1000, 1_000_000)


def plural_forms_of(language: str) -> str | None:
    """Return the value of `Plural-Forms` for a language; None if it is not known."""
    code = language.lower().replace("-", "_")
    main = code.partition("_")[0]
    found = {name: rule for rule, names in _RULES.items() for name in names.split()}
    return found.get(code, found.get(main))


def counts_of_forms(header: str) -> list[list[int]] | None:
    """Return for each plural form the counts that it is used with, of a sample.

    Args:
        header: Value of `Plural-Forms`.

    Returns:
        None if it cannot be read, or its forms are not those that it says.
    """
    match = _HEADER.fullmatch(header)
    if match is None:
        return None
    try:
        compiled = cast(Callable[[str], Callable[[int], int]], cast(Any, gettext).c2py)(match[2])
        forms: list[list[int]] = [[] for _ in range(int(match[1]))]
        for count in _COUNTS:
            forms[compiled(count)].append(count)
    except (ValueError, IndexError, ArithmeticError):
        return None
    return forms
