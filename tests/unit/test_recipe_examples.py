"""The ten recipes of the examples yield exactly the items of their ten sites."""

import sys

import pytest

from cli_command import lines_of, skitter
from recipe_runs import RECIPES, run_recipe_file
from skitter.testing import SiteProcess

sys.path.insert(0, str(RECIPES))
from ten_sites import BOOKS, LETTERS, POSTS, Sites

SHOP = [
    {
        "title": title, "price": float(price.replace(",", "")), "stars": len(title), "pages": pages,
        "tags": ["classic", title.lower()], "text": f"About **{title}**.\n\n- one",
        "cover": f"{{site}}/shop/{title}.jpg", "rank": place % 3 + 1, "url": f"{{site}}/shop/book/{place}",
    }
    for place, (title, price, pages) in enumerate(BOOKS)
]  # fmt: skip
THREAD = {
    "title": "Thread",
    "comments": [
        {
            "author": "ann", "text": "first",
            "replies": [
                {"author": "bo", "text": "second", "replies": [{"author": "cy", "text": "third", "replies": []}]},
                {"author": "di", "text": "fourth", "replies": []},
            ],
        },
        {"author": "ed", "text": "fifth", "replies": []},
    ],
}  # fmt: skip
EXPECTED = {
    "shop.yaml": SHOP,
    "wall.yaml": POSTS,
    "table.yaml": [
        {"city": "Berlin", "latitude": 52.52, "people": 3755251, "river": True},
        {"city": "Hamburg", "latitude": 53.55, "people": 1892122, "river": False},
        {"city": "Jena", "latitude": 50.93, "people": 110731, "river": True},
    ],
    "forum.yaml": [THREAD],
    "api.yaml": [
        {"user": "ada", "admin": True},
        {"user": "bob", "admin": False},
        {"user": "eve", "admin": False},
        {"owner": "ada", "name": "engine", "size": 6, "label": "ada/ENGINE"},
        {"owner": "ada", "name": "notes", "size": 5, "label": "ada/NOTES"},
        {"owner": "bob", "name": "tools", "size": 5, "label": "bob/TOOLS"},
    ],
    "catalogue.yaml": [
        {"name": f"Lamp {number}", "price": number * 10.5, "number": number} for number in range(1, 7)
    ],
    "search.yaml": [
        {"query": word[0], "word": word} for word in ("apple", "apricot", "avocado", "banana", "blueberry")
    ],
    "news.toml": [
        {
            "title": "Rain", "published": "2026-11-02T08:00:00Z", "summary": "It **rains**.", "tags": ["weather"],
            "words": 1234,
        },
        {
            "title": "Snow", "published": "2026-11-03T08:30:00Z", "summary": "It *snows*.", "tags": ["weather"],
            "words": 1234,
        },
    ],
    "magazine.yaml": [
        {"language": "en", "title": "Spring", "date": "2026-03-05"},
        {"language": "en", "title": "Summer", "date": "2026-06-21"},
        {"language": "fr", "title": "Printemps", "date": "2026-03-05"},
        {"language": "fr", "title": "Été", "date": "2026-06-21"},
    ],
    "club.yaml": [{"title": letter, "text": f"Letter {letter}"} for letter in LETTERS],
}  # fmt: skip


def at(site, value):
    """Insert the address of the site into expected items."""
    if isinstance(value, str):
        return value.replace("{site}", site)
    if isinstance(value, list):
        return [at(site, inner) for inner in value]
    return {name: at(site, inner) for name, inner in value.items()} if isinstance(value, dict) else value


def in_order(items):
    return sorted(items, key=repr)


def test_every_recipe_of_the_folder_is_expected_here_and_no_other():
    assert {path.name for path in RECIPES.iterdir() if path.suffix in {".yaml", ".toml"}} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_recipe_yields_exactly_the_items_of_its_site(name, serve, tmp_path):
    site = serve(Sites()).url.rstrip("/")
    ran = await run_recipe_file(RECIPES / name, tmp_path, site=site)
    assert ran.letters == {}
    assert in_order(ran.items) == in_order(at(site, EXPECTED[name]))


def test_a_login_holds_for_workers_that_did_not_log_in_and_after_a_restart(tmp_path):
    with SiteProcess("ten_sites:Sites", search=[RECIPES]) as process:
        site = process.url.rstrip("/")
        arguments = ("run", RECIPES / "club.yaml", "-a", f"site={site}", "-o", "out.jsonl", "--delay", 0)
        # Crawl up to the login only; other workers continue.
        assert skitter(*arguments, "--limit", 3, cwd=tmp_path).returncode == 0
        result = skitter(*arguments, "--workers", 2, "--fail-on-errors", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        logins = [hit for hit in process.hits() if hit.target == "/club/login" and hit.method == "POST"]
    assert in_order(lines_of(tmp_path / "out.jsonl")) == in_order(EXPECTED["club.yaml"])
    assert len(logins) == 1


async def test_a_failed_login_is_a_dead_letter_with_the_reason(serve, tmp_path):
    site = serve(Sites()).url.rstrip("/")
    ran = await run_recipe_file(RECIPES / "club.yaml", tmp_path, site=site, password="wrong")
    assert ran.items == []
    (error,) = ran.letters.values()
    assert "PageError: " in error
    assert f"{site}/club/login" in error
