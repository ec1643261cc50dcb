"""`skitter status --watch` without a terminal: it writes lines to a file, and survives outages of its server."""

import json

from cli_command import Logged, skitter, usage_error
from skitter.testing import GeneratedSite


def test_a_watch_outlives_an_outage_of_its_server_and_ends_with_its_job(serve, own_server, tmp_path):
    server = own_server("--appendonly", "yes", "--appendfsync", "always")
    folders = [tmp_path / name for name in ("crawl", "watch", "elsewhere")]
    for folder in folders:
        folder.mkdir()
    shared = ("--frontier", server.url)
    command = (
        "crawl",
        serve(GeneratedSite(pages=5)).url,
        "--delay",
        0,
        "--job",
        "shop",
        "--wait-for-seeds",
        *shared,
    )
    with Logged(*command, cwd=folders[0]) as crawl:
        crawl.wait_for(
            lambda: '"live": true' in skitter("status", "shop", "--json", *shared, cwd=folders[2]).stdout
        )
        watching = ("status", "shop", "--watch", "--json", "--interval", 0.1, *shared)
        with Logged(*watching, cwd=folders[1]) as watch:
            watch.wait_for(lambda: watch.out)
            server.kill()
            watch.wait_for(lambda: "trying again" in watch.log)
            assert "does not respond" in usage_error(*watching, cwd=folders[2])
            seen = len(watch.out)
            server.start()
            watch.wait_for(lambda: len(watch.out) > seen + 3)
            assert skitter("stop", "shop", *shared, cwd=folders[2]).returncode == 0
            assert watch.end() == 0
            assert json.loads(watch.out[-1])["live"] is False
            assert len(watch.log.splitlines()) == len(set(watch.log.splitlines())), "said once"
        assert crawl.end() == 0
