"""The tables of keys and scripts in the documentation of the Redis frontier are complete and without duplicates."""

import re
from collections import Counter
from pathlib import Path

import pytest

from skitter.frontier.redis.job import keys_of
from skitter.frontier.redis.server import all_scripts

DOCS = Path(__file__).parents[2] / "docs/design"
OF_A_CLUSTER = {"outbox", "delivered"}
OF_A_CLUSTER_OR_BROKER = {
    "deliver", "outbox", "clear_outbox", "partition_status", "complete", "follow_recrawl", "overdue_slots",
}  # fmt: skip


def first_column(page, heading):
    """Return how often each name is listed in the first column of the table below a heading."""
    section = (DOCS / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return Counter(name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1]))


@pytest.mark.parametrize(
    ("heading", "wanted"),
    [
        ("Keys", {key.rpartition(":")[2] for key in keys_of("job")} - OF_A_CLUSTER),
        ("Scripts", set(all_scripts()) - OF_A_CLUSTER_OR_BROKER),
    ],
    ids=["keys", "scripts"],
)
def test_each_key_and_script_is_listed_once(heading, wanted):
    assert first_column("redis-frontier.md", heading) == Counter(wanted)


@pytest.mark.parametrize("name", sorted(OF_A_CLUSTER | OF_A_CLUSTER_OR_BROKER))
def test_keys_of_a_cluster_or_a_broker_are_documented_there(name):
    pages = [(DOCS / page).read_text() for page in ("cluster-frontier.md", "brokers.md")]
    assert any(f"`{name}`" in page for page in pages)
