"""The prose is plain English: retired phrases return neither to the documentation nor to messages."""

import ast
import re
import tokenize

import pytest

from manual import PAGES, ROOT, name_of

CHECK_SOURCE = True
"""Whether docstrings and messages of the source are checked as well."""
SOURCE = sorted((ROOT / "src").rglob("*.py"))
PROGRAMS = sorted(
    path for name in ("benchmarks", "deploy", "docs", "examples") for path in (ROOT / name).rglob("*.py")
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
CONFIGURATION = [
    *(ROOT / name for name in ("Makefile", "mkdocs.yml", "pyproject.toml", "deploy/Dockerfile")),
    *sorted(path for name in ("deploy", "examples") for path in (ROOT / name).rglob("*.y*ml")),
]
READMES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", "benchmarks/README.md")
DOCUMENTS = [*(ROOT / name for name in READMES), *PAGES]
LONGEST_LINE = 160

_START = r"(?:^|(?<=[.:;|] )|(?<=\*\* ))"
"""The start of a sentence or of a table cell."""
RETIRED = [
    (
        r"(?<!there )\b(?:is|are) no (?!longer|more|less|fewer|better|worse)",
        "say what it is: 'invalid port: 7'",
    ),
    (
        r"(?<!there )\b(?:is|are|was|has) none\b(?! of\b)",
        "name what is missing: 'has no errback', 'not a URL'",
    ),
    (r"\bso (?:many|much|few|long|often)\b", "name the quantity: 'that many requests', 'for that time'"),
    (r"pip install [\"']?skitter\[", 'skitter is not on PyPI: write pip install ".[extra]", in the clone'),
    (r"\bfor ever\b", "write 'forever' or 'without limit'"),
    (r"\bin hand\b", "write 'in progress'"),
    (
        rf"{_START}who (?:has|is|needs|wants|looks|names|serves|crawls)\b",
        "name the person: 'If you need ...'",
    ),
    (
        r"\bwhat (?:waits|stands|comes|came|remains|belongs|follows|is left|is queued|was left|can be had)\b",
        "name the thing: 'waiting requests'",
    ),
    (
        r"\b(?:stands?|stood) (?:in|at|on|beside|below|above|before|after|there)\b",
        "write 'is listed in', 'is stored in'",
    ),
    (r"\b(?:nobody|somebody|whoever|whosoever)\b", "name the person or the process: 'no worker', 'a user'"),
    (r"\b(?:is|are|was|were|be|been|being|not|it) told\b|\btold by\b", "write 'is notified', 'receives'"),
    (r"\btells (?:of|what|who|how|whether|that)\b", "write 'reports', 'returns', 'shows'"),
    (r"\bat work\b", "write 'in progress' or 'running'"),
    (r"\b(?:go|goes|going|went|gone) on\b", "write 'continue'"),
    (r"\bbegun\b|\bbegan with\b", "write 'started'"),
    (r"\bby hand\b", "write 'manually'"),
    (r"\bof which\b", "use a second sentence"),
    (r"\b(?:as|of|to|by|for) whom\b", "name the person"),
    (r"\b(?:can|could|cannot|to) be had\b", "write 'is available', 'can be fetched'"),
    (r"\bbesides(?=[.,;:]| holds?\b)|\bholds? besides\b", "write 'in addition' or 'as well'"),
    (r"\b(?:therein|thereof|wherein|whereof|whence|hereby|herein)\b", "use a second sentence"),
    (r"\banew\b", "write 'again'"),
    (r"\blook(?:s|ed|ing)? after\b", "write 'monitor' or 'maintain'"),
    (r"\bshall\b", "write 'must' or 'will'"),
    (r"\bas (?:it|they) stands?\b|\bas of old\b|\bas ever\b", "write 'unchanged'"),
    (r"\bbut for\b|\bsave for\b", "write 'except'"),
    (r"\bmend(?:s|ed|ing)?\b|\bput right\b", "write 'fix' or 'correct'"),
    (r"\btak(?:e|es|en|ing) no notice\b", "write 'ignore'"),
    (r"\bbroken off\b|\bbreaks? off\b", "write 'abort' or 'cancel'"),
    (r"\b(?:and|or) (?:its|their|the) like\b", "name the others, or write 'and similar'"),
    (r"\bin no (?:time|way|case)\b", "write 'never' or 'not'"),
    (r"\b(?:finds?|found|comes?|came) to its end\b|\bcome to an end\b", "write 'ends'"),
    (r"\bup to (?:it|him|them)\b", "say who decides"),
    (r"\brequests? that (?:is|are|was|were) given up\b", "write 'failed requests' or 'dead letters'"),
    (r"\bstrangers?\b", "write 'untrusted'"),
    (r"\bhears? of\b", "write 'receives' or 'is notified of'"),
    (r"\b(?:runs?|crawls?|works?) on(?= (?:while|until|as|and|beside)\b|[.,;])", "write 'continues'"),
    (r"\bis waited for\b|\bare waited for\b", "name who waits: 'workers wait for it'"),
    (r"\b(?:asks?|asked) for by no\b|\bnothing (?:is )?asked\b", "say who asks"),
    (r"\bas long as (?:it|they) (?:is|are) there\b", "say when it ends"),
    (r"\bwherefore\b|\bwhereby\b|\bwhereupon\b|\bthenceforth\b|\bhence\b", "use a second sentence"),
    (r"\b(?:costs?|means?|says?|finds?|knows?|gives?) nothing but\b", "write 'only'"),
    (
        (
            r"(?<!name )\b(?:servers?|hosts?|origins?|sites?|nodes?|replicas?|frontiers?|nsqds?) (?:that )?"
            r"(?:(?:has|have|had|do|does|did|may|can|could|must) )?(?:not |never |no longer )?answer(?:s|ed)?\b"
        ),
        "write 'respond', or 'reply' to a command; only name servers answer",
    ),
]
"""Each phrase, as a case-insensitive regular expression, and what to write instead."""
EXCEPTIONS = [
    # (page or source file, allowed words)
    ("src/skitter/testing/generated.py", "go on"),  # the text of a link
]

_CODE = re.compile(r"^```.*?^```$|``[^`]+``|`[^`\n]+`|\]\([^)]*\)|<[^>\n]+>", re.MULTILINE | re.DOTALL)
_PATTERNS = [(re.compile(pattern, re.IGNORECASE | re.MULTILINE), hint) for pattern, hint in RETIRED]


def without_code(text):
    """Blank out code and targets of links, and keep all line numbers."""
    return _CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def findings(text, name, first_line=1):
    """Yield a line for each retired phrase of a text: its position, and what to write instead."""
    text = without_code(text)
    flowing = re.sub(r"(?<!\n)\n(?!\n)", " ", text)  # a phrase may be wrapped
    for pattern, hint in _PATTERNS:
        for found in pattern.finditer(flowing):
            if (name, found[0].lower()) not in EXCEPTIONS:
                line = first_line + text.count("\n", 0, found.start())
                yield f"{name}:{line}: {found[0].strip()!r}: {hint}"


def texts_of(source):
    """Yield docstrings, other string literals and comments of Python source with their first lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    yield from comments_of(source)


def docstrings_and_comments_of(source):
    """Yield docstrings and comments with their first lines. Other strings of tests are data."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node, clean=False)
            if docstring is not None:
                yield node.body[0].lineno, docstring
    yield from comments_of(source)


def comments_of(source):
    """Yield comments with their lines."""
    for token in tokenize.generate_tokens(iter(source.splitlines(keepends=True)).__next__):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_a_page_has_no_retired_phrase(page):
    assert list(findings(page.read_text("utf-8"), name_of(page))) == []


@pytest.mark.parametrize("path", CONFIGURATION, ids=name_of)
def test_a_configuration_file_has_no_retired_phrase(path):
    assert list(findings(path.read_text("utf-8"), name_of(path))) == []


@pytest.mark.parametrize("path", [*SOURCE, *PROGRAMS] if CHECK_SOURCE else [], ids=name_of)
def test_docstrings_comments_and_messages_have_no_retired_phrase(path):
    texts = texts_of(path.read_text("utf-8"))
    assert [found for line, text in texts for found in findings(text, name_of(path), line)] == []


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_docstrings_and_comments_of_a_test_have_no_retired_phrase(path):
    texts = docstrings_and_comments_of(path.read_text("utf-8"))
    assert [found for line, text in texts for found in findings(text, name_of(path), line)] == []


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_the_lines_of_a_page_are_short(page):
    """Rows of tables and code cannot be wrapped; only the text of links counts."""
    text = without_code(page.read_text("utf-8"))
    lines = [line.rstrip() for line in text.splitlines() if not line.lstrip().startswith("|")]
    assert [line for line in lines if len(line) > LONGEST_LINE] == []


@pytest.mark.parametrize(
    "sentence",
    [
        "7 is no port.",
        "A handler that is none is refused.",
        "Wait for so many seconds.",
        "It runs for ever.",
        "Finish what is in hand.",
        "Who has NSQ already may use it.",
        "What waits is dropped.",
        "The table stands in the file.",
        "Nobody runs it.",
        "The worker is told the address.",
        "The crawl goes on.",
        "A job that was begun with another spider.",
        "Started by hand.",
        "Pages that cannot be had.",
        "The work that is in\nhand.",
        "Wait for a host that has never answered.",
    ],
)
def test_a_planted_phrase_is_found_with_its_line_and_a_hint(sentence):
    text = f"# Title\n\nA good sentence. There is no limit, and it is no longer slow.\n{sentence}\n"
    found = list(findings(text, "page.md"))
    assert found
    assert all(re.match(r"page\.md:4: '.+': \w", line) for line in found)


VAGUE_NAMES = re.compile(
    r"\bdef (test_(?:what|who)(?:ever)?_\w*|test_\w+_(?:nobody|anew|is_no|are_no|is_none)(?:_(?!longer|later)\w*)?)\("
)
"""Names of tests that hide their subject. Write a noun: ``test_an_expired_lease_...``."""


def test_names_of_tests_name_their_subject():
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    assert [found for path in files for found in VAGUE_NAMES.findall(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "name", ["test_what_waits_is_kept", "test_a_text_is_no_url", "test_a_bad_url_is_none"]
)
def test_a_planted_name_of_a_test_is_found(name):
    assert VAGUE_NAMES.findall(f"def {name}():") == [name]
    assert VAGUE_NAMES.findall("def test_a_lease_is_no_longer_valid():") == []


def test_code_is_not_prose():
    assert list(findings("Write `is none`.\n\n```console\n$ echo for ever\n```\n", "page.md")) == []


def test_a_planted_phrase_in_a_docstring_a_message_and_a_comment_is_found():
    source = '"""Fine."""\n\ndef f(x):\n    """It goes on."""\n    raise ValueError(f"{x} is no URL")  # it is none\n'
    found = [line for first, text in texts_of(source) for line in findings(text, "f.py", first)]
    assert sorted(line.split(":")[1] for line in found) == ["4", "5", "5"]


@pytest.mark.parametrize("sentence", ["The name servers do not answer.", "This page answers questions."])
def test_name_servers_and_pages_may_answer(sentence):
    assert list(findings(sentence, "page.md")) == []


def test_every_exception_is_needed():
    for name, words in EXCEPTIONS:
        page = next(page for page in [*DOCUMENTS, *SOURCE] if name_of(page) == name)
        assert words in page.read_text("utf-8").lower(), (name, words)


def test_pages_are_found_in_every_folder():
    folders = {page.parent.name for page in PAGES}
    assert {"docs", "tutorial", "guides", "design", "api"} <= folders
    assert ROOT / "src" / "skitter" / "settings.py" in SOURCE
