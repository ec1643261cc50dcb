"""Pages whose charset is declared in each possible place, declared wrongly, or not declared."""

from sites.cases import Case
from skitter.testing import Answer

RUSSIAN = "Быстрая лиса прыгает через ленивую собаку, и каждый охотник желает знать, где сидит фазан. "
JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"
WESTERN = "Der große Bär aß süße Äpfel über dem Fluß, während die Vögel für höhere Löhne übten. "

WORDS = {
    "utf-8": "Ωmega ñandú 東京",
    "latin-1": "Äpfel für Señor",
    "windows-1251": "Привет, мир",
    "koi8-r": "Добрый день",
    "shift_jis": "日本語の題名",
    "utf-16": "Κόσμε 世界",
}
_TEXTS = {"windows-1251": RUSSIAN, "koi8-r": RUSSIAN, "shift_jis": JAPANESE, "latin-1": WESTERN}


def charset_case(encoding, header=None, meta="", bom=b"", codec=None):
    """Return the case of a page in ``encoding``, declared by ``header`` and ``meta``."""

    def answer(_visit, _count, page):
        text = _TEXTS.get(encoding, RUSSIAN + JAPANESE) * 4
        page = page.replace("<head>", f"<head>{meta}").replace("<body>", f"<body><p>{text}</p>")
        return Answer(bom + page.encode(codec or encoding), content_type=header or "text/html")

    return Case(answer, pages=2), WORDS[encoding]


_HTTP_EQUIV = '<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">'

CHARSETS = {
    "header utf-8": charset_case("utf-8", "text/html; charset=utf-8"),
    "header quoted, in capitals": charset_case("utf-8", 'Text/HTML;Charset="UTF-8"'),
    "header latin-1": charset_case("latin-1", "text/html; charset=iso-8859-1"),
    "header windows-1251": charset_case("windows-1251", "text/html; charset=windows-1251"),
    "header koi8-r": charset_case("koi8-r", "text/html; charset=koi8-r"),
    "header shift_jis": charset_case("shift_jis", "text/html; charset=Shift_JIS"),
    "meta windows-1251": charset_case("windows-1251", meta='<meta charset="windows-1251">'),
    "meta http-equiv koi8-r": charset_case("koi8-r", meta=_HTTP_EQUIV),
    "meta shift_jis": charset_case("shift_jis", meta="<meta charset=shift_jis>"),
    "mark utf-16le": charset_case("utf-16", bom=b"\xff\xfe", codec="utf-16-le"),
    "mark utf-16be": charset_case("utf-16", bom=b"\xfe\xff", codec="utf-16-be"),
    "mark utf-8": charset_case("utf-8", bom=b"\xef\xbb\xbf"),
    "mark against header": charset_case(
        "utf-16", "text/html; charset=utf-8", bom=b"\xff\xfe", codec="utf-16-le"
    ),
    "header against meta": charset_case("utf-8", "text/html; charset=utf-8", '<meta charset="koi8-r">'),
    "unknown in header": charset_case("utf-8", "text/html; charset=x-klingon"),
    "unknown in header, meta right": charset_case(
        "windows-1251", "text/html; charset=none", '<meta charset="windows-1251">'
    ),
    "none, utf-8": charset_case("utf-8"),
    "none, windows-1251": charset_case("windows-1251"),
    "none, shift_jis": charset_case("shift_jis"),
}
"""The case, and the words in the title of its pages."""
