"""Which connections are kept if there are more origins than places in the pool."""

from skitter.fetch.multi import KeptOrigins


def test_the_first_origins_are_kept_and_not_replaced_by_others():
    kept = KeptOrigins(2, idle_timeout=60)
    turns = [
        [kept.keeps(origin, turn * 2.0 + place / 10) for place, origin in enumerate("abcd")]
        for turn in range(5)
    ]
    assert turns == [[True, True, False, False]] * 5


def test_a_new_origin_takes_the_place_of_one_without_a_second_request():
    kept = KeptOrigins(1, idle_timeout=60)
    assert kept.keeps("a", 0.0)
    assert not kept.keeps("b", 9.9)
    assert kept.keeps("b", 10.0)
    assert not kept.keeps("a", 11.0)


def test_an_origin_keeps_its_place_for_four_of_its_intervals():
    kept = KeptOrigins(1, idle_timeout=60)
    assert kept.keeps("slow", 0.0) and kept.keeps("slow", 8.0)
    assert not kept.keeps("b", 39.0)
    assert kept.keeps("b", 40.0)


def test_an_origin_with_frequent_requests_soon_loses_its_place_after_its_last_one():
    kept = KeptOrigins(1, idle_timeout=60)
    assert all(kept.keeps("fast", number / 2) for number in range(5))
    assert not kept.keeps("b", 3.9)
    assert kept.keeps("b", 4.0)


def test_one_short_interval_does_not_cost_an_origin_its_place():
    """The first page is fetched right after robots.txt, and the second one after the delay of the host."""
    kept = KeptOrigins(1, idle_timeout=60)
    assert kept.keeps("a", 0.0) and kept.keeps("a", 0.1)
    assert not kept.keeps("b", 5.0)


def test_an_origin_loses_its_place_when_its_connection_is_too_old():
    kept = KeptOrigins(1, idle_timeout=20)
    assert kept.keeps("slow", 0.0) and kept.keeps("slow", 15.0)
    assert not kept.keeps("b", 34.0)
    assert kept.keeps("b", 35.0)
