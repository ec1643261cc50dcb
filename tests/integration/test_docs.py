"""The manual is correct: commands print the documented output, tables are complete, links have targets."""

import ast
import inspect
import os
import pkgutil
import re
import shutil
import sys
import tomllib
from pathlib import Path

import click
import msgspec
import pytest

import skitter as public
from browsers import require_browser
from manual import PAGES, ROOT, Reader, anchors, blocks, commands, links, name_of
from services.processes import free_port
from skitter import JobSpec, LimitRule, Settings, foreign_names
from skitter.cli.main import skitter
from skitter.testing import Answer
from skitter.testing.demo_site import DemoSite, demo_server

README = ROOT / "README.md"
DOCS = ROOT / "docs"
LANDING = DOCS / "index.md"
TUTORIALS = [page for page in PAGES if page.parent == DOCS / "tutorial"]
LINKED = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    ROOT / "benchmarks" / "README.md",
]
# This would install from the network what is already installed.
NOT_RUN = ("python3 -m venv .venv && . .venv/bin/activate", "pip install .")
QUOTES = '<title>Quotes</title><div class="quote"><span class="text">{}</span><a class="tag" href="/tag">wit</a></div>'


@pytest.fixture
def environment():
    """The environment of a reader who has installed skitter."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": programs, "COLUMNS": "200"}


def pages_with_commands():
    return [page for page in PAGES if any(block.language == "console" for block in blocks(page))]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("timeout") is None, reason="timeout of GNU coreutils is not installed")
@pytest.mark.parametrize("page", TUTORIALS, ids=name_of)
def test_every_step_of_a_tutorial_has_its_documented_result(page, tmp_path, environment):
    if page.stem == "javascript":
        require_browser()
    first = free_port(row=3)
    words = [(str(8000 + number), str(first + number)) for number in range(3)]
    # A busy machine may need several seconds to start the crawl that is killed.
    words += [("--signal=KILL 8 ", "--signal=KILL 15 "), ("-s delay=0.1", "-s delay=0.2")]
    with Reader(tmp_path, environment, words, NOT_RUN) as reader:
        reader.follow(page)


@pytest.mark.parametrize(
    "page", [page for page in pages_with_commands() if page not in {*TUTORIALS, LANDING}], ids=name_of
)
def test_every_command_of_the_manual_prints_its_documented_output(page, tmp_path, environment):
    with (
        demo_server(DemoSite(pace=0)) as server,
        Reader(tmp_path, environment, [("127.0.0.1:8000", server.origins[0])]) as reader,
    ):
        reader.follow(page)


def test_the_first_example_of_the_readme_runs(tmp_path, environment, serve):
    pages = {
        "/": QUOTES.format("One.") + '<li class="next"><a href="/page/2">Next</a></li>',
        "/page/2": QUOTES.format("Two."),
    }
    server = serve(
        lambda visit: Answer(pages[visit.target].encode()) if visit.target in pages else Answer(status=404)
    )
    words = [("https://quotes.toscrape.com/", server.url), ("quotes.toscrape.com", "127.0.0.1")]
    with Reader(tmp_path, environment, words) as reader:
        reader.follow(README)
    quotes = sorted((tmp_path / "quotes.jsonl").read_text().splitlines())
    assert quotes == ['{"text":"One.","tags":["wit"]}', '{"text":"Two.","tags":["wit"]}']
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 3
    assert (tmp_path / "pages.jsonl.gz").stat().st_size > 0


def test_the_example_of_the_landing_page_runs(tmp_path, environment, serve):
    """The site has ten pages of ten quotes, like the public one."""
    first = "“The world as we have created it is a process of our thinking. It cannot be changed."

    def answer(visit):
        number = {f"/page/{page}": page for page in range(2, 11)}.get(visit.target, int(visit.target == "/"))
        texts = [first if (number, index) == (1, 0) else f"Quote {number}-{index}" for index in range(10)]
        following = f'<li class="next"><a href="/page/{number + 1}">Next</a></li>' if number < 10 else ""
        body = "".join(map(QUOTES.format, texts)) + following
        return Answer(body.encode()) if number else Answer(status=404)

    words = [("https://quotes.toscrape.com/", serve(answer).url), ("quotes.toscrape.com", "127.0.0.1")]
    with Reader(tmp_path, environment, words) as reader:
        reader.follow(LANDING)
    assert len((tmp_path / "quotes.jsonl").read_text().splitlines()) == 100


def test_the_make_targets_of_the_manual_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set()
    for page in [*LINKED, *PAGES]:
        named |= set(re.findall(r"`make ([a-z-]+)\b", page.read_text()))
        for block in blocks(page):
            if block.language == "sh":
                named |= set(re.findall(r"^make ([a-z-]+)\b", block.text, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("page", [README, *PAGES], ids=name_of)
def test_every_file_that_a_page_has_its_reader_save_is_used_by_its_commands(page):
    lines = [
        command.line for block in blocks(page) if block.language == "console" for command in commands(block)
    ]
    for block in blocks(page):
        if block.language == "python" and block.snippet is None:
            assert block.title, f"write py in place of python for an excerpt: {block.text[:60]}"
            assert any(block.title in line for line in lines), f"nothing runs {block.title}"


@pytest.mark.parametrize("page", [*LINKED, *PAGES], ids=name_of)
def test_every_link_leads_to_a_page_and_a_heading(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path).resolve()
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
    for block in blocks(page):
        assert block.snippet is None or block.snippet.is_file(), block.text


@pytest.mark.parametrize("page", [*LINKED, *PAGES], ids=name_of)
def test_code_is_fenced_and_names_its_language(page):
    text = page.read_text()
    fences = re.findall(r"^ *```(.*)$", text, re.MULTILINE)
    assert all(fences[::2])  # each second fence ends a block
    prose = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    # An indented text below an item of a list belongs to this item.
    indented = re.findall(r"^(?![-\d!])\S.*\n\n+ {4}(\S.*)$", prose, re.MULTILINE)
    assert indented == []


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r"^ +- (?:.+: )?([\w/-]+\.md)$", navigation, re.MULTILINE)
    assert sorted(listed) == [name_of(page) for page in sorted(PAGES, key=name_of)]


GUIDES = [page for page in PAGES if page.parent == DOCS / "guides"]


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_a_guide_says_first_what_it_is_for_and_ends_with_links_to_the_reference(page):
    text = page.read_text()
    assert re.match(r"# .+\n\n(?:\*\*)?[A-Z][a-z]", text), "the first paragraph is a sentence"
    assert "](../reference/" in text.partition("\n## See also\n")[2]


@pytest.mark.parametrize("page", [DOCS / "concepts.md", *GUIDES], ids=name_of)
def test_a_page_says_how_to_serve_the_site_before_it_crawls_it(page):
    before, served, _ = page.read_text().partition("tutorial/first-spider.md#start-the-demo-site)")
    crawled = [
        block.text
        for block in blocks(page)
        if block.language in {"console", "python"}
        and block.snippet is None
        and "127.0.0.1:8000" in block.text
    ]
    assert not crawled or (served and crawled[0] not in before)


@pytest.mark.parametrize("page", [README, *PAGES], ids=name_of)
def test_every_file_of_the_repository_that_a_page_names_exists(page):
    for name in re.findall(r"`((?:src|tests|benchmarks|docs|examples)/[\w./-]*)`", page.read_text()):
        assert (ROOT / name).exists(), name


def documented_names():
    """Return each name whose docstring the API reference shows."""
    for page in sorted((DOCS / "reference" / "api").glob("*.md")):
        yield from re.findall(r"^::: ([\w.]+)$", page.read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", list(documented_names()))
def test_every_name_of_the_api_reference_exists_and_is_documented(name):
    assert pkgutil.resolve_name(name).__doc__


def test_the_api_reference_has_every_public_name():
    shown = {name.rpartition(".")[2]: pkgutil.resolve_name(name) for name in documented_names()}
    of_modules = {
        name
        for module in filter(inspect.ismodule, shown.values())
        for name, value in vars(module).items()
        if (getattr(value, "__module__", None) or "").startswith(module.__name__)
    }
    assert set(public.__all__) <= {*shown, *of_modules}


def test_the_settings_page_has_every_setting_with_its_default_and_no_other():
    text = (DOCS / "reference" / "settings.md").read_text()
    sections = re.findall(r"^### (\w+)\n\n(?:.+\n)+\nDefault: `(.+?)`(?: |$)", text, re.MULTILINE)
    shown = {name: ast.literal_eval(default) for name, default in sections}
    assert len(shown) == len(sections) == text.count("\n### ")
    assert shown == {name: getattr(Settings(), name) for name in Settings.__struct_fields__}


def test_the_fields_of_a_job_and_of_a_limit_rule_are_in_the_manual():
    for kind, page, internal in (
        (
            JobSpec,
            "guides/embedding.md",
            {"format", "left_out", "left_streams", "origin", "fingerprint_seed"},
        ),  # fields of the note only
        (LimitRule, "guides/politeness.md", set()),
    ):
        rows = set(re.findall(r"^\| `(\w+)` \|", (DOCS / page).read_text(), re.MULTILINE))
        assert {field.name for field in msgspec.structs.fields(kind)} - internal <= rows


def first_column(section):
    """Return the words in code in the first column of the table of a section of the guide to failures."""
    text = (
        (DOCS / "guides" / "failures.md").read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    )
    rows = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([\w-]+)`", row)}


def test_the_guide_to_failures_has_every_reason_of_a_rejected_url():
    sources = "".join(path.read_text() for path in SOURCES)
    reasons = set(re.findall(r"\brefused/([a-z_-]+)\b", sources))
    assert {"robots", "dropped"} <= reasons <= first_column("Rejected URLs")


def test_the_guide_to_failures_has_every_kind_of_a_fetch_error():
    sources = "".join(path.read_text() for path in SOURCES)
    kinds = set(re.findall(r"^    kind = \"(\w+)\"$", sources, re.MULTILINE))
    never_final = {"late", "aborted"}  # the request is sent again, or a hook has decided
    assert {"dns", "archive"} <= kinds - never_final <= first_column("Kinds of errors")


def every_command(group=skitter, path="skitter"):
    """Return each command with its full name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from every_command(command, f"{path} {name}")


def options_of(command):
    """Return the names of a command's options."""
    options = [option for option in command.params if isinstance(option, click.Option)]
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


def named_options(text):
    """Return the options that a text names in code."""
    code = " ".join(re.findall(r"`([^`]+)`", text))
    return set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", code))


def cli_sections():
    text = (DOCS / "reference" / "cli.md").read_text()
    parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize(
    ("path", "command"), list(every_command()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_section_of_a_command_has_every_option_and_no_other(path, command):
    sections = cli_sections()
    assert options_of(command) <= named_options(sections[path])
    assert named_options(sections[path]) <= options_of(command) | {"-h", "--help"}


def test_the_commands_page_has_every_command_and_no_other():
    sections = cli_sections()
    known = {path for path, _ in every_command()}
    assert {title for title in sections if title.startswith("skitter")} == known


SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_the_pages_and_the_remedies_name_only_commands_that_exist():
    known = {path for path, _ in every_command()} | {"skitter"}
    words = {path.split()[1] for path in known if " " in path}
    groups = {path for path in known if sum(other.startswith(f"{path} ") for other in known)} - {"skitter"}
    named = set()
    for page in [*LINKED, *PAGES, *SOURCES]:
        text = page.read_text()
        for first, second in re.findall(
            r"(?:`|^\$ )skitter ([a-z][a-z-]*)(?: ([a-z]+)\b)?", text, re.MULTILINE
        ):
            named.add(f"skitter {first}")
            if f"skitter {first}" in groups and second:
                named.add(f"skitter {first} {second}")
    assert named <= known
    assert {name.split()[1] for name in named} == words


def test_the_pages_and_the_remedies_name_only_extras_that_exist():
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = set()
    for page in [*LINKED, *PAGES, *SOURCES, ROOT / "deploy" / "Dockerfile"]:
        for names in re.findall(r"(?:pip install \"?\.|`skitter)\[([a-z0-9,]+)\]", page.read_text()):
            named |= set(names.split(","))
        named |= set(re.findall(r"\bneed(?:ing)?\((?:\"[\w.]+\", )?\"(\w+)\",", page.read_text()))
    assert {"parquet", "s3", "browser", "recipes"} <= named <= extras


def test_the_tables_for_scrapy_users_name_only_settings_that_exist():
    text = (
        (DOCS / "guides" / "scrapy.md").read_text().partition("| Setting of Scrapy")[2].partition("\n## ")[0]
    )
    ours = {
        name
        for row in text.splitlines()[2:]
        for name in re.findall(r"`([a-z_]+)`", row.split("|")[2] if "|" in row else "")
    }
    assert ours
    assert ours - {"on_error", "before_request"} <= set(Settings.__struct_fields__)


def test_the_guide_for_scrapy_users_has_every_setting_that_a_run_recognises():
    text = (DOCS / "guides" / "scrapy.md").read_text()
    assert [
        name for name in foreign_names.SETTINGS if f"`{name}`" not in text and f"\n{name} = " not in text
    ] == []
    table = text.partition("| Setting of Scrapy")[2].partition("\n## ")[0]
    listed = {name for row in table.splitlines() for name in re.findall(r"`([A-Z_]{3,})`", row.split("|")[1])}
    assert listed - foreign_names.SETTINGS.keys() == set()


def test_the_guide_for_users_of_scrapy_redis_has_every_setting_that_a_run_recognises():
    text = (DOCS / "guides" / "scrapy-redis.md").read_text()
    assert [name for name in foreign_names.SCRAPY_REDIS_SETTINGS if f"`{name}`" not in text] == []
    listed = {
        name
        for row in text.partition("## Names")[2].splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`([A-Z]+_[A-Z_]+)`", row.split("|")[1])
    }
    assert listed - {*foreign_names.SCRAPY_REDIS_SETTINGS, *foreign_names.SETTINGS} == set()


def test_the_guide_for_scrapy_users_has_every_key_of_meta_that_a_run_points_out():
    text = (DOCS / "guides" / "scrapy.md").read_text()
    assert set(re.findall(r'`meta\["(\w+)"\]`', text)) == {*foreign_names.META, *foreign_names.META_VALUES}


def test_the_guide_for_scrapy_users_has_every_name_that_an_error_translates():
    text = (DOCS / "guides" / "scrapy.md").read_text()
    members = {name for names in foreign_names.MEMBERS.values() for name in names}
    assert [name for name in foreign_names.NAMES if name not in text] == []
    assert [name for name in foreign_names.HOOKS if name not in text] == []
    assert {name for name in members if name not in text} <= {"copy", "flags", "get_value", "set_value"}


def test_the_guides_for_crawlee_users_have_every_name_that_an_error_translates():
    text = "".join((DOCS / "guides" / name).read_text() for name in ("crawlee.md", "dynamic-pages.md"))
    tables = (
        foreign_names.CRAWLEE_SETTINGS,
        foreign_names.CRAWLEE_ARGUMENTS,
        foreign_names.CRAWLEE_NAMES,
        *foreign_names.CRAWLEE_MEMBERS.values(),
    )
    assert [name for table in tables for name in table if not re.search(rf"\b{name}\b", text)] == []


def test_every_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(name for names in project["optional-dependencies"].values() for name in names),
    ]
    text = (DOCS / "dependencies.md").read_text()
    for requirement in wanted:
        name = re.match(r"[\w-]+", requirement)[0]
        assert f"`{name}`" in text, name
