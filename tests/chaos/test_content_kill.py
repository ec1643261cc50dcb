"""Text data sets during kills: the same texts and the same groups of near duplicates as without kills."""

import io
import json
import random
from collections import defaultdict
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec
import psutil
import pytest
from crawling import FAST, ROUNDS, Crawling, at_moments, check_exact, served

from services.redis_servers import server_of
from sites.texts import TextSite, pairs_of
from skitter.store.merge import Format, fill

pytest.importorskip("trafilatura", reason="trafilatura is not installed")
pytestmark = pytest.mark.chaos

PAGES, KILLS = 200, 8


@pytest.mark.parametrize("seed", ROUNDS)
def test_the_groups_are_the_same_whichever_process_is_killed(crawling, bounded_site, tmp_path, seed):
    truth = TextSite(PAGES, seed)
    site = bounded_site("sites.texts:TextSite", {"size": PAGES, "seed": seed})
    rng = random.Random(seed)
    crawl = crawling(
        "Texts", workers=2, output="items.jsonl?duplicates=mark", settings=FAST, arguments={"url": site.url}
    )
    crawl.output = tmp_path / "items.jsonl"
    crawl.start()
    kills = 0
    victims = rng.sample(["worker", "extraction", "owner", "all"] * 2, k=KILLS)
    moments = (served(site) + rng.randrange(1, PAGES // KILLS) for _ in victims)
    for _, victim in zip(at_moments(crawl, site, moments, ahead=8), victims, strict=False):
        if victim == "extraction":
            kills += kill_extraction(crawl)
        elif victim == "worker":
            kills += crawl.kill_worker(rng)
        else:
            getattr(crawl, f"kill_{victim}")()
            kills += 1
            crawl.start()
    assert crawl.wait() == 0, crawl.errors
    assert kills >= KILLS // 2
    check_exact(crawl, {site.url, *(f"{site.url}{place}" for place in range(len(truth.corpus.pages)))})
    items = [item for item in crawl.items() if item["url"] != site.url]
    crashed = {item["url"] for item in items if item["content_error"] is not None}
    assert len(crashed) <= kills  # a killed extraction costs the content of one page
    for item in items:
        if item["url"] not in crashed:
            text = truth.corpus.pages[int(urlsplit(item["url"]).path[1:])][2]
            assert " ".join(item["content"].split()) == " ".join([text.split()[0], *text.split()])
    check_groups(items, crashed, truth)


def test_all_machines_of_a_fleet_write_the_same_groups_although_one_is_killed(site_process, tmp_path):
    truth = TextSite(PAGES, 5)
    site = site_process("sites.texts:TextSite", {"size": PAGES, "seed": 5})
    server = server_of("valkey", "--appendonly", "no").start()
    machines = []
    try:
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            output = f"items.jsonl?parts={server.url}/texts:parts&duplicates=mark"
            machine = Crawling(
                tmp_path / name, "Texts", output=output, settings=FAST, arguments={"url": site.url}, workers=2
            )
            machine.command.append(f"--frontier={server.url}")
            machines.append(machine.start())
        victim = machines[0]
        assert victim.wait_for(lambda: len(site.hits()) > PAGES // 3, "a third of the pages")
        victim.kill_all()
        victim.start()
        assert [machine.wait() for machine in machines] == [0, 0], [machine.errors for machine in machines]
        files = [
            [json.loads(line) for line in (machine.folder / "items.jsonl").read_text().splitlines()]
            for machine in machines
        ]
        groups = [{item["url"]: item["duplicate_of"] for item in items} for items in files]
        assert groups[0] == groups[1]
        assert set(groups[0]) == {
            site.url,
            *(f"{site.url}{place}" for place in range(len(truth.corpus.pages))),
        }
        assert len(files[0]) == len(groups[0])
        check_groups([item for item in files[0] if item["url"] != site.url], set(), truth)
    finally:
        for machine in machines:
            machine.end()
        server.stop()


def kill_extraction(crawl):
    """SIGKILL the extraction process of a worker. Return whether there was one."""
    for worker in crawl.workers():
        try:
            children = worker.children()
        except psutil.NoSuchProcess:
            continue
        for child in children:
            with suppress(psutil.NoSuchProcess):  # it has ended with its worker
                child.kill()
                return True
    return False


def check_groups(items, crashed, truth):
    """Check that the groups are those of the same items in any other order, and the near duplicates of the site."""

    class Shuffled:
        def lines(self):
            return map(msgspec.json.encode, shuffled)

    shuffled = [{name: item[name] for name in item if name != "duplicate_of"} for item in items]
    random.Random(1).shuffle(shuffled)
    file = io.BytesIO()
    fill(file, Shuffled(), Format(duplicates="mark"), "again.jsonl")
    again = {
        item["url"]: item["duplicate_of"] for item in map(msgspec.json.decode, file.getvalue().splitlines())
    }
    assert {item["url"]: item["duplicate_of"] for item in items} == again
    groups, left_out = defaultdict(list), {urlsplit(url).path for url in crashed}
    for item in items:
        if item["url"] not in crashed:
            groups[item["duplicate_of"] or item["url"]].append(urlsplit(item["url"]).path)
    known = {
        group: [path for path in paths if path not in left_out] for group, paths in truth.groups().items()
    }
    true, found = pairs_of(known), pairs_of(groups)
    assert len(true & found) >= 0.95 * len(true) > 0
    assert len(true & found) >= 0.99 * len(found)
